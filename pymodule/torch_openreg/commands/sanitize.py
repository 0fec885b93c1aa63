"""``openreg sanitize COMMAND``: a program and all that it starts, watched by the sanitizer.

The process sets variables, starts the command, prints what any of its processes finds, and exits
with a status of its own if that is anything. It passes signals on to the command; when it is
killed, so is the command. The devices are what they would be without it: ``openreg sanitize openreg
run train.py`` has them as ``cuda``.

With ``--json`` what was found is one JSON object, whose members keep their names and meanings; new
ones may be added::

    {"version": 1,
     "command": [its words], "status": its exit status, below 0 that of a signal,
     "processes": how many were watched,
     "findings": [
       {"kind": "race", and so on: the words behind "openreg sanitizer: ",
        "count": how often it was found,
        "bytes": [begin, end) of the first bytes that are concerned, in the block of "second",
        "first", "second": null or
          {"operator": "aten::add_", "argument": "self", "mode": "reads", "writes", ...,
           "shape": [], "dtype": "float32", "device": the number of the tensor's device,
           "stream": a number, 0 for the default one, -1 for the host; "stream_device": a number,
           "stack": [[file, line, function], ...] from the innermost on, empty if it is not known,
           "forward": null, or of a backward the stack of the forward,
           "block": null or {"bytes", "stack": where allocated, "freed": null or where}},
        "event": null or {"recorded": stack, "waited": stack, "waited_early": true or false},
        "remedy": a sentence, "text": what is printed,
        "processes": [{"pid", "count", and where there are "rank" and "test": of whom}]}],
     "suppressed": {name of a suppression: how many findings it kept from being told},
     "unused_suppressions": [names],
     "counters": {what the sanitizers did and did not do}}

Nothing here imports PyTorch or what imports it: the program will, and once is enough.
"""

import argparse
import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import IO

from ..sanitizer import messages, settings
from ..sanitizer.collection import Collection
from ..sanitizer.suppressions import read as read_suppressions
from . import run
from .executable import WRONG_ARGUMENTS, CannotRunError, become, cut, resolve
from .signals import (
    block_signals,
    die_with,
    end_by,
    open_signals,
    read_signals,
    restore_signals,
)
from .cli import make_parser

_DESCRIPTION = (
    "Runs a program to its end and tells where it accesses memory in no order: between streams, "
    "after it was freed, from the host, before it was written. COMMAND is as for `openreg run`, "
    "which may stand there too. What it starts is watched as well."
)
_EXAMPLES = (
    "openreg sanitize train.py --lr 0.1",
    "openreg sanitize openreg run pytest",
    "openreg sanitize --only race,use-after-free openreg run --ranks 2 train.py",
)
_STATUSES = (
    (86, "or what --error-exitcode says, when something was found"),
    ("the command's", "else, 128 and its number for that of a signal"),
    (WRONG_ARGUMENTS, "for words, or values of variables, that are not allowed"),
    (126, "when the command cannot be run"),
    (127, "when it is not found"),
)
_MORE = "docs/sanitizer.md tells what is found and how to read it."
_USAGE = "openreg sanitize [options] COMMAND [argument ...]"

WITH_VALUE = {"--error-exitcode", "--only", "--json", "--suppressions"}
_LONGEST_ADDRESS = 100  # of a socket, in bytes: sockaddr_un has 108


# ---- arguments -----------------------------------------------------------------------------------


def _checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return a type of arguments: words that a function does not refuse."""

    def word(text: str) -> str:
        try:
            check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return word


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options, which stand before the command."""
    made = make_parser(
        "openreg sanitize",
        _DESCRIPTION,
        _STATUSES,
        usage=_USAGE,
        examples=_EXAMPLES,
        more=_MORE,
    )
    made.add_argument(
        "--error-exitcode",
        metavar="N",
        type=_checked(settings.exitcode_named),
        help="the exit status when something was found: 0 to 255, where 0 leaves the command's; 86",
    )
    made.add_argument(
        "--only",
        metavar="KIND[,KIND...]",
        type=_checked(settings.kinds_named),
        help="what to look for: race, use-after-free, host-access, uninitialised-read, "
        "unordered-event, never-waited, out-of-bounds; all of it",
    )
    made.add_argument("--json", metavar="FILE", help="write what was found to a file as well")
    made.add_argument(
        "--suppressions",
        metavar="FILE",
        type=_checked(read_suppressions),
        help="what is not to be told, with reasons",
    )
    made.add_argument(
        "--stacks", action="store_true", help="whole stacks, with the frames of libraries"
    )
    made.add_argument(
        "--leaks", action="store_true", help="also tell what is allocated when the program ends"
    )
    return made


