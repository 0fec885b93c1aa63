"""Formats a finding as a block of lines, and the summary of all findings.

::

    openreg sanitizer: race
      tensor   float32 [1000] on cuda:0, allocated at train.py:9 in main
      first    train.py:9 in main: aten::fill_ writes `self` on the default stream
                   x = torch.ones(1000, device="cuda")
      second   train.py:12 in main: aten::mul reads `self` on stream 3
                   y = x * 2
      remedy   Call torch.cuda.current_stream().wait_stream(...) before line 12 of train.py.
"""

import linecache
from collections.abc import Iterable

from .finding import HOST, KINDS, Access, Finding, Frame, Stack
from .remedies import device_type, remedy, short

PREFIX = "openreg sanitizer: "
_SOURCE = " " * 15
# Work that no line of the program submitted, such as the work of a queue's own thread.
_UNKNOWN = "unknown location"


def _at(frame: Frame) -> str:
    function = "" if frame.function in ("", "<module>") else f" in {frame.function}"
    return f"{short(frame.file)}:{frame.line}{function}"


def _allocated(stack: Stack, word: str = "allocated") -> str:
    return f", {word} at {_at(stack[0])}" if stack else ""


def _kind_of_tensor(access: Access) -> str:
    shape = ", ".join(map(str, access.shape))
    return f"{access.dtype} [{shape}]" if access.dtype else "memory"


def _bytes(begin: int, end: int, size: int) -> str:
    """Return which bytes of a block are affected, or which before its start or beyond its end."""
    if begin >= end or (begin, end) == (0, size):
        return ""
    if begin < 0:
        return f"; bytes {-begin} to {1 - end} before its start"
    last = f"; bytes {begin} to {end - 1}"
    return last + (f", beyond its end at {size}" if begin >= size else f" of {size}")


def _tensor(access: Access, finding: Finding | None = None) -> str:
    """Describe the memory of an access and, with a finding, the affected bytes."""
    text = _kind_of_tensor(access)
    if access.device >= 0:
        text += f" on {device_type()}:{access.device}"
    elif access.block is not None:
        text += " in pinned memory"
    block = access.block
    if block is None:
        return text
    text += _allocated(block.stack)
    if block.freed is not None:
        text += _allocated(block.freed, "freed") or ", freed"
    begin, end = finding.bytes if finding is not None else (0, 0)
    return text + _bytes(begin, end, block.bytes)


def _where(access: Access) -> str:
    if access.stream == HOST:
        return "by the host"
    return "on the default stream" if access.stream == 0 else f"on stream {access.stream}"


def _source(frame: Frame) -> list[str]:
    line = linecache.getline(frame.file, frame.line).strip()
    return [f"{_SOURCE}{line}"] if line else []


def _callers(stack: Stack) -> list[str]:
    return [f"{_SOURCE[:-4]}called at {_at(frame)}" for frame in stack[1:]]


def _stack_lines(name: str, stack: Stack, what: str, whole: bool) -> list[str]:
    lines = [f"  {name:8} {_at(stack[0])}{what}", *_source(stack[0])]
    return lines + _callers(stack) if whole else lines


def _access(name: str, access: Access, other: Access | None, whole: bool) -> list[str]:
    """Return the lines of an access. They describe its tensor if it differs from the other one."""
    argument = f"`{access.argument}`" if access.argument else ""
    if not argument and access.operator and access.mode == "writes":
        argument = "its result"
    does = " ".join(filter(None, (access.mode, argument)))
    what = " ".join(filter(None, (access.operator, does)))
    if other is not None and (access.shape, access.dtype) != (other.shape, other.dtype):
        what += f", {_kind_of_tensor(access)},"
    what = f"{what} {_where(access)}".strip()
    if access.stack:
        lines = _stack_lines(name, access.stack, f": {what}", whole)
        if access.forward:
            lines += _stack_lines("", access.forward, ": the forward of this backward", whole)
        return lines
    if access.forward:
        return _stack_lines(name, access.forward, f": backward of this line: {what}", whole)
    return [f"  {name:8} {_UNKNOWN}: {what}"]


def _event(finding: Finding) -> list[str]:
    event = finding.event
    if event is None:
        return []
    why = ": before it was recorded" if event.waited_early else ": when it was recorded again"
    lines = []
    for name, stack, what in (
        ("recorded", event.recorded, ""),
        ("waited", event.waited, why),
    ):
        if stack:
            lines += _stack_lines(name, stack, what, False)
    return lines


def with_notes(text: str, notes: Iterable[tuple[str, str]]) -> str:
    """Return the text of a finding as it is printed, with more lines: pairs of a label and a text.

    It starts with an empty line, because the program may have printed an incomplete line.
    """
    return "\n" + text + "".join(f"  {word:8} {note}\n" for word, note in notes)


def block(finding: Finding, whole: bool = False) -> str:
    """Return the text of a finding.

    Parameters
    ----------
    finding
        The finding.
    whole
        Whether to include whole stacks.
    """
    first, second = finding.first, finding.second
    lines = [PREFIX + finding.kind]
    if first is not None and first.mode == "":  # it only stands for the memory
        first = None
    if finding.kind == "use after free" and first is not None:
        lines.append(f"  tensor   {_tensor(first)}")
        lines += _access("first", first, None, whole)
        lines.append(f"  reused   {_tensor(second, finding)}")
        lines += _access("second", second, None, whole)
    else:
        lines.append(f"  tensor   {_tensor(second, finding)}")
        if first is not None:
            lines += _access("first", first, second, whole)
        if second.mode:
            name = "access" if finding.kind == "out of bounds" else "read"
            lines += _access("second" if first is not None else name, second, None, whole)
    lines += _event(finding)
    lines.append(f"  remedy   {remedy(finding)}")
    return "\n".join(lines) + "\n"


# ---- at the end ----------------------------------------------------------------------------------


def summary(counts: Iterable[tuple[str, int]], suppressed: int, processes: int = 1) -> str:
    """Return the summary line. If there are findings, an empty line precedes it.

    Parameters
    ----------
    counts
        The kind and the number of occurrences of each finding.
    suppressed
        The number of suppressed findings.
    processes
        The number of processes with findings.
    """
    counts = list(counts)
    by_kind = {kind: [count for found, count in counts if found == kind] for kind in KINDS}
    kinds = ", ".join(f"{len(of)} {kind}" for kind, of in by_kind.items() if of)
    number = f"{len(counts)} finding{'s' if len(counts) > 1 else ''}" if counts else "nothing found"
    text = ("\n" if counts else "") + PREFIX + number
    if counts:
        text += f" ({kinds})"
        if processes > 1:
            text += f" in {processes} processes"
        total = sum(count for _, count in counts)
        if total > len(counts):
            text += f", {total} occurrences"
    if suppressed:
        text += f"; {suppressed} suppressed"
    return text + "\n"
