"""What ``openreg doctor`` tries on this machine: one function for each thing that may not work.

A check is ``ok``, a ``warning`` where only a part of openreg does not work, or something is slower
or tighter than it could be, or a ``problem`` where programs fail. The last two come with a remedy.
Nothing here imports PyTorch: a Python of its own does (`probe`), and may die of it.
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

from . import machine, run, variables
from .executable import CannotRunError
from .preflight import require_devices

OK, WARNING, PROBLEM = "ok", "warning", "problem"

_PATIENCE_SECONDS = 120
_MIB, _GIB = 1 << 20, 1 << 30
# A group's control file: device/device.h.
_CONTROL_FILE_BYTES = 2 * _MIB + _MIB // 8
# What DataLoaders pass from their workers fits Docker's 64 MB for small batches only.
_SMALL_SHARED_MEMORY = 256 * _MIB
_FEW_FILES = 256
_FEW_PROCESSES = 128

# What the sentence of a failure says, and what helps: for those that do not say it themselves.
_REMEDIES = (
    ("bytes of addresses", "`ulimit -v unlimited`, or a smaller OPENREG_DEVICE_MEMORY"),
    ("sizing the memory file", "`ulimit -f unlimited`, or a smaller OPENREG_DEVICE_MEMORY"),
    ("Too many open files", "`ulimit -n 4096`, or fewer devices"),
    ("Permission denied", "let this user write to /dev/shm (mode 1777)"),
    ("No space left on device", "free /dev/shm, or make it larger: `docker run --shm-size=1g`"),
    ("Resource temporarily unavailable", "`ulimit -u unlimited`, or end other processes"),
    ("Cannot allocate memory", "end other programs, or give this one more memory"),
    ("/proc is not mounted", "mount /proc"),
)


@dataclass(frozen=True)
class Check:
    """What was found of one thing: a state, a sentence, and what to do, unless that says it."""

    name: str
    state: str
    text: str
    remedy: str | None = None


def size(count: float) -> str:
    """A number of bytes, for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


# ---- without PyTorch -----------------------------------------------------------------------------


def check_version(found: dict[str, str | None]) -> Check:
    """Whether PyTorch is the one that the extension was built for."""
    name, wanted, there = "PyTorch", found["supported_torch"], found["torch"]
    remedy = f"pip install torch=={wanted}"
    if there is None:
        return Check(name, PROBLEM, f"{sys.executable} has none", remedy)
    if there.split("+")[0] != wanted:
        return Check(name, PROBLEM, f"openreg works with {wanted}, and this is {there}", remedy)
    return Check(name, OK, f"{there} is the one that openreg was built for")


def check_variables(environment: dict[str, str]) -> list[Check]:
    """Whether there are variables that nobody reads, or that keep openreg away."""
    checks = []
    for name, meant in variables.unknown(environment).items():
        remedy = f"{meant}, if that is meant" if meant else "docs/configuration.md lists them all"
        checks.append(Check("variables", WARNING, f"{name} is set, which nothing reads", remedy))
    if environment.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        text = "TORCH_DEVICE_BACKEND_AUTOLOAD=0: `import torch` does not load openreg"
        checks.append(Check("variables", PROBLEM, text, "unset it"))
    return checks


def check_shared_memory(found: dict[str, Any] | None) -> Check:
    """Whether /dev/shm has room for what processes share."""
    name = "/dev/shm"
    if found is None:
        return Check(name, PROBLEM, "is not there", "mount a tmpfs there")
    if not found["is_writable"]:
        return Check(name, PROBLEM, "cannot be written by this user", "chmod 1777 /dev/shm")
    free, total = found["free_bytes"], found["total_bytes"]
    remedy = "free it, or make it larger: `docker run --shm-size=1g`, `mount -o remount,size=1g`"
    if free < _CONTROL_FILE_BYTES:
        text = f"{size(free)} are free, and a group of processes takes {size(_CONTROL_FILE_BYTES)}"
        return Check(name, PROBLEM, text, remedy)
    if total < _SMALL_SHARED_MEMORY:
        text = f"{size(total)}: enough for the devices, little for the workers of a DataLoader"
        return Check(name, WARNING, text, remedy)
    return Check(name, OK, f"{size(free)} are free")


def check_limits(found: dict[str, int | None], group: dict[str, float | None]) -> list[Check]:
    """Whether a program may open as many files, and start as many threads, as it usually does."""
    checks = []
    files, processes = found["open_files"], found["processes"]
    if files is not None and files < _FEW_FILES:
        text = f"{files} at a time: few for many devices or ranks"
        checks.append(Check("open files", WARNING, text, "ulimit -n 4096"))
    fewest = min((n for n in (processes, group["processes"]) if n is not None), default=None)
    if fewest is not None and fewest < _FEW_PROCESSES:
        text = f"{fewest:.0f} at a time: each stream and each rank has threads"
        remedy = "`ulimit -u unlimited`, or `docker run --pids-limit=-1`"
        checks.append(Check("processes", WARNING, text, remedy))
    return checks


