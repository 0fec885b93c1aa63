"""What the sanitizer found, as values.

Nothing here needs PyTorch: ``openreg sanitize`` reads what processes send it.
"""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

# What `--only` and suppressions call them, in the order in which summaries name them.
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

HOST = -1  # as a stream


class Frame(NamedTuple):
    """A place in a Python program."""

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
        Its size.
    stack
        Where it was allocated.
    freed
        Where it was freed; None if it is not.
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
        ``aten::add_`` and ``self``; empty where it is not known.
    mode
        ``reads``, ``writes`` or ``reads and writes``; empty where only memory is meant.
    shape, dtype
        Of the tensor, or the part of one that a view is.
    device
        The number of the tensor's device.
    stream
        The number of the stream: 0 is the default one, -1 the host.
    stream_device
        The number of the stream's device.
    stack
        Where it was called, the program's own frames; empty if that is not known, as of what an
        autograd thread does.
    forward
        Of a backward: where the forward was called.
    block
        The memory.
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
        """Where it was called, or what it is the backward of."""
        frames = self.stack or self.forward
        return frames[0] if frames else None


@dataclass(frozen=True)
class Event:
    """The event that does not order two accesses.

    Attributes
    ----------
    recorded
        Where it was recorded such that a wait for that would have been enough.
    waited
        Where it was waited for.
    waited_early
        Whether that was before the recording; else it had been recorded again in between.
    """

    recorded: Stack
    waited: Stack
    waited_early: bool


@dataclass(frozen=True)
class Finding:
    """Something that the sanitizer found.

    Attributes
    ----------
    kind
        One of `KINDS`.
    count
        How often it was found.
    bytes
        The first bytes that are concerned: where they begin and end in the second one's block.
    first, second
        The accesses. Of an uninitialised read, a leak and the like there is only the second.
    event
        Of an unordered event: the event.
    """

    kind: str
    count: int
    bytes: tuple[int, int]
    first: Access | None
    second: Access
    event: Event | None

    def text(self) -> str:
        """Return the block of lines that is printed."""
        from .text import block

        return block(self)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it; a frame is a list of file, line and function."""
        return asdict(self)


# ---- from what the extension tells ---------------------------------------------------------------


def _stack(frames: Any) -> Stack:
    return tuple(Frame(*frame) for frame in frames)


def _block(told: dict[str, Any] | None) -> Block | None:
    if told is None:
        return None
    freed = told["freed"]
    return Block(told["bytes"], _stack(told["stack"]), None if freed is None else _stack(freed))


def _access(told: dict[str, Any]) -> Access:
    return Access(
        operator=told["operator"],
        argument=told["argument"],
        mode=told["mode"],
        shape=tuple(told["shape"]),
        dtype=told["dtype"],
        device=told["device"],
        stream=told["stream"],
        stream_device=told.get("stream_device", told["device"]),
        stack=_stack(told["stack"]),
        forward=_stack(told["forward"]) if told["forward"] else None,
        block=_block(told["block"]),
    )


def from_dict(told: dict[str, Any]) -> Finding:
    """Return a finding, as the extension or `Finding.as_dict` tells it."""
    first, event = told["first"], told["event"]
    return Finding(
        kind=told["kind"],
        count=told["count"],
        bytes=tuple(told["bytes"]),
        first=None if first is None else _access(first),
        second=_access(told["second"]),
        event=None
        if event is None
        else Event(_stack(event["recorded"]), _stack(event["waited"]), event["waited_early"]),
    )
