"""The entry point that ``import torch`` calls. It loads the package and never raises.

openreg may be installed beside programs that do not use it, so no failure of openreg may stop
``import torch``. `autoload` reports a failure in one sentence on stderr, and the program continues
without the devices. ``import torch_openreg`` raises the same failure as an exception.

The version is checked first: an extension that was built for another release of PyTorch may crash
when it is loaded.

PYTEST_DONT_REWRITE: CUDA mode imports this module before pytest could rewrite its assertions.
"""

import os
import runpy
import sys


class OtherPyTorch(ImportError):
    """The package was built for another release of PyTorch than the installed one."""


# The first failure that was reported, or None.
failure: Exception | None = None


def check(package: str, torch_version: str) -> None:
    """Raise `OtherPyTorch` if the package in folder `package` does not support `torch_version`."""
    built_for = runpy.run_path(os.path.join(package, "_version.py"))["TORCH_VERSION"]
    if torch_version.split("+")[0] != built_for:
        raise OtherPyTorch(
            f"torch_openreg works with PyTorch {built_for}, but PyTorch {torch_version} "
            f"is installed: pip install torch=={built_for}"
        )


def report(error: Exception) -> None:
    """Print one sentence about `error` on stderr, once a process, and remember it in `failure`."""
    global failure
    if failure is not None:
        return
    failure = error
    if isinstance(error, OtherPyTorch):
        print(error, file=sys.stderr)
        return
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = lines[0].removeprefix("openreg: ").rstrip(".")
    print(
        f"openreg: loading failed: {reason}. Run `openreg doctor` for a remedy.",
        file=sys.stderr,
    )


def autoload() -> None:
    """Load openreg at the end of ``import torch``. Called by PyTorch (``torch.backends``)."""
    if failure is not None:  # CUDA mode failed earlier in this import
        return
    try:
        from torch_openreg import _autoload

        _autoload()
    except Exception as error:
        report(error)
