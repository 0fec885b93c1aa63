"""``openreg smi``: which devices there are, how much of each is in use, and by whom.

The processes of one user and group share devices, as processes share the GPUs of a machine. What is
shown is what they share, read from outside: no group is joined and no device is initialized.

With ``--json`` the snapshot is one JSON object, whose members keep their names and meanings; new
ones may be added::

    {"version": 1,
     "time_ns": when it was taken, in nanoseconds since 1970,
     "groups": [
       {"group": "group-" and OPENREG_GROUP, or "alike-" and digits for processes without it,
        "in_use": false for what this configuration would have, when there are no processes,
        "devices": [
          {"device": its number, from 0,
           "profile": "h100", "name": "NVIDIA H100 80GB HBM3",
           "numa_node": a number, or null when it is not known,
           "cpuset": "0-15", or null when it is not known,
           "uuid": what tells it from all others,
           "total_bytes": its capacity, "used_bytes": what processes have of it,
           "busy_percent": 0 to 100, how long it worked lately; null when that is not known}],
        "processes": [
          {"pid": a number,
           "name": how it was started, cut,
           "has_exited": true when only others that imported its memory still use it,
           "started_ns": when its devices were initialized, as time_ns,
           "bytes": [what it has of each device]}]}],
     "problem": null, or what could not be shown: sentences, each on a line}

With ``--watch`` too, there is one such object a line.
"""

import argparse
import io
import json
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from .smi_table import Style, draw
from .cli import USAGE_STATUS, make_parser

# As long as the ledger needs to tell anything of it, and a little more: device/ledger/utilization.c.
_BETWEEN_LOOKS_SECONDS = 0.11

# The terminal's: to the upper left corner, to the end of the line, to the end of the screen.
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def parser() -> argparse.ArgumentParser:
    """Return the parser of its options."""
    made = make_parser(
        "openreg smi",
        "Shows the simulated devices of every group of processes of this user: where "
        "they are placed, how much of their memory is in use, and which processes have it. Where "
        "there are none, shows the devices that a process would find that is started now. Joins "
        "no group and initializes no device.",
        (
            (0, "everything was shown"),
            (1, "something could not be shown, which is then named on stderr"),
            USAGE_STATUS,
        ),
        examples=("openreg smi --watch", "openreg smi --json"),
        more="Colours are for terminals, and not there with NO_COLOR set.",
    )
    made.add_argument("--group", metavar="NAME", help="only this group, as in OPENREG_GROUP")
    made.add_argument(
        "--json",
        action="store_true",
        help="one JSON object, sizes in bytes, as described in torch_openreg.commands.smi",
    )
    made.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        type=_seconds,
        const=1.0,
        help="show it again and again, every second or as often as is said, until Ctrl-C",
    )
    return made


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, 0.1 to 86400")
    return seconds


def take(group: str | None = None) -> dict[str, Any]:
    """Take the snapshot that ``--json`` writes.

    Parameters
    ----------
    group
        Only this group, by its OPENREG_GROUP or the name that it has here.

    Returns
    -------
    dict
        As the module describes it.
    """
    from .. import _C  # which needs PyTorch: the options do not

    problems, groups = [], []
    try:
        seen, problem = _look_twice(group)
        problems = [line for line in (problem or "").splitlines() if _names(line, group)]
        groups = [_group(shown, in_use=True) for shown in seen if _is_meant(shown, group)]
        if not groups:
            preview = _C.ledger_preview()
            groups = [_group(preview, in_use=False)] if _is_meant(preview, group) else []
    except RuntimeError as error:
        problems.append(str(error).splitlines()[0])  # behind it is PyTorch's C++ stack
    if not groups and not problems:
        problems.append(f"openreg: no process is in a group {group!r}")
    return {
        "version": 1,
        "time_ns": time.time_ns(),
        "groups": groups,
        "problem": "\n".join(problems) or None,
    }


def _look_twice(group: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """All groups, and what could not be shown. How busy devices are shows between two looks."""
    from .. import _C

    seen, problem = _C.ledger_list()
    meant = [shown for shown in seen if _is_meant(shown, group)]
    if any(device["busy_percent"] < 0 for shown in meant for device in shown["devices"]):
        time.sleep(_BETWEEN_LOOKS_SECONDS)
        seen, problem = _C.ledger_list()
    return seen, problem


def _is_meant(shown: dict[str, Any], group: str | None) -> bool:
    return group is None or group in (shown["group"], shown["group"].removeprefix("group-"))


def _names(problem: str, group: str | None) -> bool:
    """Whether a sentence is about this group, by the control file that it names, or about all."""
    words = problem.split(maxsplit=2)
    if group is None or len(words) < 2:
        return True
    path = pathlib.PurePath(words[1].rstrip(":"))
    is_control_file = path.parent.name.startswith("openreg-")
    return not is_control_file or path.name in (group, f"group-{group}")


def _group(shown: dict[str, Any], in_use: bool) -> dict[str, Any]:
    devices = [
        {"device": number}
        | device
        | {
            "numa_node": device["numa_node"] if device["numa_node"] >= 0 else None,
            "cpuset": device["cpuset"] or None,
            "busy_percent": device["busy_percent"] if device["busy_percent"] >= 0 else None,
        }
        for number, device in enumerate(shown["devices"])
    ]
    return {
        "group": shown["group"],
        "in_use": in_use,
        "devices": devices,
        "processes": shown["processes"],
    }


def main(words: Sequence[str]) -> int:
    """Run the command.

    Parameters
    ----------
    words
        Those behind ``openreg smi``.

    Returns
    -------
    int
        The exit status.
    """
    chosen = parser().parse_args(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        if chosen.watch is None:
            lines, problems = _look(chosen)
            _write(lines, problems)
            return 1 if problems else 0
        _watch(chosen)
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        # Whoever read has seen enough. Python would complain when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _look(chosen: argparse.Namespace) -> tuple[list[str], list[str]]:
    """What to show, and sentences about what could not be shown."""
    snapshot = take(chosen.group)
    problems = (snapshot["problem"] or "").splitlines()
    if chosen.json:
        return [json.dumps(snapshot, indent=None if chosen.watch else 2)], problems
    columns = shutil.get_terminal_size().columns
    return draw(snapshot, columns, Style.of(sys.stdout)), problems


def _write(lines: list[str], problems: list[str]) -> None:
    if lines:
        print("\n".join(lines), flush=True)
    if problems:
        print("\n".join(problems), file=sys.stderr, flush=True)


def _write_over(lines: list[str]) -> None:
    """Over what is on the screen, in one piece, so that nothing flickers or scrolls."""
    room = max(shutil.get_terminal_size().lines - 1, 1)
    if len(lines) > room:
        lines = lines[: room - 1] + [f"... {len(lines) - room + 1} more lines"]
    text = "".join(f"{line}{_CLEAR_LINE}\n" for line in lines)
    sys.stdout.write(_HOME + text + _CLEAR_BELOW)
    sys.stdout.flush()


def _watch(chosen: argparse.Namespace) -> NoReturn:
    over = not chosen.json and Style.of(sys.stdout).redraws
    while True:
        lines, problems = _look(chosen)
        if over:
            _write_over(lines + problems)
        else:
            _write(lines, problems)
        time.sleep(chosen.watch)
