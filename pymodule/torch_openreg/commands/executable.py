"""Finds the file to execute for a command, and replaces this process with it."""

import errno
import os
import signal
import sys
from collections.abc import Container, Sequence
from typing import NoReturn

# The exit statuses that shells use.
CANNOT_RUN, NOT_FOUND = 126, 127
WRONG_ARGUMENTS = 2


class CannotRunError(Exception):
    """A command cannot run: a sentence for the user, and the exit status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def split_command(
    arguments: Sequence[str], with_value: Container[str]
) -> tuple[list[str], list[str]]:
    """Split a command line into the options of `openreg` and the program with its arguments.

    The program starts at the first argument that is not an option, at ``-m``, or after ``--``.

    Parameters
    ----------
    arguments
        The command line, without the name of the command.
    with_value
        The options that take the next argument as their value.

    Returns
    -------
    tuple of (list of str, list of str)
        The options, and the program with its arguments.
    """
    end = 0
    while (
        end < len(arguments)
        and arguments[end].startswith("-")
        and arguments[end] not in ("--", "-m")
    ):
        end += 2 if arguments[end] in with_value else 1
    return list(arguments[:end]), list(arguments[end + (arguments[end : end + 1] == ["--"]) :])


def find(name: str, path: str) -> str:
    """Return the file of a program, found the way a shell does.

    Parameters
    ----------
    name
        The name of a program, or a path.
    path
        The value of ``PATH``.

    Raises
    ------
    CannotRunError
        If there is no such file, or it is not executable.
    """
    if "/" in name:
        candidates = [name]
    else:
        candidates = [os.path.join(folder or ".", name) for folder in path.split(os.pathsep)]
    found = [file for file in candidates if os.path.isfile(file)]
    for file in found:
        if os.access(file, os.X_OK):
            return file
    if found:
        raise CannotRunError(CANNOT_RUN, f"openreg: {found[0]} is not executable")
    if "/" in name and os.path.isdir(name):
        raise CannotRunError(CANNOT_RUN, f"openreg: {name} is a folder: expected a program")
    reason = "no such file" if "/" in name else "not found in PATH"
    raise CannotRunError(NOT_FOUND, f"openreg: {name}: {reason}")


def resolve(command: list[str], path: str) -> tuple[str, list[str]]:
    """Return the file to execute for a command, and its arguments, which start with its name.

    This Python runs ``.py`` files and ``-m MODULE``.
    """
    name = command[0]
    if name == "-m":
        return sys.executable, [sys.executable, *command]
    if not name.endswith(".py"):
        return find(name, path), command
    if os.path.isfile(name):
        script = name
    elif "/" not in name:
        try:
            script = find(name, path)
        except CannotRunError:
            raise CannotRunError(NOT_FOUND, f"openreg: {name}: no such file") from None
    else:
        raise CannotRunError(NOT_FOUND, f"openreg: {name}: no such file")
    return sys.executable, [sys.executable, script, *command[1:]]


def exec_program(file: str, arguments: list[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process with a program.

    Raises
    ------
    CannotRunError
        If the operating system cannot execute the file.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    # Python ignores these signals, and the program would inherit that.
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        try:
            os.execve(file, arguments, environment)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without a "#!" line: sh runs it, as with execvp(3) and in shells.
            os.execve("/bin/sh", ["sh", file, *arguments[1:]], environment)
    except OSError as error:
        raise CannotRunError(CANNOT_RUN, f"openreg: {file}: {error.strerror}") from None
