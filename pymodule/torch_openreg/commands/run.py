"""``openreg run COMMAND``: somebody's program, for which the simulated devices are ``cuda``.

The process sets variables, which the program and all that it starts inherit, and becomes the
program: it has the same process id, standard streams and working folder, gets every signal itself,
and its exit status is the command's.

What would keep the devices from being there is refused before: else a program would fall back to
the CPU and nobody would know. That is asked of a Python that starts as the program's would
(`_openreg_cuda_mode.problem`).

Nothing here imports PyTorch or what imports it: the program will, and once is enough.
"""

import argparse
import errno
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

# As shells have it.
_CANNOT_RUN, _NOT_FOUND = 126, 127
_WRONG_ARGUMENTS = 2

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

# Asks a Python that starts as the program's will. Its status is the one for wrong arguments.
_ASK = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]  # not what lies in the working folder
mode = sys.modules.get("_openreg_cuda_mode")
problem = mode.problem() if mode else (
    "openreg: this Python does not read openreg-cuda-mode.pth when it starts, so its `cuda` would "
    "not be openreg's devices: install openreg where Python's `site` looks (pip install), not in a "
    "folder of PYTHONPATH"
)
if problem:
    print(problem, file=sys.stderr)
    sys.exit(2)
"""


class _CannotRunError(Exception):
    """A sentence for a person, and the status to exit with."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


# ---- arguments -----------------------------------------------------------------------------------

_DESCRIPTION = (
    "Runs a program for which the simulated devices are `cuda`: PyTorch's torch.cuda, unedited. "
    "COMMAND is a program with its arguments, or a .py file, which is run with the Python that has "
    "openreg. What it starts has the same devices."
)
_EPILOG = (
    "examples: openreg run train.py --lr 0.1; openreg run --devices 8 torchrun --nproc-per-node 8 "
    "train.py; openreg run pytest tests/. Exit status: the command's; 2 for a value that is not "
    "allowed; 126 when the command cannot be run, 127 when it is not found."
)
_USAGE = "openreg run [options] COMMAND [argument ...]"


def _fill(parser: argparse.ArgumentParser) -> None:
    for option, variable, placeholder, help_text in _OPTIONS:
        parser.add_argument(option, dest=variable, metavar=placeholder, help=help_text)


def add_command(commands: Any) -> None:
    """Add ``run`` to the commands of a parser, for its list of them: `main` has its own."""
    commands.add_parser("run", help="run a program for which the devices are `cuda`")


def _cut(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Cut in two: options of ``run``, and the command, which begins with what is no option."""
    with_value = {option for option, *_ in _OPTIONS}
    end = 0
    while end < len(words) and words[end].startswith("-") and words[end] != "--":
        end += 2 if words[end] in with_value else 1
    return list(words[:end]), list(words[end + (words[end : end + 1] == ["--"]) :])


def _parse(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables that options set, and the command."""
    parser = argparse.ArgumentParser(
        prog="openreg run",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    _fill(parser)
    options, command = _cut(words)
    chosen = vars(parser.parse_args(options))
    for option, variable, *_ in _OPTIONS:
        if chosen[variable] == "":
            parser.error(f"argument {option}: expected a value")
    if not command or not command[0]:
        parser.error("expected a COMMAND")
    return {name: value for name, value in chosen.items() if value is not None}, command


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


def _environment(variables: dict[str, str]) -> dict[str, str]:
    environment = dict(os.environ) | {"OPENREG_DEVICE_TYPE": "cuda"} | variables
    if "PATH" not in environment:
        environment["PATH"] = os.defpath
    # `pytest` and `python` are this Python's, also when its environment was not activated.
    _put_in_front(
        environment, "PATH", [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    )
    add_folders(environment)
    return environment


def _require_devices(environment: dict[str, str]) -> None:
    asked = subprocess.run(
        [sys.executable, "-c", _ASK],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    if asked.returncode == _WRONG_ARGUMENTS:
        raise _CannotRunError(_WRONG_ARGUMENTS, asked.stderr.strip())
    if asked.returncode != 0:
        raise _CannotRunError(
            1, f"{asked.stderr}openreg: {sys.executable} cannot load openreg's extension"
        )


# ---- the command ---------------------------------------------------------------------------------


def _find(word: str, path: str) -> str:
    """Return the file that a program's name means, as a shell finds it."""
    if "/" in word:
        candidates = [word]
    else:
        candidates = [os.path.join(folder or ".", word) for folder in path.split(os.pathsep)]
    found = [file for file in candidates if os.path.isfile(file)]
    for file in found:
        if os.access(file, os.X_OK):
            return file
    if found:
        raise _CannotRunError(_CANNOT_RUN, f"openreg: {found[0]} is not executable")
    if "/" in word and os.path.isdir(word):
        raise _CannotRunError(_CANNOT_RUN, f"openreg: {word} is a folder, expected a program")
    where = "there is no such file" if "/" in word else "no program of this name is in PATH"
    raise _CannotRunError(_NOT_FOUND, f"openreg: {word}: {where}")


def _resolve(command: list[str], path: str) -> tuple[str, list[str]]:
    """Return the file to execute, and the words that it is given, its own name first."""
    word = command[0]
    if not word.endswith(".py"):
        return _find(word, path), command
    if os.path.isfile(word):
        script = word
    elif "/" not in word:
        try:
            script = _find(word, path)
        except _CannotRunError:
            raise _CannotRunError(_NOT_FOUND, f"openreg: {word}: there is no such file") from None
    else:
        raise _CannotRunError(_NOT_FOUND, f"openreg: {word}: there is no such file")
    return sys.executable, [sys.executable, script, *command[1:]]


def _become(file: str, words: list[str], environment: dict[str, str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):  # which Python ignores, and a program would inherit that
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        try:
            os.execve(file, words, environment)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script that does not say what is to read it: sh does, for execvp(3) and shells.
            os.execve("/bin/sh", ["sh", file, *words[1:]], environment)
    except OSError as error:
        raise _CannotRunError(_CANNOT_RUN, f"openreg: {file}: {error.strerror}") from None


def main(words: Sequence[str]) -> int:
    """Become the command.

    Parameters
    ----------
    words
        Those behind ``openreg run``.

    Returns
    -------
    int
        The exit status, when the command could not be run: it says why on stderr.
    """
    variables, command = _parse(words)
    environment = _environment(variables)
    try:
        file, words = _resolve(command, environment["PATH"])
        _require_devices(environment)
        _become(file, words, environment)
    except _CannotRunError as problem:
        print(problem, file=sys.stderr)
        return problem.status
