"""What ``openreg doctor`` reads of this machine: files of the kernel and limits of the process.

Nothing here imports PyTorch, and nothing fails: what cannot be read is None.
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

_PACKAGE = Path(__file__).resolve().parent.parent
_SHARED_MEMORY = "/dev/shm"

# (name in the report, limit of the system)
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
    with contextlib.suppress(Exception):  # a package that is broken says so when it is imported
        return runpy.run_path(str(folder / file))
    return {}


def versions() -> dict[str, str | None]:
    """Versions of openreg, of the PyTorch it is for, of the one that is there, and of Python."""
    ours = _version_file(_PACKAGE, "_version.py")
    with contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec("torch")
        if found is not None and found.submodule_search_locations:
            folder = Path(found.submodule_search_locations[0])
            torch = _version_file(folder, "version.py").get("__version__", "unknown")
            return _versions(ours, str(torch))
    return _versions(ours, None)


def _versions(ours: dict[str, Any], torch: str | None) -> dict[str, str | None]:
    return {
        "openreg": ours.get("__version__"),
        "supported_torch": ours.get("TORCH_VERSION"),
        "torch": torch,
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
    }


def limits() -> dict[str, int | None]:
    """The soft limits of this process, which what it starts inherits; None for no limit."""
    return {
        name: None if (soft := resource.getrlimit(limit)[0]) == resource.RLIM_INFINITY else soft
        for name, limit in _LIMITS
    }


def shared_memory() -> dict[str, Any] | None:
    """Size and free bytes of /dev/shm, and whether this user may write there; None without it."""
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
    """Memory of the machine, and what of it is available now, in bytes."""
    kibibytes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read("/proc/meminfo") or "", re.M))

    def of(name: str) -> int | None:
        return int(kibibytes[name]) << 10 if name in kibibytes else None

    return {"total_bytes": of("MemTotal"), "available_bytes": of("MemAvailable")}


def cores() -> dict[str, int]:
    """How many cores there are, how many this process may use, and NUMA nodes."""
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
    """A number of a file; None for none, "max", and what older kernels write for no limit."""
    word = (text or "").strip()
    return float(word) if re.fullmatch(r"\d+", word) and int(word) < 1 << 62 else None


def _quota(text: str | None) -> float | None:
    """Cores of "quota period"."""
    found = re.fullmatch(r"(\d+) (\d+)\s*", text or "")
    return int(found[1]) / int(found[2]) if found else None


def _folders(root: Path, path: str) -> list[Path]:
    """A control group's folder and those above it: each may limit. In a container only the root."""
    inner = root / path.strip("/")
    folders = [inner, *inner.parents] if inner.is_dir() else [root]
    return [folder for folder in folders if folder == root or root in folder.parents]


def control_group(root: Path = Path("/sys/fs/cgroup")) -> dict[str, float | None]:
    """Limits of the control groups that this process is in, of version 2 or 1.

    Returns
    -------
    dict
        ``memory_bytes``, ``cpus`` (cores' worth of time) and ``processes``; None for no limit.
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
