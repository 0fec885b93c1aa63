"""Writes the remedy of a finding: one sentence with the names and lines of the program."""

import ast
import linecache
import os

from .finding import HOST, Access, Finding, Frame, Stack

# Parts of the names of functions that return a newly allocated tensor and that modules lack.
_ALLOCATES = ("clone", "contiguous", "detach", "new_", "_like")


# ---- names ---------------------------------------------------------------------------------------


def api() -> str:
    """Return the module of the devices: `torch.cuda` in CUDA mode."""
    return "torch.cuda" if device_type() == "cuda" else "torch.openreg"


def device_type() -> str:
    """Return the device type of the devices."""
    return os.environ.get("OPENREG_DEVICE_TYPE") or "openreg"


def short(file: str) -> str:
    """Return a file's path, relative to the working folder if the file is inside it."""
    try:
        folder = os.getcwd()
    except OSError:
        return file
    inside = os.path.join(folder, "")
    return file[len(inside) :] if file.startswith(inside) else file


class _Lines:
    """Names lines of the program. If all are in one file, only the last name includes it."""

    def __init__(self, *frames: Frame | None) -> None:
        files = {frame.file for frame in frames if frame is not None}
        self._in_one_file = len(files) == 1

    def inner(self, frame: Frame) -> str:
        return f"line {frame.line}" if self._in_one_file else self.last(frame)

    def last(self, frame: Frame) -> str:
        return f"line {frame.line} of {short(frame.file)}"


def _allocates_tensor(value: ast.expr) -> bool:
    """Return whether an expression certainly is a tensor that it has allocated."""
    if isinstance(value, ast.BinOp):
        return True
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    name, owner = value.func.attr, value.func.value
    of_torch = isinstance(owner, ast.Name) and owner.id == "torch" and name.islower()
    return of_torch or name.startswith(_ALLOCATES) or name.endswith(_ALLOCATES)


def _assigned(stack: Stack, seen_from: Frame | None) -> str | None:
    """Return the variable to which a line assigns its tensor, if another line can use it.

    The line must be a complete statement that assigns a tensor to one variable.
    """
    if not stack or seen_from is None:
        return None
    made = stack[0]
    if (made.file, made.function) != (seen_from.file, seen_from.function):
        return None
    try:
        statements = ast.parse(linecache.getline(made.file, made.line).strip()).body
    except (SyntaxError, ValueError):
        return None
    if len(statements) != 1 or not isinstance(statements[0], ast.Assign):
        return None
    (*others, target), value = statements[0].targets, statements[0].value
    if others or isinstance(target, (ast.Tuple, ast.List)) or not _allocates_tensor(value):
        return None
    return ast.unparse(target)


def _tensor(access: Access | None, seen_from: Frame | None) -> str:
    """Return a name for the tensor of an access."""
    stack = access.block.stack if access is not None and access.block is not None else ()
    if name := _assigned(stack, seen_from):
        return name
    return f"the tensor of line {stack[0].line}" if stack else "the tensor"


def _stream(access: Access, lines: _Lines, near: Access) -> str:
    """Return an expression for the stream of an access, for use at another access."""
    if access.stream == 0:
        index = "" if access.stream_device == near.stream_device else str(access.stream_device)
        return f"{api()}.default_stream({index})"
    place = access.place
    return f"<stream of {lines.inner(place)}>" if place is not None else f"<stream {access.stream}>"


def _before(access: Access, lines: _Lines) -> str:
    """Return "before" and the line of an access."""
    if access.stack:
        return f"before {lines.last(access.stack[0])}"
    if access.forward:
        return f"before the backward pass of {lines.last(access.forward[0])}"
    return "before this access"


# ---- one function per kind -----------------------------------------------------------------------


def _order(finding: Finding) -> str:
    first, second = finding.first, finding.second
    assert first is not None
    lines = _Lines(first.place, second.place)
    if second.stream == HOST:
        stream = _stream(first, lines, first)
        return f"Call {stream}.synchronize() {_before(second, lines)}."
    if first.stream == HOST:
        place = first.place
        after = f"after {lines.inner(place)}" if place else "after the host's access"
        work = f"the work of {lines.last(second.place)}" if second.place else "the work"
        return f"Submit {work} {after}."
    waits = f"{api()}.current_stream()"
    return f"Call {waits}.wait_stream({_stream(first, lines, second)}) {_before(second, lines)}."


def _record_stream(finding: Finding) -> str:
    first = finding.first
    if first is None or first.mode == "":
        return f"Keep {_tensor(first or finding.second, None)} alive until its last use."
    place = first.place
    if place is None:
        return f"Call record_stream() on {_tensor(first, None)} with the stream that uses it."
    name = _tensor(first, place)
    call = f"{name}.record_stream" if not name.startswith("the ") else "record_stream"
    on = "" if not name.startswith("the ") else f" on {name}"
    where = f"after {_Lines(place).last(place)}"
    if first.stack:
        return f"Call {call}({api()}.current_stream()){on} {where}."
    return f"Call {call}(<stream of {_Lines(place).inner(place)}>){on} {where}."


def _write_all(finding: Finding) -> str:
    second = finding.second
    block = (finding.first.block if finding.first is not None else None) or second.block
    stack = block.stack if block is not None else ()
    lines = _Lines(second.place, stack[0] if stack else None)
    name = _assigned(stack, second.place) or "the tensor"
    where = f", or allocate it with zeros at {lines.inner(stack[0])}" if stack else ""
    before = _before(second, lines).removeprefix("b")
    return f"B{before}, write all elements of {name} that are read there{where}."


def _event(finding: Finding) -> str:
    event = finding.event
    if event is None or not event.recorded or not event.waited:
        return _order(finding)
    recorded, waited = event.recorded[0], event.waited[0]
    lines = _Lines(recorded, waited)
    if event.waited_early:
        return (
            f"Wait for the event after {lines.inner(recorded)} records it, not at "
            f"{lines.last(waited)}."
        )
    return (
        f"Record a separate event at {lines.inner(recorded)}: the event was recorded again before "
        f"{lines.last(waited)} waited for it."
    )


def _wait(finding: Finding) -> str:
    first, second = finding.first, finding.second
    assert first is not None
    lines = _Lines(first.place, second.place)
    operator = first.operator.rpartition(":")[2].rstrip("_") or "the collective"
    place = f" at {lines.inner(first.place)}" if first.place is not None else ""
    before = _before(second, lines).removeprefix("b")
    return f"B{before}, call wait() on the work that {operator} returned{place}."


def _stay_inside(finding: Finding) -> str:
    second = finding.second
    place = second.place
    where = f" at {_Lines(place).last(place)}" if place is not None else ""
    if second.mode == "reads":  # an index
        values = f"values of `{second.argument}`" if second.argument else "indices"
        return f"Pass {second.operator}{where} only {values} within the tensor's size."
    operator = second.operator or "the operator"
    return f"Make {operator}{where} access only memory inside the tensor."


def _release(finding: Finding) -> str:
    block = finding.second.block
    where = ""
    if block and block.stack:
        where = f" allocated at {_Lines(block.stack[0]).last(block.stack[0])}"
    return f"Release the tensor{where} before the program ends."


_SENTENCES = {
    "race": _order,
    "host access": _order,
    "use after free": _record_stream,
    "uninitialised read": _write_all,
    "unordered event": _event,
    "never waited": _wait,
    "out of bounds": _stay_inside,
    "leak": _release,
}


def remedy(finding: Finding) -> str:
    """Return one sentence that says how to fix a finding."""
    return _SENTENCES[finding.kind](finding)
