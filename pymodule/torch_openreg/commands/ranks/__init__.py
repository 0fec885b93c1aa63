"""``openreg run --ranks N COMMAND``: run N processes of a program, with torchrun's variables.

If this Python runs the program, the ranks are forks of one process that has imported PyTorch once
(`zygote`). Starting Python N times would import PyTorch N times. Any other program is executed N
times. In both cases one process supervises the ranks until the last one has ended (`launcher`).
"""

import os
import pkgutil
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from ...dry.report import output as report
from .. import executable
from ..executable import WRONG_ARGUMENTS, CannotRunError
from ..preflight import require_devices
from ..signals import block_signals
from .launcher import Job, Ranks

__all__ = ["MAX_RANKS", "Job", "Program", "resolve", "share_machine", "start"]

MAX_RANKS = 256
_MAX_DEVICES = 64

_ZYGOTE = Path(__file__).with_name("zygote.py")

_TORCHRUN = "torch.distributed.run"
_LAUNCHERS = (_TORCHRUN, "torch.distributed.launch", "torch.distributed.launcher")


class Program(NamedTuple):
    """The program that each rank runs."""

    file: str  # the file to execute
    arguments: list[str]  # start with the name of the program
    python: list[str] | None  # the arguments of `python` if this Python runs the program


def _is_this_python(file: str) -> bool:
    """Return whether a file is the Python of this environment, also through a link beside it."""
    mine = Path(sys.executable)
    other = Path(os.path.abspath(file))
    return other.parent == mine.parent and other.resolve() == mine.resolve()


def _reads_scripts_with_this_python(file: str, path: str) -> bool:
    """Return whether the first line of a file names this Python, as pip writes it."""
    with open(file, "rb") as script:
        words = os.fsdecode(script.readline(4096)).split()
    if not words or not words[0].startswith("#!"):
        return False
    interpreter, arguments = words[0][2:], words[1:]
    if interpreter == "/usr/bin/env" and len(arguments) == 1:
        interpreter, arguments = shutil.which(arguments[0], path=path) or "", []
    return not arguments and _is_this_python(interpreter)


def _is_source(file: str) -> bool:
    """Return whether a file is Python source, not a folder, an archive or compiled code."""
    return os.path.isfile(file) and not file.endswith(".pyc") and pkgutil.get_importer(file) is None


def _python_arguments(file: str, arguments: list[str], path: str) -> list[str] | None:
    """Return what follows `python` in the command line, or None if this Python does not run it."""
    rest = arguments[1:]
    if not _is_this_python(file):
        return [file, *rest] if _reads_scripts_with_this_python(file, path) else None
    has_code = len(rest) >= 2 and rest[0] in ("-m", "-c")
    is_script = bool(rest) and not rest[0].startswith("-") and _is_source(rest[0])
    return rest if has_code or is_script else None


def resolve(command: list[str], path: str) -> Program:
    """Return the program of a command.

    Raises
    ------
    CannotRunError
        If there is no such program, or the program is torchrun, which starts ranks itself.
    """
    file, arguments = executable.resolve(command, path)
    python = _python_arguments(file, arguments, path)
    is_launcher = python is not None and python[0] == "-m" and python[1] in _LAUNCHERS
    if os.path.basename(file) == "torchrun" or is_launcher:
        raise CannotRunError(
            WRONG_ARGUMENTS,
            "openreg: --ranks cannot be combined with torchrun, which starts ranks itself: use "
            "`openreg run --ranks N PROGRAM` or `openreg run torchrun --nproc-per-node N PROGRAM`",
        )
    return Program(file, arguments, python)


def share_machine(environment: dict[str, str], count: int) -> None:
    """Set the number of devices and of threads per rank, unless the environment sets them."""
    if not environment.get("OPENREG_DEVICE_COUNT"):
        environment["OPENREG_DEVICE_COUNT"] = str(min(count, _MAX_DEVICES))
    if count > 1:  # as torchrun
        environment.setdefault("OMP_NUM_THREADS", "1")


def start(job: Job, program: Program, environment: dict[str, str]) -> int:
    """Start the ranks and return the exit status of the job.

    If this Python runs the program, the zygote replaces this process instead.
    """
    if program.python is not None:
        arguments = [sys.executable, str(_ZYGOTE), *map(str, job), *program.python]
        executable.exec_program(sys.executable, arguments, environment)
    require_devices(environment)
    report.open_folder(environment)
    ranks = Ranks(job, block_signals(), lambda: report.collect(job.size, environment))
    if ranks.start(serves_store=False) is None:
        return ranks.wait()
    try:
        executable.exec_program(program.file, program.arguments, environment | ranks.variables)
    except CannotRunError as problem:
        print(problem, file=sys.stderr, flush=True)
        os._exit(problem.status)
