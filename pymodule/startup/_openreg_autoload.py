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


def release(torch_version: str) -> str:
    """Return the release of a version of PyTorch: 2.13 for 2.13.0+cpu."""
    return ".".join(torch_version.split(".")[:2])


def check(package: str, torch_version: str) -> None:
    """Raise `OtherPyTorch` if the package in folder `package` does not support `torch_version`.

    The extension works with all versions of the release that it was built for, such as 2.13.0 and
    2.13.1.
    """
    built_for = runpy.run_path(os.path.join(package, "_version.py"))["TORCH_VERSION"]
    if release(torch_version) != (needed := release(built_for)):
        raise OtherPyTorch(
            f"torch_openreg works with PyTorch {needed}, but PyTorch {torch_version} is installed: "
            f'pip install "torch=={needed}.*"'
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
