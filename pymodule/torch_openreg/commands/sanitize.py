"""``openreg sanitize COMMAND``: run a program and its child processes under the sanitizer.

This process sets environment variables, starts the command, and prints what any of its processes
finds. If there are findings, it exits with a status of its own. It forwards signals to the command;
if this process is killed, the system kills the command. The sanitizer does not change the device
type: ``openreg sanitize openreg run train.py`` runs a program that sees the devices as ``cuda``.

``--json`` writes one JSON object. Its members keep their names and meanings; later versions may add
members::

    {"version": 1,
     "command": [arguments], "status": exit status, or minus the number of a signal,
     "processes": number of watched processes,
     "findings": [
       {"kind": "race" or another kind, as printed after "openreg sanitizer: ",
        "count": number of occurrences,
        "bytes": [begin, end) of the first affected bytes, in the block of "second",
        "first", "second": null or
          {"operator": "aten::add_", "argument": "self", "mode": "reads", "writes", ...,
           "shape": [], "dtype": "float32", "device": index of the tensor's device,
           "stream": number of the stream, 0: the default stream, -1: the host,
           "stream_device": index of the stream's device,
           "stack": [[file, line, function], ...] innermost first; empty if unknown,
           "forward": stack of the forward, in the backward; otherwise null,
           "block": null or {"bytes", "stack": of the allocation, "freed": stack or null}},
        "event": null or {"recorded": stack, "waited": stack, "waited_early": true or false},
        "remedy": a sentence, "text": the printed text,
        "processes": [{"pid", "count", "rank" and "test" if known}]}],
     "suppressed": {name of a suppression: number of findings that it suppressed},
     "unused_suppressions": [names],
     "counters": {statistics of the sanitizer}}

This module does not import PyTorch, which takes seconds: only the program does.
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

from .. import variables
from ..sanitizer import messages, settings
from ..sanitizer.collection import Collection
from ..sanitizer.suppressions import read as read_suppressions
from . import run
from .cli import make_parser
from .executable import WRONG_ARGUMENTS, CannotRunError, exec_program, resolve, split_command
from .signals import (
    block_signals,
    die_with,
    end_by,
    open_signals,
    read_signals,
    restore_signals,
)

_DESCRIPTION = (
    "Runs a program and reports invalid accesses to device memory: races between streams, use "
    "after free, unsynchronized access from the host, reads of uninitialized memory. COMMAND is "
    "the same as for `openreg run`, and may itself be `openreg run`. Child processes are watched "
    "as well."
)
_EXAMPLES = (
    "openreg sanitize train.py --lr 0.1",
    "openreg sanitize openreg run pytest",
    "openreg sanitize --only race,use-after-free openreg run --ranks 2 train.py",
)
_STATUSES = (
    (86, "there are findings; --error-exitcode sets another status"),
    ("the command's", "no findings; 128 plus the number of the signal that ended it"),
    (WRONG_ARGUMENTS, "invalid arguments or invalid values of variables"),
    (126, "the command cannot be executed"),
    (127, "the command was not found"),
)
_MORE = "docs/sanitizer.md explains the findings."
_USAGE = "openreg sanitize [options] COMMAND [argument ...]"

# The options that set environment variables.
_OPTIONS = variables.options("sanitize")

WITH_VALUE = {option.flag for option in _OPTIONS if option.placeholder} | {"--json"}
_MAX_ADDRESS_BYTES = 100  # of a socket: sockaddr_un has 108


# ---- arguments -----------------------------------------------------------------------------------


def _checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return a type for argparse: text that a function accepts."""

    def checked(text: str) -> str:
        try:
            check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return checked


