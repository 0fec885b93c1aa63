"""The entry point that ``import torch`` calls. It loads the package and never raises.

openreg may be installed beside programs that do not use it, so no failure of openreg may stop
``import torch``. `autoload` reports a failure in one sentence on stderr, and the program continues
without the devices. ``import torch_openreg`` raises the same failure as an exception.

If a module beside the package is missing, ``torch_openreg.pth`` supplies another `autoload`.

The version is checked first: an extension that was built for another release of PyTorch may crash
when it is loaded.

PYTEST_DONT_REWRITE: CUDA mode imports this module before pytest could rewrite its assertions.
"""

import contextlib
import os
import runpy
import sys

from _openreg_library import extension, folder_of, torch_version


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


def package_folder() -> str:
    """Return the folder of the package, or raise ImportError if it or its first file is missing."""
    folder = folder_of("torch_openreg")
    if folder is None or not os.path.isfile(os.path.join(folder, "__init__.py")):
        raise ImportError(
            f"openreg: {folder or 'the folder torch_openreg'} is incomplete or missing: reinstall "
            "torch_openreg, or remove the rest with `pip uninstall torch_openreg`"
        )
    return folder


def _hidden_pytorch(package: str) -> str | None:
    """Return which PyTorch hides one that the package supports, and the remedy, or None."""
    file = os.path.join("torch", "version.py")
    found = [folder for folder in sys.path if os.path.isfile(os.path.join(folder, file))]
    for folder in found[1:]:
        version = torch_version(os.path.join(folder, "torch"))
        with contextlib.suppress(OtherPyTorch):
            check(package, version)
            return (
                f"in {found[0]}, which hides PyTorch {version} in {folder}: "
                f"remove {found[0]} from PYTHONPATH"
            )
    return None


def sentence(error: Exception) -> str:
    """Return a sentence on one line that says why openreg was not loaded, and the remedy."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = lines[0].removeprefix("openreg: ").rstrip(".")
    if isinstance(error, OtherPyTorch):
        with contextlib.suppress(Exception):  # a broken PyTorch elsewhere
            if hidden := _hidden_pytorch(folder_of("torch_openreg") or ""):
                return f"{reason.partition(': ')[0]} {hidden}"
        return reason
    return f"openreg: loading failed: {reason}. Run `openreg doctor` for a remedy."


def problem_with_files() -> str | None:
    """Return what is wrong with the installed files, or None. Loads no library."""
    torch = folder_of("torch")
    if torch is None:
        return f"openreg: {sys.executable} has no PyTorch: pip install torch"
    try:
        package = package_folder()
        check(package, torch_version(torch))
        extension(package)
    except Exception as error:
        return sentence(error)
    return None


def report(error: Exception) -> None:
    """Print one sentence about `error` on stderr, once a process, and remember it in `failure`."""
    global failure
    if failure is not None:
        return
    failure = error
    if sys.stderr is not None:  # None: closed when the process started
        with contextlib.suppress(OSError, ValueError):  # a full disk, or closed by the program
            print(sentence(error), file=sys.stderr, flush=True)


def autoload() -> None:
    """Load openreg at the end of ``import torch``. Called by PyTorch (``torch.backends``)."""
    if failure is not None:  # CUDA mode failed earlier in this import
        return
    try:
        package_folder()
        from torch_openreg import _autoload

        _autoload()
    except Exception as error:
        report(error)
