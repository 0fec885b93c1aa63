"""Prints what the build must know about the PyTorch of this Python, without importing it.

PyTorch's CUDA build cannot be imported where NVIDIA's packages are missing. So the facts come from
its files. Each line is one fact:

- the release, without the label of the build
- 1 if it was compiled with the new ABI of strings (_GLIBCXX_USE_CXX11_ABI), otherwise 0
- the folder of the headers
- the folder of the libraries
- True if it has Gloo, otherwise False
- the version of CUDA, or None for a build without CUDA
"""

import importlib.util
import mmap
import runpy
import sys
from pathlib import Path

# std::string as a part of a symbol's name, with the new ABI.
_NEW_STRING = b"NSt7__cxx1112basic_string"
_GLOO = b"_ZTVN4c10d16ProcessGroupGlooE"  # the vtable of c10d::ProcessGroupGloo


def contains(library: Path, symbol: bytes) -> bool:
    """Return whether a library names a symbol."""
    with (
        open(library, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.find(symbol) >= 0


def main() -> None:
    """Print the facts; exit with a sentence if there is no usable PyTorch."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        sys.exit(f"{sys.executable} has no PyTorch")
    root = Path(found.origin).parent
    try:
        version = runpy.run_path(str(root / "version.py"))
        facts = (
            version["__version__"].split("+")[0],
            int(contains(root / "lib" / "libc10.so", _NEW_STRING)),
            root / "include",
            root / "lib",
            contains(root / "lib" / "libtorch_cpu.so", _GLOO),
            version["cuda"],
        )
    except OSError as error:
        sys.exit(f"PyTorch in {root} is incomplete: {error.filename}: {error.strerror}")
    print(*facts, sep="\n")


if __name__ == "__main__":
    main()
