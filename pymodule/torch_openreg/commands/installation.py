"""The installed PyTorch, as ``openreg doctor`` shows it: its build, and what it needs of NVIDIA.

PyTorch's CUDA build requires NVIDIA's packages. In CUDA mode openreg loads libraries of its own in
their place (stand-ins), so the packages may be absent, and a GPU of the machine is hidden.

This module does not import PyTorch. Its functions do not fail.
"""

import contextlib
import importlib.metadata
import re
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent.parent
_DRIVER = Path("/proc/driver/nvidia/gpus")

# The names of NVIDIA's libraries, and of PyTorch's libraries that use them.
_OF_NVIDIA = re.compile(
    r"lib(cuda|cudart|cublas\w*|cudnn\w*|cufft\w*|curand|cusolver\w*|cusparse\w*|nccl|nvshmem\w*|"
    r"nvrtc\w*|nvJitLink|cupti|cufile\w*|nvToolsExt|nvidia-ml)[-.]"
)
# The package's libraries that are not stand-ins.
_OWN = ("_C.", "libopenreg", "libnvidia-ml")
_OF_PYTORCH = re.compile(r"lib(torch_cuda\w*|c10_cuda|torch_nvshmem)\.so")


def build_of(version: dict[str, Any]) -> str | None:
    """Return the build of a PyTorch for people, such as ``CUDA 13.0``.

    Parameters
    ----------
    version
        The names in its ``version.py``.
    """
    if "__version__" not in version:
        return None
    for name, shown in (("cuda", "CUDA"), ("hip", "ROCm"), ("xpu", "XPU")):
        if version.get(name):
            return f"{shown} {version[name]}"
    return "CPU"


def missing_packages() -> list[str]:
    """Return the packages of NVIDIA that the installed PyTorch requires and that are absent."""
    missing = []
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for requirement in importlib.metadata.requires("torch") or ():
            found = re.match(r"(nvidia-|cuda-)[\w-]*", requirement)
            if found is None or re.search("extra *==", requirement):
                continue
            try:
                importlib.metadata.distribution(found[0])
            except importlib.metadata.PackageNotFoundError:
                missing.append(found[0])
    return missing


def gpus() -> list[str]:
    """Return the names of the machine's GPUs, which NVIDIA's driver lists."""
    names = []
    with contextlib.suppress(OSError):
        for folder in sorted(_DRIVER.iterdir()):
            text = (folder / "information").read_text(errors="replace")
            model = re.search(r"^Model:\s*(.+)$", text, re.M)
            names.append(model[1] if model else folder.name)
    return names


def classify(mapped: list[str]) -> dict[str, list[str]]:
    """Sort the libraries that a process has mapped.

    Parameters
    ----------
    mapped
        The paths of all libraries.

    Returns
    -------
    dict
        ``stand_ins``: of openreg, in place of NVIDIA's and PyTorch's. ``nvidia``: NVIDIA's.
        ``pytorch``: PyTorch's that use NVIDIA's. The values are file names.
    """
    found: dict[str, list[str]] = {"stand_ins": [], "nvidia": [], "pytorch": []}
    for path in map(Path, mapped):
        if _PACKAGE in path.parents:
            if not path.name.startswith(_OWN):
                found["stand_ins"].append(path.name)
        elif _OF_PYTORCH.match(path.name):
            found["pytorch"].append(path.name)
        elif _OF_NVIDIA.match(path.name):
            found["nvidia"].append(path.name)
    return {kind: sorted(set(names)) for kind, names in found.items()}
