"""``openreg smi``: show the devices, how much of each is in use, and the processes that use it.

The processes of one user and device group share devices, as processes share the GPUs of a machine.
The command reads the shared state from outside: it joins no group and initializes no device.

``--json`` writes one JSON object. Its members keep their names and meanings; later versions may add
members::

    {"version": 1,
     "time_ns": time of the snapshot, in nanoseconds since 1970,
     "groups": [
       {"group": "group-" and OPENREG_GROUP, or "alike-" and digits for processes without it,
        "in_use": false if there are no processes and the devices are those of this configuration,
        "devices": [
          {"device": index, from 0,
           "profile": "h100", "name": "NVIDIA H100 80GB HBM3",
           "numa_node": a number, or null if unknown,
           "cpuset": "0-15", or null if unknown,
           "uuid": unique id,
           "total_bytes": capacity, "used_bytes": memory in use by all processes,
           "busy_percent": recent utilization, 0 to 100, or null if unknown}],
        "processes": [
          {"pid": a number,
           "name": command line, shortened,
           "has_exited": true if only processes that imported its memory still use it,
           "started_ns": time at which it initialized its devices, like time_ns,
           "bytes": [memory in use on each device]}]}],
     "problem": null, or sentences about what could not be shown, each on a line}

With ``--watch``, each line is one such object.
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

from .cli import USAGE_STATUS, make_parser
from .smi_table import Style, draw

# A little longer than the shortest sampling interval of device/ledger/utilization.c.
_SAMPLE_SECONDS = 0.11

# Terminal codes: move to the upper left corner, clear the rest of the line, clear the rest below.
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = make_parser(
        "openreg smi",
        "Shows the simulated devices of every device group of this user: their placement, how "
        "much of their memory is in use, and which processes use it. If no group exists, shows "
        "the devices that a new process would find. Joins no group and initializes no device.",
        (
            (0, "success"),
            (1, "something could not be shown; stderr says what"),
            USAGE_STATUS,
        ),
        examples=("openreg smi --watch", "openreg smi --json"),
        more="Colours appear on terminals only. NO_COLOR disables them.",
    )
    made.add_argument(
        "--group", metavar="NAME", help="show only this group (a value of OPENREG_GROUP)"
    )
    made.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object, sizes in bytes; torch_openreg.commands.smi describes it",
    )
    made.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        type=_seconds,
        const=1.0,
        help="repeat every SECONDS (default 1) until Ctrl-C",
    )
    return made


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of seconds, 0.1 to 86400")
    return seconds


def take(group: str | None = None) -> dict[str, Any]:
    """Take the snapshot that ``--json`` writes.

    Parameters
    ----------
    group
        The value of OPENREG_GROUP, or the name in the snapshot, of the only group to include.

    Returns
    -------
    dict
        The snapshot, as described above.
    """
    from .. import _C  # not at the top: it needs PyTorch, which parsing the options does not

    problems, groups = [], []
    try:
        seen, problem = _sample(group)
        problems = [line for line in (problem or "").splitlines() if _names(line, group)]
        groups = [_group(shown, in_use=True) for shown in seen if _is_meant(shown, group)]
        if not groups:
            preview = _C.ledger_preview()
            groups = [_group(preview, in_use=False)] if _is_meant(preview, group) else []
    except RuntimeError as error:
        problems.append(str(error).splitlines()[0])  # PyTorch appends a C++ stack
    if not groups and not problems:
        problems.append(f"openreg: there is no group {group!r} with processes")
    return {
        "version": 1,
        "time_ns": time.time_ns(),
        "groups": groups,
        "problem": "\n".join(problems) or None,
    }


def _sample(group: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """Return all groups, and what could not be shown. Utilization needs two samples."""
    from .. import _C

    seen, problem = _C.ledger_list()
    meant = [shown for shown in seen if _is_meant(shown, group)]
    if any(device["busy_percent"] < 0 for shown in meant for device in shown["devices"]):
        time.sleep(_SAMPLE_SECONDS)
        seen, problem = _C.ledger_list()
    return seen, problem


def _is_meant(shown: dict[str, Any], group: str | None) -> bool:
    if group is None:  # planners compute nothing (torch_openreg.plans)
        return not shown["group"].startswith("group-planner-")
    return group in (shown["group"], shown["group"].removeprefix("group-"))


def _names(problem: str, group: str | None) -> bool:
    """Return whether a sentence is about this group (by its control file) or about all groups."""
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


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Parameters
    ----------
    arguments
        The arguments after ``openreg smi``.

    Returns
    -------
    int
        The exit status.
    """
    chosen = parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        if chosen.watch is None:
            lines, problems = _show(chosen)
            _write(lines, problems)
            return 1 if problems else 0
        _watch(chosen)
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        # The reader is gone. Python would print an error when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _show(chosen: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the lines to show, and sentences about what could not be shown."""
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
    """Replace the contents of the screen in one write, so that nothing flickers or scrolls."""
    room = max(shutil.get_terminal_size().lines - 1, 1)
    if len(lines) > room:
        lines = lines[: room - 1] + [f"... {len(lines) - room + 1} more lines"]
    text = "".join(f"{line}{_CLEAR_LINE}\n" for line in lines)
    sys.stdout.write(_HOME + text + _CLEAR_BELOW)
    sys.stdout.flush()


def _watch(chosen: argparse.Namespace) -> NoReturn:
    over = not chosen.json and Style.of(sys.stdout).redraws
    while True:
        lines, problems = _show(chosen)
        if over:
            _write_over(lines + problems)
        else:
            _write(lines, problems)
        time.sleep(chosen.watch)
