"""What ``import torch`` calls: loads the package, unless it was built for another PyTorch.

An extension built for another PyTorch may crash, so then nothing of it is loaded. A program that
needs no device must not suffer for a package that happens to be installed beside it: PyTorch would
make the import fail if this raised. So one sentence goes to stderr, and the program goes on without
the devices. Who asks for them, by ``import torch_openreg`` or CUDA mode, gets that sentence as an
error.
"""

import os
import runpy
import sys


class OtherPyTorch(ImportError):
    """The package was built for another PyTorch than the one that is there."""


def check(package: str, torch_version: str) -> None:
    """Raise `OtherPyTorch` if the package in a folder does not work with a version of PyTorch."""
    built_for = runpy.run_path(os.path.join(package, "_version.py"))["TORCH_VERSION"]
    if torch_version.split("+")[0] != built_for:
        raise OtherPyTorch(
            f"torch_openreg works with PyTorch {built_for}, but PyTorch {torch_version} "
            f"is installed: pip install torch=={built_for}"
        )


def autoload() -> None:
    """Entry point of ``torch.backends``: PyTorch is whole."""
    try:
        from torch_openreg import _autoload
    except OtherPyTorch as error:
        print(error, file=sys.stderr)
        return
    _autoload()