def _parse(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    made = parser()
    options, command = cut(words, WITH_VALUE)
    chosen = made.parse_args(options)
    for option in WITH_VALUE:
        if getattr(chosen, option[2:].replace("-", "_")) == "":
            made.error(f"argument {option}: expected a value")
    if not command or not command[0]:
        made.error("expected a COMMAND")
    if command == ["-m"]:
        made.error("expected a module behind -m")
    return chosen, command


def _environment(chosen: argparse.Namespace, address: str) -> dict[str, str]:
    """Return the environment of the command; raise what is not allowed in it."""
    variables = {
        settings.ENABLED: "1",
        settings.SOCKET: address,
        settings.EXITCODE: chosen.error_exitcode,
        settings.ONLY: chosen.only,
        settings.SUPPRESSIONS: chosen.suppressions,
        settings.STACKS: "1" if chosen.stacks else None,
        settings.LEAKS: "1" if chosen.leaks else None,
    }
    environment = run.with_programs(os.environ)
    environment |= {name: value for name, value in variables.items() if value is not None}
    if file := environment.get(settings.SUPPRESSIONS):
        environment[settings.SUPPRESSIONS] = os.path.abspath(file)  # a child may be elsewhere
    return environment


def _settings(environment: dict[str, str]) -> settings.Settings:
    try:
        return settings.from_environment(environment)
    except ValueError as error:
        raise CannotRunError(WRONG_ARGUMENTS, str(error)) from None


def _open_json(file: str | None) -> IO[str] | None:
    if file is None:
        return None
    try:
        return open(file, "w", encoding="utf-8")
    except OSError as error:
        raise CannotRunError(WRONG_ARGUMENTS, f"openreg: {file}: {error.strerror}") from None


# ---- the command ---------------------------------------------------------------------------------


class _Command:
    """The command, a child of this process, and what its processes tell."""

    def __init__(self, listener: socket.socket, collection: Collection) -> None:
        self._listener, self._collection = listener, collection
        self._process = 0
        self._status: int | None = None
        self.signals: set[int] = set()  # those that came for this process

    def run(self, file: str, words: list[str], environment: dict[str, str]) -> int:
        """Start it and wait for its end; returns its status, below 0 for that of a signal."""
        mask = block_signals()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self._process = os.fork()
        if self._process == 0:
            die_with(parent)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._become(file, words, environment)
        self._signal_file = open_signals()
        with selectors.PollSelector() as selector:
            selector.register(self._signal_file, selectors.EVENT_READ, self._look_at_signals)
            selector.register(self._listener, selectors.EVENT_READ, self._take_messages)
            while self._status is None:
                for key, _ in selector.select():
                    key.data()
        self._take_messages()  # which were sent before it ended
        os.close(self._signal_file)
        restore_signals(mask)
        return self._status

    def _become(self, file: str, words: list[str], environment: dict[str, str]) -> None:
        try:
            become(file, words, environment)
        except CannotRunError as problem:
            print(problem, file=sys.stderr, flush=True)
            os._exit(problem.status)

    def _look_at_signals(self) -> None:
        for number, is_sent in read_signals(self._signal_file):
            if number == signal.SIGCHLD:
                ended, status = os.waitpid(self._process, os.WNOHANG)
                if ended:
                    self._status = os.waitstatus_to_exitcode(status)
                    return
            else:
                self.signals.add(number)
                if is_sent:
                    os.kill(self._process, number)

    def _take_messages(self) -> None:
        while (message := messages.receive(self._listener)) is not None:
            self._collection.take(message)


def _print(lines: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it; the command goes on
        sys.stderr.write(lines)
        sys.stderr.flush()


def _folder() -> str:
    """Return a new folder for the socket, whose address must be short."""
    folder = tempfile.mkdtemp(prefix="openreg-sanitize-")
    if len(os.fsencode(folder)) < _LONGEST_ADDRESS:
        return folder
    os.rmdir(folder)
    return tempfile.mkdtemp(prefix="openreg-sanitize-", dir="/tmp")


def _sanitize(chosen: argparse.Namespace, words: list[str], folder: str) -> int:
    address = os.path.join(folder, "socket")
    environment = _environment(chosen, address)
    error_exitcode = _settings(environment).exitcode
    file, arguments = resolve(words, environment["PATH"])
    json_file = _open_json(chosen.json)
    collection = Collection(_print)
    with messages.listen(address) as listener:
        command = _Command(listener, collection)
        status = command.run(file, arguments, environment)
    _print(collection.summary())
    if json_file is not None:
        with json_file:
            told = {"command": words, "status": status, **collection.as_dict()}
            json.dump(told, json_file)
    if not collection.is_empty and error_exitcode != 0:
        return error_exitcode
    # A core of this process would be of no use.
    if -status in command.signals and -status != signal.SIGQUIT:
        shutil.rmtree(folder, ignore_errors=True)
        end_by(-status)
    return status if status >= 0 else 128 - status


def main(words: Sequence[str]) -> int:
    """Run the command.

    Parameters
    ----------
    words
        Those behind ``openreg sanitize``.

    Returns
    -------
    int
        The exit status. Does not return, but ends by the signal, if the command was ended by one
        that was sent to this process, and nothing was found.
    """
    chosen, command = _parse(words)
    folder = _folder()
    try:
        return _sanitize(chosen, command, folder)
    except CannotRunError as problem:
        print(problem, file=sys.stderr)
        return problem.status
    finally:
        shutil.rmtree(folder, ignore_errors=True)
