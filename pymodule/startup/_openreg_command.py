"""The program ``openreg``. It imports only what the command needs.

Importing the package imports PyTorch, which takes seconds. ``openreg run`` executes another
program, ``openreg sanitize`` starts one, and ``openreg doctor`` must work when the import fails. So
these commands do not run the package's ``__init__``. Only ``openreg smi`` needs the extension
module.
"""

import sys
import types

import _openreg_autoload


def _install_empty_package() -> None:
    """Make the modules of the package importable without running its ``__init__``."""
    package = types.ModuleType("torch_openreg")
    package.__path__ = [_openreg_autoload.package_folder()]
    sys.modules["torch_openreg"] = package
    if mode := sys.modules.get("_openreg_cuda_mode"):
        mode.stop()


def main() -> int:
    """Run the command that the arguments of the process name; return the exit status."""
    if hasattr(_openreg_autoload, "incomplete"):  # see torch_openreg.pth
        print(_openreg_autoload.incomplete, file=sys.stderr)
        return 1
    try:
        if sys.argv[1:2] != ["smi"]:
            _install_empty_package()
        from torch_openreg.__main__ import main
    except ImportError as error:
        print(_openreg_autoload.sentence(error), file=sys.stderr)
        return 1
    return main()
