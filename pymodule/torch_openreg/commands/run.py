"""``openreg run COMMAND``: somebody's program, for which the simulated devices are ``cuda``.

The process sets variables, which the program and all that it starts inherit, and becomes the
program: it has the same process id, standard streams and working folder, gets every signal itself,
and its exit status is the command's. With ``--ranks`` it becomes the launcher of several (`ranks`).

What would keep the devices from being there is refused before: else a program would fall back to
the CPU and nobody would know. That is asked of a Python that starts as the program's would
(`preflight`, `_openreg_cuda_mode.problem`).

Nothing here imports PyTorch or what imports it: the program will, and once is enough.
"""

import argparse
import os
import sys
import sysconfig
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from . import ranks
from .executable import WRONG_ARGUMENTS, CannotRunError, become, cut, resolve
from .preflight import require_devices
from .cli import make_parser

_PACKAGE = Path(__file__).resolve().parent.parent

# What an option sets: (option, variable, placeholder, help).
_OPTIONS = (
    ("--devices", "OPENREG_DEVICE_COUNT", "N", "how many devices, 1 to 64"),
    (
        "--profile",
        "OPENREG_PROFILE",
        "NAME[,NAME...]",
        "the GPU that they show, or one for each: h100, a100, t4, rtx4090, ...",
    ),
    (
        "--memory",
        "OPENREG_DEVICE_MEMORY",
        "SIZE[,SIZE...]",
        "capacity of each device: 8G, or one for each, 8G,4G",
    ),
    ("--cuda-version", "OPENREG_CUDA_VERSION", "X.Y", "what torch.version.cuda is, such as 12.8"),
)


WITH_VALUE = {option for option, *_ in _OPTIONS} | {"--ranks", "--grace"}

# ---- arguments -----------------------------------------------------------------------------------

_DESCRIPTION = (
    "Runs a program for which the simulated devices are `cuda`: PyTorch's torch.cuda, unedited. "
    "COMMAND is a program with its arguments, or a .py file or -m MODULE, which are run with the "
    "Python that has openreg. What it starts has the same devices."
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
        "of ranks that of the first that failed, or 128 and its signal's number",
    ),
    (WRONG_ARGUMENTS, "for words, or values of variables, that are not allowed"),
    (126, "when the command cannot be run"),
    (127, "when it is not found"),
)
_USAGE = "openreg run [options] COMMAND [argument ...]"


def _number_of_ranks(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= ranks.MOST:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 to {ranks.MOST}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text}: expected seconds, such as 0.5 or 60")
    return seconds


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options, which stand before the command."""
    made = make_parser("openreg run", _DESCRIPTION, _STATUSES, usage=_USAGE, examples=_EXAMPLES)
    for option, variable, placeholder, help_text in _OPTIONS:
        made.add_argument(option, dest=variable, metavar=placeholder, help=help_text)
    of_ranks = made.add_argument_group("several processes, with the variables of torchrun")
    of_ranks.add_argument(
        "--ranks",
        metavar="N",
        type=_number_of_ranks,
        help="how many; as many devices unless --devices says otherwise",
    )
    of_ranks.add_argument(
        "--prefix", action="store_true", help="which rank a line of output is from"
    )
    of_ranks.add_argument(
        "--grace",
        metavar="SECONDS",
        type=_seconds,
        help="when a rank failed, what the others have to end after SIGTERM; 30",
    )
    return made


def _parse(words: Sequence[str]) -> tuple[dict[str, str], ranks.Job | None, list[str]]:
    """Return the variables that options set, what is said of ranks, and the command."""
    made = parser()
    options, command = cut(words, WITH_VALUE)
    chosen = vars(made.parse_args(options))
    for option, variable, *_ in _OPTIONS:
        if chosen[variable] == "":
            made.error(f"argument {option}: expected a value")
    if not command or not command[0]:
        made.error("expected a COMMAND")
    if command == ["-m"]:
        made.error("expected a module behind -m")
    count, prefix, grace = (chosen.pop(name) for name in ("ranks", "prefix", "grace"))
    if count is None and (prefix or grace is not None):
        made.error(f"argument {'--prefix' if prefix else '--grace'}: expected --ranks as well")
    job = None if count is None else ranks.Job(count, prefix, 30.0 if grace is None else grace)
    return {name: value for name, value in chosen.items() if value is not None}, job, command


# ---- the environment -----------------------------------------------------------------------------


def _put_in_front(environment: MutableMapping[str, str], name: str, folders: list[str]) -> None:
    """Let a list of folders begin with these; it has each of them once."""
    others = [
        folder for folder in environment.get(name, "").split(os.pathsep) if name in environment
    ]
    kept = [folder for folder in others if folder not in folders]
    if name != "PATH":  # where an empty entry is the working folder
        kept = [folder for folder in kept if folder]
    environment[name] = os.pathsep.join([*dict.fromkeys(folders), *kept])


def add_folders(environment: MutableMapping[str, str], package: Path = _PACKAGE) -> None:
    """Let programs find what stands in for a GPU's: libraries and programs of the package.

    Parameters
    ----------
    environment
        What the command will have: PATH and LD_LIBRARY_PATH are changed.
    package
        The folder of the package. Folders in it that do not exist are left out.
    """
    programs = [package / "bin", package / "nvml" / "bin"]
    libraries = [package / "nvml"]
    for name, folders in (("PATH", programs), ("LD_LIBRARY_PATH", libraries)):
        if found := [str(folder) for folder in folders if folder.is_dir()]:
            _put_in_front(environment, name, found)


def with_programs(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which this Python's programs are found first.

    So `pytest` and `python` are this Python's, also when its environment was not activated.
    """
    changed = {"PATH": os.defpath, **environment}
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    _put_in_front(changed, "PATH", folders)
    return changed


def environment_of(variables: dict[str, str]) -> dict[str, str]:
    """Return the environment of a command, with variables that options set."""
    device_type = os.environ.get("OPENREG_DEVICE_TYPE") or "cuda"
    if device_type not in ("cuda", "openreg"):
        raise CannotRunError(
            WRONG_ARGUMENTS,
            f"openreg: OPENREG_DEVICE_TYPE={device_type[:100]}: expected openreg or cuda",
        )
    environment = with_programs(os.environ) | {"OPENREG_DEVICE_TYPE": device_type} | variables
    add_folders(environment)
    return environment


# ---- the command ---------------------------------------------------------------------------------


def main(words: Sequence[str]) -> int:
    """Become the command, or what starts ranks of it.

    Parameters
    ----------
    words
        Those behind ``openreg run``.

    Returns
    -------
    int
        The exit status, when the command could not be run: it says why on stderr. And with
        ``--ranks`` of a command that is no program of this Python, the status of the ranks.
    """
    variables, job, command = _parse(words)
    try:
        environment = environment_of(variables)
        if job is not None:
            program = ranks.resolve(command, environment["PATH"])
            ranks.share_machine(environment, job.size)
            return ranks.start(job, program, environment)
        file, words = resolve(command, environment["PATH"])
        require_devices(environment)
        become(file, words, environment)
    except CannotRunError as problem:
        print(problem, file=sys.stderr)
        return problem.status
