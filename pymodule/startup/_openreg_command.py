"""The program ``openreg``. It imports only what the command needs.

Importing the package imports PyTorch, which takes seconds. ``openreg run`` executes another
program, ``openreg sanitize`` starts one, and ``openreg doctor`` must work when the import fails. So
these commands do not run the package's ``__init__``. Only ``openreg smi`` needs the extension
module.
"""

import importlib.util
import sys
import types

import _openreg_autoload


def _install_empty_package() -> None:
    """Make the modules of the package importable without running its ``__init__``."""
    found = importlib.util.find_spec("torch_openreg")
    assert found is not None
    package = types.ModuleType("torch_openreg")
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules["torch_openreg"] = package
    if mode := sys.modules.get("_openreg_cuda_mode"):
        mode.stop()


def main() -> int:
    """Run the command that the arguments of the process name; return the exit status."""
    if sys.argv[1:2] != ["smi"]:
        _install_empty_package()
    try:
        from torch_openreg.__main__ import main
    except _openreg_autoload.OtherPyTorch as error:
        print(error, file=sys.stderr)
        return 1
    return main()
