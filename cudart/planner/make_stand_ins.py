"""Write the stand-in of one library of NVIDIA's for the planner.

    make_stand_ins.py LIST SONAME SOURCE MAP

LIST has a line for each symbol that PyTorch needs: the library's SONAME, the name and the symbol
version ("-": none); tools/list-nvidia-symbols writes it. Every function succeeds. A function that
creates an object returns an address that is not null. The functions are weak symbols: where a C
file of this folder answers more, the linker takes that.
"""

import re
import sys
from pathlib import Path

HEADER = """/* The planner's {soname}. Written by make_stand_ins.py. */
#include <stddef.h>

static char object[1 << 16] __attribute__((unused)); /* what every handle points to */
"""

SUCCEEDS = """
__attribute__((weak)) int {name}(void);
int {name}(void) {{
  return 0;
}}
"""

CREATES = """
__attribute__((weak)) int {name}(void **created);
int {name}(void **created) {{
  *created = object;
  return 0;
}}
"""

CREATE = re.compile(r"(cublas|cudnn|cusolverDn|cusparse)\w*[Cc]reate\w*")


def main() -> None:
    """Write the source and the version script."""
    listed, soname, source, version_script = sys.argv[1:]
    lines = [line.split() for line in Path(listed).read_text().splitlines()]
    symbols = [(name, version) for of, name, version in lines if of == soname]
    text = HEADER.format(soname=soname)
    for name, _ in symbols:
        text += (CREATES if CREATE.fullmatch(name) else SUCCEEDS).format(name=name)
    Path(source).write_text(text)
    nodes: dict[str, list[str]] = {}
    for name, version in symbols:
        nodes.setdefault(version, []).append(name)
    plain = nodes.pop("-", [])
    if not nodes:  # no versions
        Path(version_script).write_text(
            f"{{ global: {'; '.join(plain)}; local: *; }};\n" if plain else "{ local: *; };\n"
        )
        return
    first, *others = nodes
    script = f"{first} {{ global: {'; '.join(nodes[first] + plain)}; local: *; }};\n"
    for version in others:
        script += f"{version} {{ global: {'; '.join(nodes[version])}; }};\n"
    Path(version_script).write_text(script)


if __name__ == "__main__":
    main()
