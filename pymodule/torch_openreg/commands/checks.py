"""The checks of ``openreg doctor``: one function for each thing that may not work.

The result of a check is ``ok``, ``warning`` if a part of openreg does not work or is slow, or
``problem`` if programs fail. Warnings and problems come with a remedy. This module does not import
PyTorch: another process does (`probe`), and may crash.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _openreg_autoload

from .. import variables
from ..plans import builds
from . import machine, run
from .executable import CannotRunError
from .preflight import require_devices

OK, WARNING, PROBLEM = "ok", "warning", "problem"

_TIMEOUT_SECONDS = 120
_MIB, _GIB = 1 << 20, 1 << 30
# The size of a group's control file: device/device.h.
_CONTROL_FILE_BYTES = 2 * _MIB + _MIB // 8
# Docker's default of 64 MB is too small for the workers of a DataLoader with large batches.
_SMALL_SHARED_MEMORY = 256 * _MIB
_FEW_FILES = 256
_FEW_PROCESSES = 128

# Remedies for errors that do not name one: (a part of the error message, remedy).
_REMEDIES = (
    ("bytes of addresses", "run `ulimit -v unlimited`, or set a smaller OPENREG_DEVICE_MEMORY"),
    (
        "set the size of the memory file",
        "run `ulimit -f unlimited`, or set a smaller OPENREG_DEVICE_MEMORY",
    ),
    ("Too many open files", "run `ulimit -n 4096`, or use fewer devices"),
    ("Permission denied", "let this user write to /dev/shm (mode 1777)"),
    (
        "No space left on device",
        "delete files in /dev/shm, or make it larger: `docker run --shm-size=1g`",
    ),
    ("Resource temporarily unavailable", "run `ulimit -u unlimited`, or end other processes"),
    ("Cannot allocate memory", "end other programs, or give this one more memory"),
    ("/proc is not mounted", "mount /proc"),
    ("libhwloc", "run `apt-get install libhwloc15`, or install openreg's wheel, which has hwloc"),
)


@dataclass(frozen=True)
class Check:
    """The result of a check: its state, a sentence, and what to do about it."""

    name: str
    state: str
    text: str
    remedy: str | None = None


def size(count: float) -> str:
    """Return a number of bytes as text with a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


# ---- without PyTorch -----------------------------------------------------------------------------


def check_version(found: dict[str, str | None]) -> Check:
    """Check that PyTorch is the release that the extension was built for."""
    name, installed = "PyTorch", found["torch"]
    wanted = _openreg_autoload.release(found["supported_torch"] or "unknown")
    remedy = f'pip install "torch=={wanted}.*"'
    if installed is None:
        return Check(name, PROBLEM, f"not installed for {sys.executable}", remedy)
    if _openreg_autoload.release(installed) != wanted:
        text = f"openreg needs PyTorch {wanted}, but {installed} is installed"
        return Check(name, PROBLEM, text, remedy)
    return Check(name, OK, f"{installed} is the release that openreg was built for")


def check_variables(environment: dict[str, str]) -> list[Check]:
    """Check for unknown variables, and for one that prevents openreg from loading."""
    checks = []
    for name, similar in variables.find_unknown(environment).items():
        hint = f" (did you mean {similar}?)" if similar else ""
        remedy = "unset it; docs/configuration.md lists all variables"
        checks.append(Check("variables", WARNING, f"unknown variable {name}{hint}", remedy))
    if environment.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        text = "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps `import torch` from loading openreg"
        checks.append(Check("variables", PROBLEM, text, "unset it"))
    return checks


def check_shared_memory(found: dict[str, Any] | None) -> Check:
    """Check that /dev/shm has room for the memory that processes share."""
    name = "/dev/shm"
    if found is None:
        return Check(name, PROBLEM, "does not exist", "mount a tmpfs at /dev/shm")
    if not found["is_writable"]:
        return Check(name, PROBLEM, "this user cannot write to it", "run `chmod 1777 /dev/shm`")
    free, total = found["free_bytes"], found["total_bytes"]
    remedy = (
        "delete files in it, or make it larger: `docker run --shm-size=1g`, "
        "`mount -o remount,size=1g`"
    )
    if free < _CONTROL_FILE_BYTES:
        text = f"{size(free)} free, but a device group needs {size(_CONTROL_FILE_BYTES)}"
        return Check(name, PROBLEM, text, remedy)
    if total < _SMALL_SHARED_MEMORY:
        text = (
            f"{size(total)} is enough for the devices, but little for the workers of a DataLoader"
        )
        return Check(name, WARNING, text, remedy)
    return Check(name, OK, f"{size(free)} free")


