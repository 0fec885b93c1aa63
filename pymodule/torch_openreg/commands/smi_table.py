"""Draws a snapshot of ``openreg smi`` as lines of text."""

import os
import time
import unicodedata
from dataclasses import dataclass
from typing import Any, TextIO

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_GAP = 2
_LARGEST_BAR, _LARGEST_WIDTH = 24, 120

# The bar of a device turns yellow, then red, above these shares of its memory.
_YELLOW_SHARE, _RED_SHARE = 0.5, 0.9


@dataclass(frozen=True)
class Style:
    """What the output supports.

    Parameters
    ----------
    colour
        Whether it supports escape sequences for colours.
    blocks
        Whether it supports block characters for bars, and an ellipsis.
    redraws
        Whether it supports escape sequences that move the cursor.
    """

    colour: bool
    blocks: bool
    redraws: bool

    @classmethod
    def of(cls, stream: TextIO) -> "Style":
        """Return the style of a stream, which NO_COLOR and TERM affect."""
        terminal = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        try:
            "█▏…".encode(stream.encoding or "ascii")
            blocks = True
        except (UnicodeEncodeError, LookupError):
            blocks = False
        return cls(terminal and not os.environ.get("NO_COLOR"), blocks, terminal)

    def paint(self, text: str, code: str) -> str:
        """Return the text in a colour: the number of an escape sequence, or "" for none."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code and text.strip() else text


_BOLD, _DIM, _RED, _GREEN, _YELLOW = "1", "2", "31", "32", "33"


@dataclass
class _Column:
    """A column of a table: its heading, and the text and colour of each row."""

    heading: str
    texts: list[str]
    codes: list[str]
    right: bool = False
    width: int = -1  # -1: as wide as the texts

    def __post_init__(self) -> None:
        if self.width < 0:
            self.width = max(_cells(text) for text in [self.heading, *self.texts])


# ---- texts ---------------------------------------------------------------------------------------


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def _cells(text: str) -> int:
    """Return the number of terminal cells of a text."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _cut(text: str, width: int, style: Style) -> str:
    if _cells(text) <= width:
        return text
    end = ("…" if style.blocks else "...")[:width]
    while _cells(text) > width - len(end):
        text = text[:-1]
    return text + end


def _pad(text: str, width: int, right: bool) -> str:
    blank = " " * (width - _cells(text))
    return blank + text if right else text + blank


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _unit_of(size: int) -> int:
    unit = 0
    while size >= 1024 ** (unit + 1) and unit + 1 < len(_UNITS):
        unit += 1
    return unit


def _size(size: int, unit: int) -> str:
    return f"{size / 1024**unit:.1f}" if unit > 0 else str(size)


def _full_size(size: int) -> str:
    unit = _unit_of(size)
    return f"{_size(size, unit)} {_UNITS[unit]}"


# ---- columns -------------------------------------------------------------------------------------


def _share(device: dict[str, Any]) -> float:
    """Return the share in use, from 0 to 1 even if the control file is damaged."""
    total = device["total_bytes"]
    return min(device["used_bytes"] / total, 1.0) if total > 0 else 0.0


def _bar(share: float, width: int, style: Style) -> str:
    if not style.blocks:
        full = round(share * width)
        return "#" * full + "." * (width - full)
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (chr(ord("█") + 8 - rest) if rest else "")).ljust(width)


def devices_table(devices: list[dict[str, Any]], room: int, style: Style) -> list[str]:
    """Return the table of devices, with a row for each device."""
    shares = [_share(device) for device in devices]
    units = [_unit_of(device["total_bytes"]) for device in devices]
    colours = [
        _RED if share > _RED_SHARE else _YELLOW if share > _YELLOW_SHARE else _GREEN
        for share in shares
    ]
    plain = [""] * len(devices)

    def column(heading: str, texts: list[str], right: bool = False) -> _Column:
        return _Column(heading, [_printable(text) for text in texts], plain, right)

    number = column("device", [str(device["device"]) for device in devices], right=True)
    name = column("name", [device["name"] for device in devices])
    nodes = [device["numa_node"] for device in devices]
    node = column("node", ["-" if node is None else str(node) for node in nodes], right=True)
    cores = column("cores", [device["cpuset"] or "-" for device in devices])
    bar = _Column("", [], colours, width=_LARGEST_BAR)
    memory = column(
        "memory",
        [
            f"{_size(device['used_bytes'], unit)} / {_size(device['total_bytes'], unit)} "
            f"{_UNITS[unit]}"
            for device, unit in zip(devices, units, strict=True)
        ],
        right=True,
    )
    percent = column("", [f"{share:.0%}" for share in shares], right=True)
    busy_shares = [device["busy_percent"] for device in devices]
    busy = column(
        "busy", ["-" if share is None else f"{share}%" for share in busy_shares], right=True
    )

    columns = [number, name, node, cores, bar, memory, percent, busy]
    for shrunk, least in (
        *((bar, 10), (cores, 8), (name, 12)),
        *((bar, 0), (cores, 0), (node, 0), (busy, 0), (percent, 0), (name, 4)),
    ):
        _shrink(columns, shrunk, least, room)
    bar.texts = [_bar(share, bar.width, style) for share in shares]
    return _lines(columns, room, style)


