"""NVML for programs that are not edited: where its library and ``nvidia-smi`` lie.

``libnvidia-ml.so.1`` beside this file has NVML's interface and tells of the simulated devices.
Programs, pynvml and ``torch.cuda`` among them, find it when its folder was in LD_LIBRARY_PATH as
they were started, and ``nvidia-smi`` in PATH. A launcher sets both::

    environment["LD_LIBRARY_PATH"] = f"{library_folder()}:{...}"
    environment["PATH"] = f"{programs_folder()}:{...}"

Nothing in this folder imports PyTorch, for ``nvidia-smi`` is asked by scripts and in loops.
"""

from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"


def library_folder() -> Path:
    """Return the folder in which ``libnvidia-ml.so.1`` lies."""
    return Path(__file__).resolve().parent


def programs_folder() -> Path:
    """Return the folder in which ``nvidia-smi`` lies, and nothing else."""
    return library_folder() / "bin"