_CHECKS: dict[str, Callable[[str], object]] = {
    settings.EXITCODE: settings.parse_exitcode,
    settings.ONLY: settings.parse_kinds,
    settings.SUPPRESSIONS: read_suppressions,
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options before the command."""
    made = make_parser(
        "openreg sanitize",
        _DESCRIPTION,
        _STATUSES,
        usage=_USAGE,
        examples=_EXAMPLES,
        more=_MORE,
    )
    for option in _OPTIONS:
        name, text = option.variable.name, option.variable.help
        if option.placeholder:
            check = _checked(_CHECKS[name])
            made.add_argument(
                option.flag, dest=name, metavar=option.placeholder, type=check, help=text
            )
        else:
            made.add_argument(option.flag, dest=name, action="store_const", const="1", help=text)
    made.add_argument("--json", metavar="FILE", help="also write the findings to a JSON file")
    return made


def _parse(arguments: Sequence[str]) -> tuple[dict[str, str], str | None, list[str]]:
    """Return the variables that options set, the JSON file if there is one, and the command."""
    made = parser()
    options, command = split_command(arguments, WITH_VALUE)
    chosen = vars(made.parse_args(options))
    json_file = chosen.pop("json")
    values = {"--json": json_file} | {each.flag: chosen[each.variable.name] for each in _OPTIONS}
    for flag, value in values.items():
        if value == "":
            made.error(f"argument {flag}: expected a value")
    if not command or not command[0]:
        made.error("expected a COMMAND")
    if command == ["-m"]:
        made.error("expected a module after -m")
    return {name: value for name, value in chosen.items() if value is not None}, json_file, command


def _environment(chosen: dict[str, str], address: str) -> dict[str, str]:
    """Return the environment of the command."""
    environment = run.with_programs(os.environ) | chosen
    environment |= {settings.ENABLED: "1", settings.SOCKET: address}
    if file := environment.get(settings.SUPPRESSIONS):
        # A child process may have another working folder.
        environment[settings.SUPPRESSIONS] = os.path.abspath(file)
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
    """The command, which is a child process, and the messages of its processes."""

    def __init__(self, listener: socket.socket, collection: Collection) -> None:
        self._listener, self._collection = listener, collection
        self._process = 0
        self._status: int | None = None
        self.signals: set[int] = set()  # signals that this process received

    def run(self, file: str, arguments: list[str], environment: dict[str, str]) -> int:
        """Run the command to its end; return its exit status, or minus the number of a signal."""
        mask = block_signals()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self._process = os.fork()
        if self._process == 0:
            die_with(parent)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._execute(file, arguments, environment)
        self._signal_file = open_signals()
        with selectors.PollSelector() as selector:
            selector.register(self._signal_file, selectors.EVENT_READ, self._handle_signals)
            selector.register(self._listener, selectors.EVENT_READ, self._receive_messages)
            while self._status is None:
                for key, _ in selector.select():
                    key.data()
        self._receive_messages()  # messages that were sent before the command ended
        os.close(self._signal_file)
        restore_signals(mask)
        return self._status

    def _execute(self, file: str, arguments: list[str], environment: dict[str, str]) -> None:
        try:
            exec_program(file, arguments, environment)
        except CannotRunError as problem:
            print(problem, file=sys.stderr, flush=True)
            os._exit(problem.status)

    def _handle_signals(self) -> None:
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

    def _receive_messages(self) -> None:
        while (message := messages.receive(self._listener)) is not None:
            self._collection.add(message)


def _print(lines: str) -> None:
    with contextlib.suppress(OSError):  # the reader is gone; the command continues
        sys.stderr.write(lines)
        sys.stderr.flush()


def _folder() -> str:
    """Return a new folder for the socket, with a path that fits a socket address."""
    folder = tempfile.mkdtemp(prefix="openreg-sanitize-")
    if len(os.fsencode(folder)) < _MAX_ADDRESS_BYTES:
        return folder
    os.rmdir(folder)
    return tempfile.mkdtemp(prefix="openreg-sanitize-", dir="/tmp")


def _sanitize(
    chosen: dict[str, str], json_path: str | None, command: list[str], folder: str
) -> int:
    address = os.path.join(folder, "socket")
    environment = _environment(chosen, address)
    error_exitcode = _settings(environment).exitcode
    file, arguments = resolve(command, environment["PATH"])
    json_file = _open_json(json_path)
    collection = Collection(_print)
    with messages.listen(address) as listener:
        child = _Command(listener, collection)
        status = child.run(file, arguments, environment)
    _print(collection.summary())
    if json_file is not None:
        with json_file:
            report = {"command": command, "status": status, **collection.as_dict()}
            json.dump(report, json_file)
    if not collection.is_empty and error_exitcode != 0:
        return error_exitcode
    # SIGQUIT would leave a core dump of this process.
    if -status in child.signals and -status != signal.SIGQUIT:
        shutil.rmtree(folder, ignore_errors=True)
        end_by(-status)
    return status if status >= 0 else 128 - status


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Parameters
    ----------
    arguments
        The arguments after ``openreg sanitize``.

    Returns
    -------
    int
        The exit status. If nothing was found and a forwarded signal ended the command, this process
        ends by the same signal instead.
    """
    chosen, json_path, command = _parse(arguments)
    folder = _folder()
    try:
        return _sanitize(chosen, json_path, command, folder)
    except CannotRunError as problem:
        print(problem, file=sys.stderr)
        return problem.status
    finally:
        shutil.rmtree(folder, ignore_errors=True)
