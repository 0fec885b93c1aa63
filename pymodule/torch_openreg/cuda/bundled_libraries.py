"""Stand-ins for NVIDIA's libraries that wheels bring under names of their own.

A wheel such as torchvision's has a folder ``torchvision.libs`` with copies of NVIDIA's libraries.
Their names contain eight digits of a hash: ``libcudart.0123abcd.so.13``. The loader maps such a
copy unless a library with that SONAME is loaded. openreg has libraries whose SONAME has zeros in
these places. This module loads copies of them with a wheel's digits.
"""

import ctypes
import itertools
import os
import re
from pathlib import Path

__all__ = ["load_stand_ins"]

_BUNDLED = re.compile(r"lib(cudart|nvjpeg)\.([0-9a-f]{8})\.so\.(\d+)")
_ZEROS = b".00000000.so."
_loads = itertools.count()


def load_stand_ins(folder: str | os.PathLike[str]) -> list[str]:
    """Load a stand-in for each of NVIDIA's libraries in a wheel's folder of libraries.

    Call it before the wheel's extensions are loaded, and after openreg's libcudart is. It is cheap
    for a folder that does not exist or has none.

    Parameters
    ----------
    folder
        The folder, such as ``site-packages/torchvision.libs``.

    Returns
    -------
    list[str]
        The SONAMEs that are loaded now.
    """
    loaded = []
    for path in sorted(Path(folder).glob("lib*.so.*")):
        if (found := _BUNDLED.fullmatch(path.name)) and _load(*found.groups()):
            loaded.append(path.name)
    return loaded


def _load(library: str, digits: str, major: str) -> bool:
    """Load a copy of a stand-in under a SONAME with these digits, if openreg has the stand-in."""
    stem = f"openreg_bundled_cudart_{major}" if library == "cudart" else f"openreg_{library}"
    template = Path(__file__).parents[1] / "lib" / f"{stem}.so"
    soname = f"lib{library}".encode() + _ZEROS + major.encode() + b"\0"
    contents = template.read_bytes() if template.exists() else b""
    if soname not in contents:
        return False
    copy = os.memfd_create(f"openreg-{library}")
    try:
        with open(copy, "wb", closefd=False) as file:
            named = soname.replace(_ZEROS, f".{digits}.so.".encode())
            file.write(contents.replace(soname, named))
        # The loader remembers paths, and descriptors have few numbers: each load needs a new path.
        ctypes.CDLL(f"/proc/self/fd/{'./' * next(_loads)}{copy}")
    finally:
        os.close(copy)
    return True
