"""The program ``openreg``, which loads no more than its command needs.

To import the package is to import PyTorch, which takes seconds. ``openreg run`` becomes another
program at once, ``openreg sanitize`` starts one, ``openreg doctor`` tells why an import fails: they
are entered without running the package's ``__init__``. ``openreg smi`` alone needs the extension.
"""

import importlib.util
import sys
import types

import _openreg_autoload


def _stand_in() -> None:
    """Let modules of the package be imported without it."""
    found = importlib.util.find_spec("torch_openreg")
    assert found is not None
    package = types.ModuleType("torch_openreg")
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules["torch_openreg"] = package


def main() -> int:
    """Do what the words behind the program's name say; returns the exit status."""
    if sys.argv[1:2] != ["smi"]:
        _stand_in()
    try:
        from torch_openreg.__main__ import main
    except _openreg_autoload.OtherPyTorch as error:
        print(error, file=sys.stderr)
        return 1
    return main()