def check_limits(found: dict[str, int | None], group: dict[str, float | None]) -> list[Check]:
    """Check that programs may open enough files and start enough threads."""
    checks = []
    files, processes = found["open_files"], found["processes"]
    if files is not None and files < _FEW_FILES:
        text = f"the limit of {files} is low for many devices or ranks"
        checks.append(Check("open files", WARNING, text, "run `ulimit -n 4096`"))
    fewest = min((n for n in (processes, group["processes"]) if n is not None), default=None)
    if fewest is not None and fewest < _FEW_PROCESSES:
        text = f"the limit of {fewest:.0f} is low: every stream and every rank has threads"
        remedy = "run `ulimit -u unlimited` or `docker run --pids-limit=-1`"
        checks.append(Check("processes", WARNING, text, remedy))
    return checks


def check_cores(found: dict[str, int], group: dict[str, float | None]) -> Check:
    """Check that PyTorch does not start more threads than its share of the cores."""
    cpus, allowed = group["cpus"], found["allowed"]
    if cpus is not None and cpus < allowed:
        text = f"PyTorch sees {allowed} cores, but the control group allows the time of {cpus:g}"
        return Check("cores", WARNING, text, f"export OMP_NUM_THREADS={max(1, int(cpus))}")
    return Check("cores", OK, f"{allowed} available")


