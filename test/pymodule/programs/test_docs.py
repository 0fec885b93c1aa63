"""The documentation: blocks of Python run, pictures are what their script draws, no page is lost.

A page's blocks run in their order in a process of its own, in the mode whose devices they name: so
one half of the pages runs in each mode of the tests. What cannot run says ``notest`` behind the
language. The site itself is built by `make docs`.
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
    """Return the blocks of Python that run, each behind as many lines as it is in the file."""
    text = page.read_text()
    return [
        "\n" * text[: found.start(1)].count("\n") + found[1]
        for found in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)
    ]


def mode(page):
    """Return the device type that the blocks of a page name."""
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


def test_no_block_is_of_another_language_by_mistake():
    for page in PAGES:
        for opening in re.findall(r"^```(.+)$", page.read_text(), re.M):
            known = "python|python notest|sh|text|yaml|ini|toml|c|cpp"
            assert re.fullmatch(known, opening), f"{page.name}: {opening}"


def test_every_page_is_in_the_navigation():
    shown = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    there = {page.name for page in PAGES[1:]}
    assert shown == there | {"c-api.md"}


def test_pictures_are_what_their_script_draws(tmp_path):
    subprocess.run([sys.executable, ROOT / "tools" / "draw-pictures", tmp_path], check=True)
    drawn = {picture.name: picture.read_text() for picture in tmp_path.iterdir()}
    kept = {each.name: each.read_text() for each in (ROOT / "docs" / "pictures").iterdir()}
    assert len(drawn) >= 4 and kept == drawn


# ---- what is made when the site is built ---------------------------------------------------------


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
    assert count >= 8


def test_configuration_shows_every_variable_of_the_readme(pages):
    variable = r"^\| `(OPENREG_[A-Z_]+)` \|"
    shown = pages["include"]((ROOT / "docs" / "configuration.md").read_text())
    expected = re.findall(variable, (ROOT / "README.md").read_text(), re.M)
    assert re.findall(variable, shown, re.M) == expected != []
    assert "[sanitizer](sanitizer.md)" in shown


def test_c_reference_has_every_function_of_the_public_headers(pages):
    reference = pages["c_reference"]()
    for layer in pages["LAYERS"]:
        header = (ROOT / layer / f"{layer}.h").read_text()
        code = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
        names = set(re.findall(r"\b(openreg_\w+|nvml\w+)\(", code))
        assert names, layer
        assert [name for name in sorted(names) if f"{name}(" not in reference] == []


def test_c_reference_has_what_stands_before_a_function(pages):
    header = "/* a.h: what it is.\n *\n * More:\n *   - one;\n *   - two. */\n#ifndef OPENREG_A_H\n"
    header += "#define OPENREG_A_H\n\n#include <stdint.h>\n\n/* ---- part ---- */\n\n"
    header += "/* Does `f_`.\n * Errors: A_B. */\nint f(int *x); /* why */\n\n#endif\n"
    assert pages["c_page"](header) == (
        "## a.h\n\nWhat it is.\n\nMore:\n\n- one;\n- two.\n\n### part\n\n"
        "Does `f_`.\nErrors: A_B.\n\n```c\nint f(int *x); /* why */\n```"
    )
