"""Which part of the conformance run continuous integration looks at, and in which mode.

Both follow from a hash of the sources of all layers. Each change of them looks at another part, and
the same sources always give the same part and mode, however fast the machine is.

``python -m conformance.part`` prints the mode, a value for OPENREG_DEVICE_TYPE, which must be set
before Python imports openreg.
"""

import hashlib
import pathlib

PARTS = 8
MODES = ("openreg", "cuda")
ROOT = pathlib.Path(__file__).parents[2]
LAYERS = ("base", "device", "allocator", "generator", "amp", "pymodule")
SUFFIXES = (".c", ".h", ".cpp", ".py", ".build")


def hash_sources() -> int:
    """Return a number that changes with every change of a layer."""
    digest = hashlib.sha256()
    sources = [path for layer in LAYERS for path in (ROOT / layer).rglob("*")]
    for path in sorted(path for path in sources if path.suffix in SUFFIXES):
        digest.update(path.read_bytes())
    return int(digest.hexdigest(), 16)


def choose() -> tuple[str, str]:
    """Return the mode, and the part in the form of ``--part``: ``3/8``."""
    rest, mode = divmod(hash_sources(), len(MODES))
    return MODES[mode], f"{rest % PARTS + 1}/{PARTS}"


if __name__ == "__main__":
    print(choose()[0])
