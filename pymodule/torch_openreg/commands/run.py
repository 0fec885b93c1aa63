"""``openreg run COMMAND``: run a program that sees the simulated devices as ``cuda``.

The process sets environment variables and then executes the program in its place. The program keeps
the process id, the standard streams and the working folder, receives every signal itself, and its
exit status is the command's. With ``--ranks`` the process becomes the launcher of several processes
(`ranks`).

The command first checks that the program will find the devices (`preflight`,
`_openreg_cuda_mode.problem`). Otherwise a program could silently run on the CPU.

This module does not import PyTorch, which takes seconds: only the program does.
"""

import argparse
import os
import sys
import sysconfig
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from .. import variables
from ..dry.report import output as report
from . import installation, ranks
from .cli import make_parser
from .executable import WRONG_ARGUMENTS, CannotRunError, exec_program, resolve, split_command
from .preflight import require_devices

_PACKAGE = Path(__file__).resolve().parent.parent

# The options that set environment variables, and the variables whose option may be repeated.
_OPTIONS = variables.options("run")
_REPEATED = (report.FILES,)

WITH_VALUE = {option.flag for option in _OPTIONS if option.placeholder} | {
    "--ranks",
    "--grace",
    "--represent",
}

# ---- arguments -----------------------------------------------------------------------------------

_DESCRIPTION = (
    "Runs a program that sees the simulated devices as `cuda`, without changes to the program. "
    "COMMAND is a program with its arguments. The Python that has openreg runs a .py file or -m "
    "MODULE. Processes that the program starts see the same devices."
)
_EXAMPLES = (
    "openreg run train.py --lr 0.1",
    "openreg run --ranks 8 train.py",
    "openreg run --devices 8 torchrun --nproc-per-node 8 train.py",
    "openreg run pytest tests/",
)
_STATUSES = (
    (
        "the command's",
        "with --ranks, that of the first rank that failed; 128 plus the number of the signal "
        "that ended it",
    ),
    (WRONG_ARGUMENTS, "invalid arguments or invalid values of variables"),
    (126, "the command cannot be executed"),
    (127, "the command was not found"),
)
_USAGE = "openreg run [options] COMMAND [argument ...]"


def _number_of_ranks(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= ranks.MAX_RANKS:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 to {ranks.MAX_RANKS}")
    return int(text)


def _list_of_ranks(text: str) -> str:
    words = text.split(",")
    if not all(word.isascii() and word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text}: expected ranks such as 0 or 0,7")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of seconds, such as 0.5 or 60")
    return seconds


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options before the command."""
    made = make_parser("openreg run", _DESCRIPTION, _STATUSES, usage=_USAGE, examples=_EXAMPLES)
    for option in _OPTIONS:
        value: dict[str, Any] = (
            {"metavar": option.placeholder}
            if option.placeholder
            else {"action": "store_const", "const": "1"}
        )
        if option.variable.name in _REPEATED:
            value["action"] = "append"
        made.add_argument(
            option.flag, dest=option.variable.name, help=option.variable.help, **value
        )
    of_ranks = made.add_argument_group("several processes (ranks), with the variables of torchrun")
    of_ranks.add_argument(
        "--ranks",
        metavar="N",
        type=_number_of_ranks,
        help="number of processes; also the number of devices, unless --devices is given",
    )
    of_ranks.add_argument(
        "--represent",
        metavar="RANK[,RANK...]",
        type=_list_of_ranks,
        help="with --dry: run only these ranks; each counts as all others of its groups",
    )
    of_ranks.add_argument(
        "--prefix", action="store_true", help="print the rank in front of each line of output"
    )
    of_ranks.add_argument(
        "--grace",
        metavar="SECONDS",
        type=_seconds,
        help="seconds to wait after SIGTERM before killing the other ranks (default 30)",
    )
    return made


def _report_files(made: argparse.ArgumentParser, values: list[str]) -> str:
    """Return the value of the variable for the report. The program may change its folder."""
    value = os.pathsep.join(values)
    try:
        files = [os.path.abspath(file) for file in report.files_of(value)]
    except ValueError as error:
        made.error(f"argument --report: {error}")
    return os.pathsep.join(files) or value


def _parse(arguments: Sequence[str]) -> tuple[dict[str, str], ranks.Job | None, list[str]]:
    """Return the variables that options set, the job if there are ranks, and the command."""
    made = parser()
    options, command = split_command(arguments, WITH_VALUE)
    chosen = vars(made.parse_args(options))
    for name in _REPEATED:
        if chosen[name] is not None:
            chosen[name] = _report_files(made, chosen[name])
    for option in _OPTIONS:
        if chosen[option.variable.name] == "":
            made.error(f"argument {option.flag}: expected a value")
    if not command or not command[0]:
        made.error("expected a COMMAND")
    if command == ["-m"]:
        made.error("expected a module after -m")
    count, prefix, grace, represented = (
        chosen.pop(name) for name in ("ranks", "prefix", "grace", "represent")
    )
    if count is None and (prefix or grace is not None or represented):
        name = "--prefix" if prefix else "--represent" if represented else "--grace"
        made.error(f"argument {name}: requires --ranks")
    if represented and (chosen["OPENREG_DRY_RUN"] or os.environ.get("OPENREG_DRY_RUN")) != "1":
        made.error("argument --represent: requires --dry")
    if represented and max(map(int, represented.split(","))) >= count:
        made.error(f"argument --represent: {represented}: expected ranks from 0 to {count - 1}")
    chosen["OPENREG_DRY_REPRESENT"] = represented
    job = (
        None
        if count is None
        else ranks.Job(count, prefix, 30.0 if grace is None else grace, represented or "")
    )
    return {name: value for name, value in chosen.items() if value is not None}, job, command


# ---- the environment -----------------------------------------------------------------------------


def _put_in_front(environment: MutableMapping[str, str], name: str, folders: list[str]) -> None:
    """Put folders first in a list of folders such as PATH, without duplicates."""
    others = [
        folder for folder in environment.get(name, "").split(os.pathsep) if name in environment
    ]
    kept = [folder for folder in others if folder not in folders]
    if name != "PATH":  # in PATH an empty entry means the working folder
        kept = [folder for folder in kept if folder]
    environment[name] = os.pathsep.join([*dict.fromkeys(folders), *kept])


def add_folders(environment: MutableMapping[str, str], package: Path = _PACKAGE) -> None:
    """Let programs find the package's replacements for NVIDIA's libraries and programs.

    Parameters
    ----------
    environment
        The environment of the command. PATH and LD_LIBRARY_PATH are changed.
    package
        The folder of the package. Only its folders that exist are added.
    """
    programs = [package / "bin", package / "nvml" / "bin"]
    libraries = [package / "nvml"]
    for name, folders in (("PATH", programs), ("LD_LIBRARY_PATH", libraries)):
        if found := [str(folder) for folder in folders if folder.is_dir()]:
            _put_in_front(environment, name, found)


def with_programs(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of the environment in which PATH finds this Python's programs first.

    `pytest` and `python` then belong to this Python even if its environment was not activated.
    """
    changed = {"PATH": os.defpath, **environment}
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    _put_in_front(changed, "PATH", folders)
    return changed


