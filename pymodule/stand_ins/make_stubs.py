"""Write stubs for symbols of PyTorch's CUDA libraries.

    make_stubs.py LIST... OUTPUT LIBRARY...

A list has a line for each symbol: the library and the mangled name (tools/list-cuda-symbols writes
it). Lists end with .txt: what libtorch_python needs, and what C++ extensions may call. A stub is a
weak symbol: where openreg defines the function, the linker takes that. A stub of a function raises
RuntimeError with the function's name. Type information and tables of virtual functions are data: no
object of these classes exists, so the entries of such a table refuse, too.
"""

import sys
from pathlib import Path

HEADER = """// Stubs of {libraries} for PyTorch {release}. Written by make_stubs.py.
#include "stub.h"

using openreg::refuse;

extern "C" {{
// The table of virtual functions of std::type_info for a class without bases.
extern void *_ZTVN10__cxxabiv117__class_type_infoE[];

struct TypeInfo {{
  void *const *table;
  const char *name;
}};
"""

FUNCTION = """
[[noreturn, gnu::weak, gnu::visibility("default")]] void stub_{index}() __asm__("{name}");
void stub_{index}() {{
  refuse("{name}");
}}
"""

TYPE_INFO = """
[[gnu::weak, gnu::visibility("default")]] extern TypeInfo type_{index} __asm__("{name}");
TypeInfo type_{index} = {{&_ZTVN10__cxxabiv117__class_type_infoE[2], "{kind}"}};
"""

VIRTUAL_FUNCTIONS = """
[[noreturn]] static void virtual_{index}() {{
  refuse("{name}");
}}
[[gnu::weak, gnu::visibility("default")]] extern void *table_{index}[] __asm__("{name}");
void *table_{index}[] = {{
    nullptr, nullptr, {entries}}};
"""

ENTRIES = 64  # more virtual functions than any of the classes has


def stub(index: int, name: str) -> str:
    """Return the source of one stub."""
    if name.startswith("_ZTI"):
        return TYPE_INFO.format(index=index, name=name, kind=name.removeprefix("_ZTI"))
    if name.startswith("_ZTV"):
        entries = ", ".join([f"reinterpret_cast<void *>(virtual_{index})"] * ENTRIES)
        return VIRTUAL_FUNCTIONS.format(index=index, name=name, entries=entries)
    return FUNCTION.format(index=index, name=name)


def main() -> None:
    """Write the file."""
    lists = [Path(argument) for argument in sys.argv[1:] if argument.endswith(".txt")]
    output, *libraries = sys.argv[1 + len(lists) :]
    lines = [line.split() for listed in lists for line in listed.read_text().splitlines()]
    names = list(dict.fromkeys(name for of, name in lines if of in libraries))
    source = HEADER.format(libraries=" and ".join(libraries), release=lists[0].stem)
    source += "".join(stub(index, name) for index, name in enumerate(names))
    Path(output).write_text(source + "}\n")


if __name__ == "__main__":
    main()
