"""Reads the facts about this machine that ``openreg doctor`` shows.

This module does not import PyTorch. Its functions do not fail: what cannot be read is None.
"""

import contextlib
import importlib.util
import os
import platform
import re
import resource
import runpy
from pathlib import Path
from typing import Any

from . import installation

_PACKAGE = Path(__file__).resolve().parent.parent
_SHARED_MEMORY = "/dev/shm"

# (name in the report, resource limit)
_LIMITS = (
    ("address_space_bytes", resource.RLIMIT_AS),
    ("file_bytes", resource.RLIMIT_FSIZE),
    ("locked_memory_bytes", resource.RLIMIT_MEMLOCK),
    ("open_files", resource.RLIMIT_NOFILE),
    ("processes", resource.RLIMIT_NPROC),
)


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return None


def _version_file(folder: Path, file: str) -> dict[str, Any]:
    with contextlib.suppress(Exception):  # importing a broken package reports the error
        return runpy.run_path(str(folder / file))
    return {}


def versions() -> dict[str, str | None]:
    """Return the versions of openreg, of the supported and the installed PyTorch, and of Python."""
    ours = _version_file(_PACKAGE, "_version.py")
    with contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec("torch")
        if found is not None and found.submodule_search_locations:
            folder = Path(found.submodule_search_locations[0])
            return _versions(
                ours, {"__version__": "unknown", **_version_file(folder, "version.py")}
            )
    return _versions(ours, {})


def _versions(ours: dict[str, Any], torch: dict[str, Any]) -> dict[str, str | None]:
    return {
        "openreg": ours.get("__version__"),
        "supported_torch": ours.get("TORCH_VERSION"),
        "torch": torch.get("__version__"),
        "torch_build": installation.build_of(torch),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
    }


def limits() -> dict[str, int | None]:
    """Return the soft limits of this process, which child processes inherit; None: no limit."""
    return {
        name: None if (soft := resource.getrlimit(limit)[0]) == resource.RLIM_INFINITY else soft
        for name, limit in _LIMITS
    }


def shared_memory() -> dict[str, Any] | None:
    """Return the size of /dev/shm, its free bytes, and whether this user can write to it."""
    try:
        found = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return None
    return {
        "total_bytes": found.f_blocks * found.f_frsize,
        "free_bytes": found.f_bavail * found.f_frsize,
        "is_writable": os.access(_SHARED_MEMORY, os.W_OK | os.X_OK),
    }


def memory() -> dict[str, int | None]:
    """Return the memory of the machine, and how much is available now, in bytes."""
    kibibytes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read("/proc/meminfo") or "", re.M))

    def of(name: str) -> int | None:
        return int(kibibytes[name]) << 10 if name in kibibytes else None

    return {"total_bytes": of("MemTotal"), "available_bytes": of("MemAvailable")}


def cores() -> dict[str, int]:
    """Return the number of cores, of cores that this process may use, and of NUMA nodes."""
    nodes = list(Path("/sys/devices/system/node").glob("node[0-9]*"))
    return {
        "online": os.cpu_count() or 1,
        "allowed": len(os.sched_getaffinity(0)),
        "numa_nodes": max(len(nodes), 1),
    }


# ---- control groups ------------------------------------------------------------------------------


def _smallest(values: list[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _number(text: str | None) -> float | None:
    """Return the number in a file; None for "max" and for the huge number of older kernels."""
    word = (text or "").strip()
    return float(word) if re.fullmatch(r"\d+", word) and int(word) < 1 << 62 else None


def _quota(text: str | None) -> float | None:
    """Return the number of cores for the text "quota period"."""
    found = re.fullmatch(r"(\d+) (\d+)\s*", text or "")
    return int(found[1]) / int(found[2]) if found else None


def _folders(root: Path, path: str) -> list[Path]:
    """Return the folders of a control group and its parents; in a container only the root."""
    inner = root / path.strip("/")
    folders = [inner, *inner.parents] if inner.is_dir() else [root]
    return [folder for folder in folders if folder == root or root in folder.parents]


def control_group(root: Path = Path("/sys/fs/cgroup")) -> dict[str, float | None]:
    """Return the limits of the control groups of this process, version 1 or 2.

    Returns
    -------
    dict
        ``memory_bytes``, ``cpus`` (a number of cores) and ``processes``; None for no limit.
    """
    paths = {}
    for line in (_read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        for controller in controllers.split(","):
            paths[controller] = path

    def limit(of_two: str, controller: str, of_one: str) -> float | None:
        found = [_number(_read(folder / of_two)) for folder in _folders(root, paths.get("", "/"))]
        for folder in _folders(root / controller, paths.get(controller, "/")):
            found.append(_number(_read(folder / of_one)))
        return _smallest(found)

    cpus = [_quota(_read(folder / "cpu.max")) for folder in _folders(root, paths.get("", "/"))]
    for folder in _folders(root / "cpu", paths.get("cpu", "/")):
        quota, period = (
            _number(_read(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period")
        )
        cpus.append(quota / period if quota and period else None)
    return {
        "memory_bytes": limit("memory.max", "memory", "memory.limit_in_bytes"),
        "cpus": _smallest(cpus),
        "processes": limit("pids.max", "pids", "pids.max"),
    }