def environment_of(chosen: dict[str, str]) -> dict[str, str]:
    """Return the environment of a command.

    Parameters
    ----------
    chosen
        The variables that options set. They take precedence over the environment.
    """
    device_type = os.environ.get("OPENREG_DEVICE_TYPE") or "cuda"
    if device_type not in ("cuda", "openreg"):
        raise CannotRunError(
            WRONG_ARGUMENTS, variables.rejection("OPENREG_DEVICE_TYPE", device_type)
        )
    environment = with_programs(os.environ) | {"OPENREG_DEVICE_TYPE": device_type} | chosen
    if environment.get("OPENREG_DRY_RUN") == "1":
        # Another dry run at the same time has devices of its own.
        environment.setdefault("OPENREG_GROUP", f"dry-{os.getpid()}")
        environment.setdefault(report.FILES, report.ONLY_TEXT)
    add_folders(environment)
    return environment


# ---- the command ---------------------------------------------------------------------------------


def _name_hidden_gpus(environment: Mapping[str, str]) -> None:
    """Say that the program will not see the GPUs of this machine, if it has any."""
    if environment.get("OPENREG_DEVICE_TYPE") == "cuda" and (names := installation.gpus()):
        print(
            f"openreg: the program sees simulated devices, and not {', '.join(names)}",
            file=sys.stderr,
        )


def main(arguments: Sequence[str]) -> int:
    """Replace this process with the command, or start the ranks of the command.

    Parameters
    ----------
    arguments
        The arguments after ``openreg run``.

    Returns
    -------
    int
        The exit status if the command cannot run; the reason is on stderr. With ``--ranks`` and a
        command that this Python does not run, the exit status of the ranks. Otherwise the function
        does not return.
    """
    chosen, job, command = _parse(arguments)
    try:
        environment = environment_of(chosen)
        _name_hidden_gpus(environment)
        if job is not None:
            program = ranks.resolve(command, environment["PATH"])
            ranks.share_machine(environment, job.size)
            return ranks.start(job, program, environment)
        file, command = resolve(command, environment["PATH"])
        require_devices(environment)
        exec_program(file, command, environment)
    except CannotRunError as problem:
        print(problem, file=sys.stderr)
        return problem.status
