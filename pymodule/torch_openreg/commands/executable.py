"""What a command is: the file that is executed for it, and how the process becomes that program."""

import errno
import os
import signal
import sys
from collections.abc import Container, Sequence
from typing import NoReturn

# As shells have it.
CANNOT_RUN, NOT_FOUND = 126, 127
WRONG_ARGUMENTS = 2


class CannotRunError(Exception):
    """A sentence for a person, and the status to exit with."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def cut(words: Sequence[str], with_value: Container[str]) -> tuple[list[str], list[str]]:
    """Cut in two: options of a command of ours, and the program, which begins with what is none.

    Parameters
    ----------
    words
        All of them.
    with_value
        The options that have the word behind them as a value.
    """
    end = 0
    while end < len(words) and words[end].startswith("-") and words[end] not in ("--", "-m"):
        end += 2 if words[end] in with_value else 1
    return list(words[:end]), list(words[end + (words[end : end + 1] == ["--"]) :])


def find(word: str, path: str) -> str:
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
        raise CannotRunError(CANNOT_RUN, f"openreg: {found[0]} is not executable")
    if "/" in word and os.path.isdir(word):
        raise CannotRunError(CANNOT_RUN, f"openreg: {word} is a folder, expected a program")
    where = "there is no such file" if "/" in word else "no program of this name is in PATH"
    raise CannotRunError(NOT_FOUND, f"openreg: {word}: {where}")


def resolve(command: list[str], path: str) -> tuple[str, list[str]]:
    """Return the file to execute, and the words that it is given, its own name first."""
    word = command[0]
    if word == "-m":
        return sys.executable, [sys.executable, *command]
    if not word.endswith(".py"):
        return find(word, path), command
    if os.path.isfile(word):
        script = word
    elif "/" not in word:
        try:
            script = find(word, path)
        except CannotRunError:
            raise CannotRunError(NOT_FOUND, f"openreg: {word}: there is no such file") from None
    else:
        raise CannotRunError(NOT_FOUND, f"openreg: {word}: there is no such file")
    return sys.executable, [sys.executable, script, *command[1:]]


def become(file: str, words: list[str], environment: dict[str, str]) -> NoReturn:
    """Execute a file in place of this process."""
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
        raise CannotRunError(CANNOT_RUN, f"openreg: {file}: {error.strerror}") from None
