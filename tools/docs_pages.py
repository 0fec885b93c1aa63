"""MkDocs hooks that complete the pages of docs/. `mkdocs.yml` names this file.

The hooks avoid writing things twice:

- A line `<!-- include: FILE # HEADING -->` is replaced by the section of that heading in a file,
  without the heading. Its sub-headings go one level below the last heading before the line.
- The line `<!-- public headers -->` of `c-api.md` is replaced by the public headers of the C
  layers.
- The word `notest` after a block's language is removed. Tests use it to skip blocks that cannot
  run.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("base", "device", "allocator", "generator", "amp", "collectives", "sanitizer", "nvml")
# Public headers besides `<layer>/<layer>.h`.
MORE_HEADERS = {"device": ("capture", "trace", "operations", "faults")}

_INCLUDE = re.compile(r"^<!-- include: (\S+) # (.+?) -->$", re.M)
_HEADING = re.compile(r"^(#+) (.+)$")


# ---- sections of other files ---------------------------------------------------------------------


def _lines_with_levels(text):
    """Yield each line with its heading level: 0 for other lines, also those in code blocks."""
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
        raise ValueError(f"no section {heading!r}")
    return "\n".join(body).strip(), level


def _below(text, by):
    """Move all headings of a text down by some levels."""
    lines = (("#" * by + line if level else line) for line, level in _lines_with_levels(text))
    return "\n".join(lines)


def _with_links(text):
    """Rewrite the links of an included file, which is in the root folder, for a page of docs/."""
    text = re.sub(r"\]\((?:docs/)([\w-]+\.md)", r"](\1", text)
    text = text.replace("](CHANGELOG.md)", "](changes.md)")
    text = text.replace("](CONTRIBUTING.md)", "](contributing.md)")
    return re.sub(r"(?<!\[)`docs/([\w-]+)\.md`", r"[\1](\1.md)", text)


def include(markdown):
    """Return a page with its include lines replaced."""

    def replaced(found):
        body, level = section((ROOT / found[1]).read_text(), found[2])
        before = [level for _, level in _lines_with_levels(markdown[: found.start()]) if level]
        return _with_links(_below(body, max(before[-1] - level, 0)))

    return _INCLUDE.sub(replaced, markdown)


# ---- the C layers --------------------------------------------------------------------------------


def _comment(text):
    """Return the text of a C comment, without its delimiters."""
    lines = [re.sub(r"^ ?\* ?", "", line) for line in text[2:-2].strip().split("\n")]
    return "\n".join(lines).strip()


def _items(text):
    """Yield the comments and the code of a header, in their order."""
    for found in re.finditer(r"/\*.*?\*/|[^/]+|/", text, re.S):
        yield found[0]


def _escaped(line):
    """Escape the characters that are special in Markdown, except within backquotes."""
    parts = re.split(r"(`[^`]*`)", line)
    parts[::2] = [re.sub(r"([*<>\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def _paragraph(text):
    """Return the text of a comment as Markdown. Indented lines are a list or code."""
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
    """Return a part of a header as Markdown: each comment, then the declaration that follows it."""
    blocks, code = [], []

    def flush():
        if "".join(code).strip():
            blocks.append("```c\n" + "".join(code).strip("\n") + "\n```")
        code.clear()

    is_first_of_line = True
    for item in _items(body):
        if item.startswith("/*") and is_first_of_line and not _is_open("".join(code)):
            flush()
            blocks.append(_paragraph(_comment(item)))
        else:
            code.append(item)
        is_first_of_line = item.endswith("\n") or not item.rsplit("\n", 1)[-1].strip()
    flush()
    return "\n\n".join(blocks)


def _is_open(code):
    """Return whether code ends within braces, or in the middle of a line."""
    return code.count("{") > code.count("}") or code.rstrip(" ").endswith(("\\", ","))


_NOISE = re.compile(
    r"#ifdef __cplusplus\n(?:extern|\}).*?#endif\n|^#(?:ifndef|define) OPENREG_\w+_H\n"
    r"|^#(?:include|pragma) [^\n]*\n|^#endif\s*\Z",
    re.S | re.M,
)


def c_page(header):
    """Return a public header as Markdown: its purpose, then each of its parts."""
    first, rest = re.match(r"(/\*.*?\*/)(.*)", header, re.S).groups()
    name, _, purpose = _comment(first).partition(": ")
    parts = re.split(r"/\* -+ (.+?) -+ \*/\n", _NOISE.sub("", rest))
    page = [f"## {name}", _paragraph(purpose[:1].upper() + purpose[1:]), _declarations(parts[0])]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        page += [f"### {title}", _declarations(body)]
    return "\n\n".join(part for part in page if part)


def _headers():
    """Yield the paths of the public headers."""
    for layer in LAYERS:
        for name in (layer, *MORE_HEADERS.get(layer, ())):
            yield ROOT / layer / f"{name}.h"


def c_reference():
    """Return the public headers of all layers as Markdown."""
    return "\n\n".join(c_page(header.read_text()) for header in _headers())


# ---- what MkDocs calls ---------------------------------------------------------------------------


def on_page_markdown(markdown, page, config, files):
    """Complete a page."""
    if page.file.src_uri == "c-api.md":
        markdown = markdown.replace("<!-- public headers -->", c_reference())
    return re.sub(r"^```(\w+) notest$", r"```\1", include(markdown), flags=re.M)
