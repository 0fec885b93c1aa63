"""What to do about a finding, in one sentence with the names and lines of the program."""

import ast
import linecache
import os

from .finding import HOST, Access, Finding, Frame, Stack

# Functions of `torch` and methods of tensors that return one tensor, their own; not those that a
# module has, too.
_MAKES = ("clone", "contiguous", "detach", "new_", "_like")


# ---- names ---------------------------------------------------------------------------------------


def api() -> str:
    """Return the module that has the functions of streams: `torch.cuda` in CUDA mode."""
    return "torch.cuda" if device_type() == "cuda" else "torch.openreg"


def device_type() -> str:
    """Return what PyTorch calls the devices."""
    return os.environ.get("OPENREG_DEVICE_TYPE") or "openreg"


def short(file: str) -> str:
    """Return a file's path as a person would say it who stands in the working folder."""
    try:
        folder = os.getcwd()
    except OSError:
        return file
    inside = os.path.join(folder, "")
    return file[len(inside) :] if file.startswith(inside) else file


class _Lines:
    """Names lines; the file is said once, with the last one."""

    def __init__(self, *frames: Frame | None) -> None:
        files = {frame.file for frame in frames if frame is not None}
        self._in_one_file = len(files) == 1

    def inner(self, frame: Frame) -> str:
        return f"line {frame.line}" if self._in_one_file else self.last(frame)

    def last(self, frame: Frame) -> str:
        return f"line {frame.line} of {short(frame.file)}"


def _makes_a_tensor(value: ast.expr) -> bool:
    """Tell whether an expression is sure to be a tensor that it has allocated."""
    if isinstance(value, ast.BinOp):
        return True
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    name, owner = value.func.attr, value.func.value
    of_torch = isinstance(owner, ast.Name) and owner.id == "torch" and name.islower()
    return of_torch or name.startswith(_MAKES) or name.endswith(_MAKES)


def _assigned(stack: Stack, seen_from: Frame | None) -> str | None:
    """Return the name that a line gives to the tensor it makes, if another line knows it by that.

    The line must be a whole statement that gives one name to a tensor.
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
    if others or isinstance(target, (ast.Tuple, ast.List)) or not _makes_a_tensor(value):
        return None
    return ast.unparse(target)


def _tensor(access: Access | None, seen_from: Frame | None) -> str:
    """Return what a line may call the tensor of an access."""
    stack = access.block.stack if access is not None and access.block is not None else ()
    if name := _assigned(stack, seen_from):
        return name
    return f"the tensor of line {stack[0].line}" if stack else "the tensor"


def _stream(access: Access, lines: _Lines, near: Access) -> str:
    """Return an expression for the stream of an access, to be written where another one is."""
    if access.stream == 0:
        index = "" if access.stream_device == near.stream_device else str(access.stream_device)
        return f"{api()}.default_stream({index})"
    place = access.place
    return f"<stream of {lines.inner(place)}>" if place is not None else f"<stream {access.stream}>"


def _before(access: Access, lines: _Lines) -> str:
    """Return when something must have been done that is to be before an access."""
    if access.stack:
        return f"before {lines.last(access.stack[0])}"
    if access.forward:
        return f"before the backward pass of {lines.last(access.forward[0])}"
    return "before it"


# ---- a sentence a kind ---------------------------------------------------------------------------


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
        return f"Submit what is at {lines.last(second.place) if second.place else 'it'} {after}."
    waits = f"{api()}.current_stream()"
    return f"Call {waits}.wait_stream({_stream(first, lines, second)}) {_before(second, lines)}."


def _record_stream(finding: Finding) -> str:
    first = finding.first
    if first is None or first.mode == "":
        return f"Keep {_tensor(first or finding.second, None)} until its last use."
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
    return f"B{before} write all of {name} that is read there{where}."


def _event(finding: Finding) -> str:
    event = finding.event
    if event is None or not event.recorded or not event.waited:
        return _order(finding)
    recorded, waited = event.recorded[0], event.waited[0]
    lines = _Lines(recorded, waited)
    if event.waited_early:
        where = f"{lines.inner(recorded)}, not at {lines.last(waited)}"
        return f"Wait for the event after it has been recorded at {where}."
    return (
        f"Record an event of its own at {lines.inner(recorded)}: what {lines.last(waited)} waits "
        "for was recorded again in between."
    )


def _wait(finding: Finding) -> str:
    first, second = finding.first, finding.second
    assert first is not None
    lines = _Lines(first.place, second.place)
    operator = first.operator.rpartition(":")[2].rstrip("_") or "the collective"
    place = f" of {lines.inner(first.place)}" if first.place is not None else ""
    return f"Call wait() on what {operator}{place} returned {_before(second, lines)}."


def _stay_inside(finding: Finding) -> str:
    second = finding.second
    place = second.place
    where = f" at {_Lines(place).last(place)}" if place is not None else ""
    if second.mode == "reads":  # an index
        what = f" as `{second.argument}`" if second.argument else ""
        return f"Give {second.operator}{where}{what} only what is within the tensor's size."
    return f"Have {second.operator or 'what is called'}{where} stay inside of the tensor."


def _let_go(finding: Finding) -> str:
    block = finding.second.block
    where = f" of {_Lines(block.stack[0]).last(block.stack[0])}" if block and block.stack else ""
    return f"Let go of the tensor{where} before the program ends."


_SENTENCES = {
    "race": _order,
    "host access": _order,
    "use after free": _record_stream,
    "uninitialised read": _write_all,
    "unordered event": _event,
    "never waited": _wait,
    "out of bounds": _stay_inside,
    "leak": _let_go,
}


def remedy(finding: Finding) -> str:
    """Return one sentence on what would mend it."""
    return _SENTENCES[finding.kind](finding)