def check_cores(found: dict[str, int], group: dict[str, float | None]) -> Check:
    """Whether PyTorch would start more threads than it is given time for."""
    cpus, allowed = group["cpus"], found["allowed"]
    if cpus is not None and cpus < allowed:
        text = f"{allowed} cores are seen, of which the control group gives the time of {cpus:g}"
        return Check("cores", WARNING, text, f"export OMP_NUM_THREADS={max(1, int(cpus))}")
    return Check("cores", OK, f"{allowed} may be used")


def check_exchange() -> Check:
    """Whether a process may open memory of another one of this user, as ranks do."""
    name = "exchange between processes"
    asked, answer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.read(asked, 1)
        os._exit(0)
    try:
        os.close(os.open(f"/proc/{child}/fd/{asked}", os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        text = f"/proc/<pid>/fd of another process: {error.strerror}"
        remedy = "mount /proc without hidepid; run the processes as one user"
        return Check(name, PROBLEM, text, remedy)
    finally:
        os.write(answer, b".")
        os.close(answer)
        os.close(asked)
        os.waitpid(child, 0)
    return Check(name, OK, "memory of another process can be opened")


def check_compiler(environment: dict[str, str]) -> Check:
    """Whether there is the C++ compiler that `torch.compile` calls."""
    name = "compiler"
    wanted = (shlex.split(environment.get("CXX") or "") or ["g++"])[0]
    found = shutil.which(wanted, path=environment.get("PATH"))
    if found is None:
        remedy = "apt-get install g++, or set CXX"
        return Check(name, WARNING, f"no {wanted}: torch.compile needs one for the CPU", remedy)
    return Check(name, OK, f"{found}, for torch.compile")


def check_cuda_mode() -> Check:
    """Whether `openreg run` would start a program."""
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


# ---- with PyTorch, in a process of its own -------------------------------------------------------


def _code() -> str:
    here = "import sys; sys.path[:] = [folder for folder in sys.path if folder]\n"
    return here + (Path(__file__).parent / "probe.py").read_text()


def probe() -> dict[str, Any]:
    """Import PyTorch and use every device, in a process of its own.

    Returns
    -------
    dict
        What its steps told; ``step`` is the last that was done. ``sentence`` is there when it went
        wrong.
    """
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _code()],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {"step": None, "sentence": f"it did not end within {_PATIENCE_SECONDS} seconds"}
    facts: dict[str, Any] = {"step": None}
    for line in ended.stdout.splitlines():
        if line.startswith('{"step"'):
            facts |= json.loads(line)
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


def check_devices(facts: dict[str, Any]) -> list[Check]:
    """Whether PyTorch can be imported, and each device computes what the CPU does."""
    sentence = facts.get("sentence")
    if "torch" not in facts:
        text = f"`import torch` fails: {_first_line(str(sentence))}"
        return [Check("import", PROBLEM, text, _remedy(text))]
    if sentence is not None:
        return [Check("devices", PROBLEM, _first_line(sentence), _remedy(sentence))]
    count, kind = facts["visible"], facts["device_type"]
    if count == 0:
        name = "CUDA_VISIBLE_DEVICES" if kind == "cuda" else "OPENREG_VISIBLE_DEVICES"
        text = f"{name}={os.environ.get(name, '')[:100]} chooses none"
        return [Check("devices", PROBLEM, text, "unset it, or list devices, as 0,1")]
    return [Check("devices", OK, f"{count} as `{kind}` compute what the CPU does")]


def check_capacity(facts: dict[str, Any], group: dict[str, float | None]) -> list[Check]:
    """Whether the devices promise more memory than there is."""
    there = machine.memory()["total_bytes"]
    limit = group["memory_bytes"]
    promised = sum(device["total_bytes"] for device in facts.get("devices", ()))
    least = min((value for value in (there, limit) if value is not None), default=None)
    if least is None or promised <= least:
        return []
    who = "the control group" if least == limit else "this machine"
    text = f"the devices promise {size(promised)}, and {who} has {size(least)}"
    share = int(least / max(len(facts["devices"]), 1) / 2) // _GIB
    remedy = f"export OPENREG_DEVICE_MEMORY={f'{share}G' if share else '512M'}"
    return [Check("memory", WARNING, text + ": what takes it all is killed", remedy)]
