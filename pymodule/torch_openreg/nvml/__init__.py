"""NVML for unmodified programs: the folders of the library and of ``nvidia-smi``.

``libnvidia-ml.so.1`` beside this file implements NVML for the simulated devices. Programs such as
pynvml and ``torch.cuda`` find it if its folder is in LD_LIBRARY_PATH when they start, and find
``nvidia-smi`` in PATH. A launcher sets both::

    environment["LD_LIBRARY_PATH"] = f"{library_folder()}:{...}"
    environment["PATH"] = f"{programs_folder()}:{...}"

This package does not import PyTorch, because scripts call ``nvidia-smi`` often and in loops.
"""

from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"


def library_folder() -> Path:
    """Return the folder of ``libnvidia-ml.so.1``."""
    return Path(__file__).resolve().parent


def programs_folder() -> Path:
    """Return the folder of ``nvidia-smi``, which contains nothing else."""
    return library_folder() / "bin"
