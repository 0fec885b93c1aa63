"""``openreg run --ranks N COMMAND``: N processes of a program, with the variables of torchrun.

A program of this Python is not started N times, for each would import PyTorch: the process becomes
one that imports it once (`zygote`), and forks. Another program is executed N times. Either way
one process stands over the ranks until the last has ended (`launcher`).
"""

import os
import pkgutil
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from .. import executable
from ..executable import WRONG_ARGUMENTS, CannotRunError
from ..preflight import require_devices
from ..signals import block_signals
from .launcher import Job, Ranks

__all__ = ["MOST", "Job", "Program", "resolve", "share_machine", "start"]

MOST = 256  # ranks
_MOST_DEVICES = 64

_ZYGOTE = Path(__file__).with_name("zygote.py")

_TORCHRUN = "torch.distributed.run"
_LAUNCHERS = (_TORCHRUN, "torch.distributed.launch", "torch.distributed.launcher")


class Program(NamedTuple):
    """What each rank is."""

    file: str  # to be executed
    words: list[str]  # its arguments, its own name first
    python: list[str] | None  # behind `python`, where it is this one: a script, or -m or -c


def _is_this_python(file: str) -> bool:
    """Tell whether a file is the Python of this environment; links of others lead to it, too."""
    mine = Path(sys.executable)
    other = Path(os.path.abspath(file))
    return other.parent == mine.parent and other.resolve() == mine.resolve()


def _reads_scripts_with_this_python(file: str, path: str) -> bool:
    """Tell whether the first line of a file names this Python, as pip writes it."""
    with open(file, "rb") as script:
        words = os.fsdecode(script.readline(4096)).split()
    if not words or not words[0].startswith("#!"):
        return False
    interpreter, arguments = words[0][2:], words[1:]
    if interpreter == "/usr/bin/env" and len(arguments) == 1:
        interpreter, arguments = shutil.which(arguments[0], path=path) or "", []
    return not arguments and _is_this_python(interpreter)


def _is_source(file: str) -> bool:
    """Tell whether `python FILE` compiles it: no folder, archive or compiled code."""
    return os.path.isfile(file) and not file.endswith(".pyc") and pkgutil.get_importer(file) is None


def _words_of_python(file: str, words: list[str], path: str) -> list[str] | None:
    if not _is_this_python(file):
        return [file, *words[1:]] if _reads_scripts_with_this_python(file, path) else None
    behind = words[1:]
    takes_one = len(behind) >= 2 and behind[0] in ("-m", "-c")
    is_script = bool(behind) and not behind[0].startswith("-") and _is_source(behind[0])
    return behind if takes_one or is_script else None


def resolve(command: list[str], path: str) -> Program:
    """Return what a command means; refuse what starts ranks itself."""
    file, words = executable.resolve(command, path)
    python = _words_of_python(file, words, path)
    of_module = python is not None and python[0] == "-m" and python[1] in _LAUNCHERS
    if os.path.basename(file) == "torchrun" or of_module:
        raise CannotRunError(
            WRONG_ARGUMENTS,
            "openreg: torchrun starts ranks itself: either `openreg run --ranks N PROGRAM`, or "
            "`openreg run torchrun --nproc-per-node N PROGRAM`",
        )
    return Program(file, words, python)


def share_machine(environment: dict[str, str], count: int) -> None:
    """Say how many devices there are and how many threads each rank has, where nobody did."""
    if not environment.get("OPENREG_DEVICE_COUNT"):
        environment["OPENREG_DEVICE_COUNT"] = str(min(count, _MOST_DEVICES))
    if count > 1:  # as torchrun
        environment.setdefault("OMP_NUM_THREADS", "1")


def start(job: Job, program: Program, environment: dict[str, str]) -> int:
    """Start the ranks, and return the status of the job: a program of this Python's by an exec."""
    if program.python is not None:
        words = [sys.executable, str(_ZYGOTE), *map(str, job), *program.python]
        executable.become(sys.executable, words, environment)
    require_devices(environment)
    ranks = Ranks(job, block_signals())
    if ranks.start(serves_store=False) is None:
        return ranks.wait()
    try:
        executable.become(program.file, program.words, environment | ranks.variables)
    except CannotRunError as problem:
        print(problem, file=sys.stderr, flush=True)
        os._exit(problem.status)
