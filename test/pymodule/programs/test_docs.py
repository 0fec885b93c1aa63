"""The documentation: Python blocks run, links and pictures are valid, and the navigation is
complete.

The blocks of a page run in order in one process, in the mode of the devices that they name. So each
mode of the tests runs some of the pages. A block that cannot run has ``notest`` after the language.
`make docs` builds the site itself.
"""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from device import DEVICE

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    """Return the Python blocks that run, each with empty lines up to its line in the file."""
    text = page.read_text()
    return [
        "\n" * text[: found.start(1)].count("\n") + found[1]
        for found in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)
    ]


def mode(page):
    """Return the device type that a page's blocks name."""
    return "cuda" if re.search(r"\bcuda\b", "".join(map(code_only, blocks(page)))) else "openreg"


def code_only(block):
    return re.sub(r"#.*", "", block)


RUNNING = [page for page in PAGES if blocks(page)]


@pytest.mark.parametrize(
    "page", [page for page in RUNNING if mode(page) == DEVICE], ids=lambda page: page.stem
)
def test_blocks_of_a_page_run(page, python, tmp_path):
    program = "\n".join(
        ["import os", f"os.chdir({str(tmp_path)!r})", "names = {'__name__': '__main__'}"]
        + [f"exec(compile({block!r}, {str(page)!r}, 'exec'), names)" for block in blocks(page)]
    )
    python(program)


def test_pages_of_both_modes_run():
    assert {mode(page) for page in RUNNING} == {"cuda", "openreg"}
    assert len(RUNNING) >= 8


@pytest.mark.skipif(DEVICE != "cuda", reason="the recipe says cuda")
def test_recipe_for_pytest_passes(own_group, tmp_path):
    (recipe, *_) = blocks(ROOT / "docs" / "testing.md")
    (tmp_path / "test_recipe.py").write_text(recipe)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path]
    result = subprocess.run(words, env=own_group(), capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    assert f"{recipe.count('def test_')} passed" in result.stdout


def test_every_block_has_a_known_language():
    for page in PAGES:
        for opening in re.findall(r"^```(.+)$", page.read_text(), re.M):
            known = "python|python notest|sh|text|yaml|ini|toml|c|cpp"
            assert re.fullmatch(known, opening), f"{page.name}: {opening}"


def test_every_page_is_in_the_navigation():
    shown = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert shown == {page.name for page in PAGES[1:]}


def test_every_page_starts_with_what_a_reader_can_do():
    for page in PAGES[1:]:
        first = page.read_text().split("\n\n", 2)[1]
        assert first.startswith("After reading this page you "), page.name


def test_every_link_between_pages_is_valid():
    for page in PAGES + [ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\((?!https:)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


SOURCES = (
    *(
        "base",
        "device",
        "allocator",
        "collectives",
        "sanitizer",
        "generator",
        "amp",
        "nvml",
        "cudart",
    ),
    *("pymodule", "test", "bench", "examples", "tools"),
)


@pytest.mark.parametrize("name", ["architecture.md", "glossary.md", "graphs.md", "porting.md"])
def test_every_file_that_a_page_names_exists(name):
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*")]
    paths = [f"/{path.relative_to(ROOT)}{'/' if path.is_dir() else ''}" for path in files]
    paths += [f"/{folder}/" for folder in SOURCES]
    text = re.sub(r"^```.*?^```$", "", (ROOT / "docs" / name).read_text(), flags=re.M | re.S)
    named = set(re.findall(r"`([\w./-]+(?:\.(?:c|h|cpp|py|pth)|/))`", text))
    assert len(named) > 5
    ours = {each for each in named if not each.startswith(("torch/", "ATen/"))}
    assert [each for each in ours if not any(path.endswith(f"/{each}") for path in paths)] == []


def test_pictures_are_up_to_date(tmp_path):
    subprocess.run([sys.executable, ROOT / "tools" / "draw-pictures", tmp_path], check=True)
    drawn = {picture.name: picture.read_text() for picture in tmp_path.iterdir()}
    kept = {each.name: each.read_text() for each in (ROOT / "docs" / "pictures").iterdir()}
    assert len(drawn) >= 4 and kept == drawn


# ---- parts that the build of the site makes ------------------------------------------------------


@pytest.fixture(scope="module")
def pages():
    return runpy.run_path(str(ROOT / "tools" / "docs_pages.py"))


def test_sections_are_included_with_their_headings_below(pages):
    text = "# A\n\n## B\n\nin b\n\n### C\n\n```sh\n# no heading\n```\n\n## D\n\nin d\n"
    body, level = pages["section"](text, "B")
    assert (body, level) == ("in b\n\n### C\n\n```sh\n# no heading\n```", 2)
    with pytest.raises(ValueError, match="no section 'E'"):
        pages["section"](text, "E")


def test_every_inclusion_is_found(pages):
    count = 0
    for page in PAGES[1:]:
        text = page.read_text()
        count += text.count("<!-- include:")
        assert "<!-- include:" not in pages["include"](text), page.name
    assert count >= 2


def test_c_reference_has_every_function_of_the_public_headers(pages):
    reference = pages["c_reference"]()
    for path in pages["_headers"]():
        header = path.read_text()
        code = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
        names = set(re.findall(r"\b(openreg_\w+|nvml\w+)\(", code))
        assert names, path
        assert [name for name in sorted(names) if f"{name}(" not in reference] == []


def test_c_reference_has_the_comment_of_a_function(pages):
    header = "/* a.h: what it is.\n *\n * More:\n *   - one;\n *   - two. */\n#ifndef OPENREG_A_H\n"
    header += "#define OPENREG_A_H\n\n#include <stdint.h>\n\n/* ---- part ---- */\n\n"
    header += "/* Does `f_`.\n * Errors: A_B. */\nint f(int *x); /* why */\n\n#endif\n"
    assert pages["c_page"](header) == (
        "## a.h\n\nWhat it is.\n\nMore:\n\n- one;\n- two.\n\n### part\n\n"
        "Does `f_`.\nErrors: A_B.\n\n```c\nint f(int *x); /* why */\n```"
    )
