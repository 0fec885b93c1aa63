"""What MkDocs does with the pages of docs/ beyond Markdown: called by it as mkdocs.yml says.

Three things are done so that nothing is written twice:

- a line `<!-- include: FILE # HEADING -->` becomes the section of that heading in a file, without
  the heading; its sub-headings go one level below the last heading before the line;
- `c-api.md` is made of the layers' public headers;
- the word `notest` behind a block's language, for the tests that run these blocks, is left out.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("base", "device", "allocator", "collectives", "sanitizer", "generator", "amp", "nvml")

_INCLUDE = re.compile(r"^<!-- include: (\S+) # (.+?) -->$", re.M)
_HEADING = re.compile(r"^(#+) (.+)$")


# ---- sections of other files ---------------------------------------------------------------------


def _lines_with_levels(text):
    """Each line with the level of the heading that it is, or 0; `#` in blocks of code is none."""
    is_code = False
    for line in text.splitlines():
        is_code ^= line.startswith("```")
        found = None if is_code else _HEADING.match(line)
        yield line, len(found[1]) if found else 0


def section(text, heading):
    """Return the body of a section, and the level of its heading."""
    body, level = None, 0
    for line, found in _lines_with_levels(text):
        if body is None and found and line[found + 1 :] == heading:
            body, level = [], found
        elif body is not None:
            if found and found <= level:
                break
            body.append(line)
    if body is None:
        raise ValueError(f"there is no section {heading!r}")
    return "\n".join(body).strip(), level


def _below(text, by):
    lines = (("#" * by + line if level else line) for line, level in _lines_with_levels(text))
    return "\n".join(lines)


def _with_links(text):
    """Let names of pages lead to them: they are said from where the file lies, the root."""
    text = re.sub(r"\]\((?:docs/)([\w-]+\.md)", r"](\1", text)
    text = text.replace("](CHANGELOG.md)", "](changes.md)")
    return re.sub(r"(?<!\[)`docs/([\w-]+)\.md`", r"[\1](\1.md)", text)


def include(markdown):
    """Return a page with its lines of inclusion replaced."""

    def replaced(found):
        body, level = section((ROOT / found[1]).read_text(), found[2])
        before = [level for _, level in _lines_with_levels(markdown[: found.start()]) if level]
        return _with_links(_below(body, max(before[-1] - level, 0)))

    return _INCLUDE.sub(replaced, markdown)


# ---- the C layers --------------------------------------------------------------------------------


def _comment(text):
    """The words of a C comment."""
    lines = [re.sub(r"^ ?\* ?", "", line) for line in text[2:-2].strip().split("\n")]
    return "\n".join(lines).strip()


def _items(text):
    """Cut a header in comments and code, in their order."""
    for found in re.finditer(r"/\*.*?\*/|[^/]+|/", text, re.S):
        yield found[0]


def _escaped(line):
    """A line whose characters mean nothing to Markdown, but for those in backquotes."""
    parts = re.split(r"(`[^`]*`)", line)
    parts[::2] = [re.sub(r"([*<>\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def _paragraph(text):
    """The words of a comment as Markdown: what is indented is a list, or else code."""
    lines, is_list, is_code = [], False, False
    for line in text.split("\n"):
        is_item = bool(re.match(r" *- ", line))
        is_list = is_item or (is_list and line.startswith("  "))
        was_code, is_code = is_code, line.startswith("   ") and not is_list
        if is_item and lines and not re.match(r" *- |    ", lines[-1]) or is_code != was_code:
            lines.append("")
        if is_code:
            lines.append("    " + line.lstrip())
        elif is_list:
            lines.append(("" if is_item else "    ") + _escaped(line.strip()))
        else:
            lines.append(_escaped(line))
    return "\n".join(lines)


def _declarations(body):
    """A part of a header as Markdown: what stands before a declaration, then the declaration."""
    blocks, words, code = [], [], []

    def flush():
        if "".join(code).strip():
            blocks.append("```c\n" + "".join(code).strip("\n") + "\n```")
        code.clear()

    is_first_of_line = True
    for item in _items(body):
        if item.startswith("/*") and is_first_of_line and not _is_open("".join(code)):
            flush()
            words = _comment(item)
            blocks.append(_paragraph(words))
        else:
            code.append(item)
        is_first_of_line = item.endswith("\n") or not item.rsplit("\n", 1)[-1].strip()
    flush()
    return "\n\n".join(blocks)


def _is_open(code):
    """Whether code is within braces, or in the middle of a line."""
    return code.count("{") > code.count("}") or code.rstrip(" ").endswith(("\\", ","))


_NOISE = re.compile(
    r"#ifdef __cplusplus\n(?:extern|\}).*?#endif\n|^#(?:ifndef|define) OPENREG_\w+_H\n"
    r"|^#(?:include|pragma) [^\n]*\n|^#endif\s*\Z",
    re.S | re.M,
)


def c_page(header):
    """Return a public header as a page: its purpose, then each part of it."""
    first, rest = re.match(r"(/\*.*?\*/)(.*)", header, re.S).groups()
    name, _, purpose = _comment(first).partition(": ")
    parts = re.split(r"/\* -+ (.+?) -+ \*/\n", _NOISE.sub("", rest))
    page = [f"## {name}", _paragraph(purpose[:1].upper() + purpose[1:]), _declarations(parts[0])]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        page += [f"### {title}", _declarations(body)]
    return "\n\n".join(part for part in page if part)


def c_reference():
    """Return the page of all layers."""
    opening = (
        "# C reference\n\nThe layers, which know nothing of PyTorch: a C program can use them, as "
        "`examples/c_tour.c` does. This is what their public headers say, `<layer>/<layer>.h`."
    )
    headers = [(ROOT / layer / f"{layer}.h").read_text() for layer in LAYERS]
    return "\n\n".join([opening, *map(c_page, headers)])


# ---- what MkDocs calls ---------------------------------------------------------------------------


def on_files(files, config):
    """Add the page that no file is the source of."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "c-api.md", content=c_reference()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Complete a page."""
    return re.sub(r"^```(\w+) notest$", r"```\1", include(markdown), flags=re.M)
