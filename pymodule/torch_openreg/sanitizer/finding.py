"""The findings of the sanitizer, as data classes.

This module does not need PyTorch: ``openreg sanitize`` uses it for the messages of processes.
"""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

# The kinds of findings, in the order of summaries.
KINDS = (
    "race",
    "use after free",
    "host access",
    "uninitialised read",
    "unordered event",
    "never waited",
    "out of bounds",
    "leak",
)

HOST = -1  # the stream number of accesses by the host


class Frame(NamedTuple):
    """A line of a Python program."""

    file: str
    line: int
    function: str


Stack = tuple[Frame, ...]  # innermost first


@dataclass(frozen=True)
class Block:
    """A block of memory.

    Attributes
    ----------
    bytes
        The size of the block.
    stack
        The stack of the allocation.
    freed
        The stack of the free; None if the block is not freed.
    """

    bytes: int
    stack: Stack
    freed: Stack | None


@dataclass(frozen=True)
class Access:
    """One of the two accesses of a finding.

    Attributes
    ----------
    operator, argument
        The names, such as ``aten::add_`` and ``self``; empty if unknown.
    mode
        ``reads``, ``writes`` or ``reads and writes``; empty if the access only stands for memory.
    shape, dtype
        The shape and dtype of the tensor; for a view, of the view.
    device
        The index of the tensor's device.
    stream
        The number of the stream: 0 is the default stream, -1 the host.
    stream_device
        The index of the stream's device.
    stack
        The stack of the call, without the frames of libraries; empty if unknown, as for work of an
        autograd thread.
    forward
        In the backward pass: the stack of the forward call.
    block
        The memory block.
    """

    operator: str
    argument: str
    mode: str
    shape: tuple[int, ...]
    dtype: str
    device: int
    stream: int
    stream_device: int
    stack: Stack
    forward: Stack | None
    block: Block | None

    @property
    def place(self) -> Frame | None:
        """The innermost line of the call, or of the forward call."""
        frames = self.stack or self.forward
        return frames[0] if frames else None


@dataclass(frozen=True)
class Event:
    """An event that fails to order two accesses.

    Attributes
    ----------
    recorded
        The stack of the recording that would have ordered them.
    waited
        The stack of the wait.
    waited_early
        Whether the wait came before that recording. Otherwise the event was recorded again between
        the recording and the wait.
    """

    recorded: Stack
    waited: Stack
    waited_early: bool


@dataclass(frozen=True)
class Finding:
    """An error that the sanitizer found.

    Attributes
    ----------
    kind
        One of `KINDS`.
    count
        The number of occurrences.
    bytes
        The first affected bytes: their begin and end in the block of the second access.
    first, second
        The accesses. An uninitialised read, a leak and similar findings only have the second.
    event
        The event, for an unordered event.
    """

    kind: str
    count: int
    bytes: tuple[int, int]
    first: Access | None
    second: Access
    event: Event | None

    def text(self) -> str:
        """Return the text that is printed."""
        from .text import block

        return block(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as JSON has it; a frame is a list of file, line and function."""
        return asdict(self)


# ---- from the data of the extension --------------------------------------------------------------


def _stack(frames: Any) -> Stack:
    return tuple(Frame(*frame) for frame in frames)


def _block(data: dict[str, Any] | None) -> Block | None:
    if data is None:
        return None
    freed = data["freed"]
    return Block(data["bytes"], _stack(data["stack"]), None if freed is None else _stack(freed))


def _access(data: dict[str, Any]) -> Access:
    return Access(
        operator=data["operator"],
        argument=data["argument"],
        mode=data["mode"],
        shape=tuple(data["shape"]),
        dtype=data["dtype"],
        device=data["device"],
        stream=data["stream"],
        stream_device=data.get("stream_device", data["device"]),
        stack=_stack(data["stack"]),
        forward=_stack(data["forward"]) if data["forward"] else None,
        block=_block(data["block"]),
    )


def from_dict(data: dict[str, Any]) -> Finding:
    """Return a finding from the data of the extension or of `Finding.as_dict`."""
    first, event = data["first"], data["event"]
    return Finding(
        kind=data["kind"],
        count=data["count"],
        bytes=tuple(data["bytes"]),
        first=None if first is None else _access(first),
        second=_access(data["second"]),
        event=None
        if event is None
        else Event(_stack(event["recorded"]), _stack(event["waited"]), event["waited_early"]),
    )