def check_exchange() -> Check:
    """Check that a process can open memory of another process of this user, as ranks do."""
    name = "exchange between processes"
    source, sink = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.read(source, 1)
        os._exit(0)
    try:
        os.close(os.open(f"/proc/{child}/fd/{source}", os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        text = f"cannot open /proc/<pid>/fd of another process: {error.strerror}"
        remedy = "mount /proc without hidepid, and run the processes as one user"
        return Check(name, PROBLEM, text, remedy)
    finally:
        os.write(sink, b".")
        os.close(sink)
        os.close(source)
        os.waitpid(child, 0)
    return Check(name, OK, "a process can open the memory of another process")


def check_compiler(environment: dict[str, str]) -> Check:
    """Check that the C++ compiler of `torch.compile` exists."""
    name = "compiler"
    wanted = (shlex.split(environment.get("CXX") or "") or ["g++"])[0]
    found = shutil.which(wanted, path=environment.get("PATH"))
    if found is None:
        remedy = "run `apt-get install g++`, or set CXX to a C++ compiler"
        return Check(name, WARNING, f"{wanted} not found, which torch.compile needs", remedy)
    return Check(name, OK, f"{found}, for torch.compile")


def check_memory_plans() -> Check:
    """Say which sources of memory plans there are."""
    name = "memory plans"
    try:
        build = builds.find()
    except builds.NoBuild as error:
        reason = str(error).removeprefix("openreg: ")
        return Check(name, OK, f"built-in ones only; {reason}")
    where = "this environment" if build.folder == builds.own_folder() else str(build.folder)
    return Check(name, OK, f"built-in ones, and the CUDA {build.cuda} build in {where}")


def check_cuda_mode() -> Check:
    """Check that `openreg run` would start a program."""
    name = "CUDA mode"
    try:
        environment = run.environment_of({}) | {"OPENREG_DEVICE_TYPE": "cuda"}
        require_devices(environment)
    except CannotRunError as problem:
        is_chosen = os.environ.get("OPENREG_DEVICE_TYPE") == "cuda"
        *_, last = str(problem).splitlines()
        state = PROBLEM if is_chosen else WARNING
        return Check(name, state, last.removeprefix("openreg: "))
    return Check(name, OK, "`openreg run` finds the devices")


# ---- with PyTorch, in another process ------------------------------------------------------------


def _code() -> str:
    # Nothing is imported from the working folder.
    prologue = "import sys; sys.path[:] = [folder for folder in sys.path if folder]\n"
    return prologue + (Path(__file__).parent / "probe.py").read_text()


def probe() -> dict[str, Any]:
    """Import PyTorch and use every device, in another process.

    Returns
    -------
    dict
        The results of the steps. ``step`` is the last step that succeeded, or "failed".
        ``sentence`` is the error, if there is one.
    """
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _code()],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {
            "step": None,
            "sentence": f"the process did not end within {_TIMEOUT_SECONDS} seconds",
        }
    facts: dict[str, Any] = {"step": None}
    for line in ended.stdout.splitlines():
        if line.startswith('{"step"'):
            facts |= json.loads(line)
    # PyTorch's CUDA build without NVIDIA's packages cannot be imported if openreg cannot be loaded.
    ours = ("openreg: ", "torch_openreg ")
    facts["reported"] = next(
        (line for line in ended.stderr.splitlines() if line.startswith(ours)), None
    )
    if facts["step"] not in ("compute", "failed"):
        status = ended.returncode
        how = f"status {status}" if status >= 0 else signal.Signals(-status).name
        *_, last = ["", *filter(None, ended.stderr.splitlines())]
        facts["sentence"] = f"the process ended with {how}. {last}".strip()
    return facts


def _remedy(sentence: str) -> str | None:
    return next((remedy for words, remedy in _REMEDIES if words in sentence), None)


def _first_line(sentence: str) -> str:
    return sentence.strip().split("\n")[0].removeprefix("openreg: ")


def check_devices(facts: dict[str, Any], missing: list[str]) -> list[Check]:
    """Check that PyTorch can be imported and that every device computes correctly.

    Parameters
    ----------
    facts
        The result of `probe`.
    missing
        The packages of NVIDIA that PyTorch requires and that are absent.
    """
    sentence = facts.get("sentence")
    if "torch" not in facts:
        text = f"`import torch` fails: {_first_line(facts.get('reported') or str(sentence))}"
        if missing and not facts.get("reported") and "cannot open shared object file" in text:
            text += f"; PyTorch requires {', '.join(missing)}, which are not installed"
            remedy = (
                "start programs with `openreg run`, which needs no package of NVIDIA, or run "
                f"`pip install {' '.join(missing)}`"
            )
            return [Check("import", PROBLEM, text, remedy)]
        return [Check("import", PROBLEM, text, _remedy(text))]
    if sentence is not None:
        return [Check("devices", PROBLEM, _first_line(sentence), _remedy(sentence))]
    count, kind = facts["visible"], facts["device_type"]
    if count == 0:
        name = "CUDA_VISIBLE_DEVICES" if kind == "cuda" else "OPENREG_VISIBLE_DEVICES"
        text = f"{name}={os.environ.get(name, '')[:100]} hides all devices"
        return [Check("devices", PROBLEM, text, "unset it, or list devices, such as 0,1")]
    text = f"all {count} devices (`{kind}`) compute the same results as the CPU"
    return [Check("devices", OK, text)]


def check_libraries(found: dict[str, list[str]] | None, missing: list[str]) -> list[Check]:
    """Name the libraries of a CUDA build that the process of `probe` has mapped.

    Parameters
    ----------
    found
        The result of `installation.classify`, or None if PyTorch cannot be imported.
    missing
        The packages of NVIDIA that PyTorch requires and that are absent.
    """
    name = "libraries"
    if found is None or not any(found.values()):
        return []
    real = [*found["pytorch"], *found["nvidia"]]
    parts = []
    if found["stand_ins"]:
        parts.append(f"openreg's stand-ins are loaded: {', '.join(found['stand_ins'])}")
    if real:
        parts.append(f"PyTorch's and NVIDIA's are loaded: {', '.join(real)}")
    if missing:
        parts.append(f"not installed: {', '.join(missing)}")
    if found["stand_ins"] and real:
        remedy = "start programs with `openreg run`, and remove LD_PRELOAD"
        return [Check(name, WARNING, "; ".join(parts), remedy)]
    return [Check(name, OK, "; ".join(parts))]


def check_gpus(names: list[str]) -> list[Check]:
    """Say that CUDA mode hides the GPUs of this machine."""
    if not names:
        return []
    text = f"{', '.join(names)}: hidden from programs in CUDA mode, which see simulated devices"
    return [Check("GPUs", WARNING, text, "start a program without `openreg run` to use them")]


def check_capacity(facts: dict[str, Any], group: dict[str, float | None]) -> list[Check]:
    """Check that the devices do not have more memory than the machine."""
    total = machine.memory()["total_bytes"]
    limit = group["memory_bytes"]
    capacity = sum(device["total_bytes"] for device in facts.get("devices", ()))
    least = min((value for value in (total, limit) if value is not None), default=None)
    if least is None or capacity <= least:
        return []
    who = "the control group" if least == limit else "this machine"
    text = f"the devices have {size(capacity)} in total, but {who} has {size(least)}"
    share = int(least / max(len(facts["devices"]), 1) / 2) // _GIB
    remedy = f"export OPENREG_DEVICE_MEMORY={f'{share}G' if share else '512M'}"
    return [Check("memory", WARNING, text + ": a program that uses more is killed", remedy)]