def processes_table(group: dict[str, Any], room: int, style: Style) -> list[str]:
    """Return the table of processes: a row for each process and device that it uses.

    A process that uses no device has one row.
    """
    rows = []
    for number in range(len(group["devices"])):
        for process in group["processes"]:
            if process["bytes"][number] > 0:
                rows.append((str(number), process, process["bytes"][number]))
    rows += [("-", process, 0) for process in group["processes"] if not any(process["bytes"])]
    codes = [_DIM if process["has_exited"] else "" for _, process, _ in rows]
    names = [
        ("(exited, in use by others) " if process["has_exited"] else "") + process["name"]
        for _, process, _ in rows
    ]
    columns = [
        _Column("device", [device for device, _, _ in rows], codes, right=True),
        _Column("pid", [str(process["pid"]) for _, process, _ in rows], codes, right=True),
        _Column("memory", [_full_size(size) for _, _, size in rows], codes, right=True),
        _Column("process", [_printable(name) for name in names], codes),
    ]
    _shrink(columns, columns[-1], 1, room)
    return _lines(columns, room, style)


def _needed(columns: list[_Column]) -> int:
    return sum(column.width + _GAP for column in columns if column.width > 0)


def _shrink(columns: list[_Column], column: _Column, least: int, room: int) -> None:
    """Shrink a column until the table fits, to `least` cells at most. With 0, remove it."""
    excess = _needed(columns) - room
    if excess > 0:
        column.width = min(column.width, max(column.width - excess, least)) if least > 0 else 0


def _lines(columns: list[_Column], room: int, style: Style) -> list[str]:
    columns = [column for column in columns if column.width > 0]
    gap = " " * _GAP

    def line(cells: list[tuple[str, str]]) -> str:
        """Join cells into a line, and cut it if even the smallest columns do not fit."""
        painted, left = "", room
        for text, code in cells:
            piece = _cut(gap + text, left, style)
            painted += style.paint(piece, code)
            left -= _cells(piece)
        return painted if style.colour else painted.rstrip()

    def cell(column: _Column, text: str, code: str) -> tuple[str, str]:
        return _pad(_cut(text, column.width, style), column.width, column.right), code

    heading = line([cell(column, column.heading, _DIM) for column in columns])
    rows = range(len(columns[0].texts))
    return [heading] + [
        line([cell(column, column.texts[row], column.codes[row]) for column in columns])
        for row in rows
    ]


# ---- the page ------------------------------------------------------------------------------------


def _ends(left: str, right: str, room: int, style: Style, code: str = "") -> str:
    """Put one text at each end of a line. The left one is cut if both do not fit."""
    left = _cut(_printable(left), max(room - _cells(right) - _GAP, 0), style)
    blank = " " * max(room - _cells(left) - _cells(right), 0)
    return style.paint(left, code) + blank + _cut(right, room, style)


def _draw_group(group: dict[str, Any], room: int, style: Style) -> list[str]:
    processes = len(group["processes"])
    counts = _count(len(group["devices"]), "device", "devices") + ", "
    counts += _count(processes, "process", "processes") if processes else "no processes"
    name = group["group"].removeprefix("group-")
    lines = ["", _ends(f"group {name}", counts, room, style, _BOLD)]
    lines += devices_table(group["devices"], room, style)
    if group["processes"]:
        lines += ["", *processes_table(group, room, style)]
    return lines


def draw(snapshot: dict[str, Any], columns: int, style: Style) -> list[str]:
    """Draw a snapshot that `smi.take` took.

    Parameters
    ----------
    snapshot
        The snapshot.
    columns
        The width of the terminal. No line is wider.
    style
        What the terminal supports.

    Returns
    -------
    list of str
        The lines.
    """
    room = max(min(columns, _LARGEST_WIDTH), 1)
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot["time_ns"] // 10**9))
    lines = [_ends("openreg smi", moment, room, style, _BOLD)]
    for group in snapshot["groups"]:
        lines += _draw_group(group, room, style)
    return lines
