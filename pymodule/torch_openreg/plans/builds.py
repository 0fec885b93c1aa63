"""Where the planner's PyTorch is: a CUDA build of the release that runs here.

The environment's own PyTorch serves if it is a CUDA build. Otherwise ``openreg plans install``
unpacks one below the user's cache folder, without NVIDIA's packages.

This module does not import PyTorch.
"""

import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

# The major version of CUDA whose libraries have stand-ins.
CUDA_MAJOR = "13"


class Build(NamedTuple):
    """A CUDA build of PyTorch: the folder that contains the package `torch`, and its versions."""

    folder: Path
    release: str
    cuda: str


class NoBuild(Exception):
    """There is no CUDA build that the planner could run. The argument is a sentence."""


def _read(folder: Path) -> tuple[str, str | None]:
    """Return the release and the CUDA version of the PyTorch in a folder."""
    facts = runpy.run_path(str(folder / "torch" / "version.py"))
    return str(facts["__version__"]).partition("+")[0], facts.get("cuda")


def own_folder() -> Path:
    """Return the folder that contains this environment's package `torch`."""
    import _openreg_library

    found = _openreg_library.folder_of("torch")
    if found is None:
        raise NoBuild("openreg: PyTorch is not installed")
    return Path(found).parent


def cache_folder(release: str) -> Path:
    """Return the folder of an installed build of a release, for this version of Python."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return Path(base) / "openreg" / "plans" / f"torch-{release}-{python}"


def release() -> str:
    """Return the release of this environment's PyTorch, such as 2.13.0."""
    return _read(own_folder())[0]


def find() -> Build:
    """Return the build that the planner runs.

    Raises
    ------
    NoBuild
        If there is none.
    """
    own = own_folder()
    wanted, cuda = _read(own)
    for folder in (own, cache_folder(wanted)):
        if not (folder / "torch" / "lib" / "libtorch_cuda.so").exists():
            continue
        found, cuda = _read(folder)
        if found != wanted:
            raise NoBuild(
                f"openreg: the build in {folder} is PyTorch {found}, and {wanted} runs here: "
                "run `openreg plans install`"
            )
        if cuda is None or cuda.partition(".")[0] != CUDA_MAJOR:
            raise NoBuild(
                f"openreg: the build in {folder} is for CUDA {cuda}: "
                f"the planner supports CUDA {CUDA_MAJOR}"
            )
        return Build(folder, found, cuda)
    raise NoBuild(
        f"openreg: there is no CUDA build of PyTorch {wanted} for memory plans: "
        "run `openreg plans install`"
    )


def install(source: str | None = None) -> Build:
    """Unpack a CUDA build below the user's cache folder.

    Parameters
    ----------
    source
        A wheel of PyTorch. By default pip downloads the release that runs here.

    Raises
    ------
    NoBuild
        If that fails. Nothing is installed then.
    """
    wanted = release()
    target = cache_folder(wanted)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="install-", dir=target.parent) as temporary:
        fresh = Path(temporary) / "build"
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile"]
        command += ["--disable-pip-version-check", "--target", str(fresh)]
        command.append(source or f"torch==={wanted}")
        if subprocess.run(command, check=False).returncode != 0:
            raise NoBuild("openreg: pip could not install the build: see its messages above")
        try:
            found, cuda = _read(fresh)
        except (OSError, KeyError, SyntaxError):
            raise NoBuild(f"openreg: {source} is not a wheel of PyTorch") from None
        if found != wanted or cuda is None or cuda.partition(".")[0] != CUDA_MAJOR:
            raise NoBuild(
                f"openreg: {source or 'the index'} has PyTorch {found} for CUDA {cuda}: "
                f"expected {wanted} for CUDA {CUDA_MAJOR}"
            )
        for unused in ("include", "share", "test"):
            shutil.rmtree(fresh / "torch" / unused, ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    return Build(target, found, cuda)
