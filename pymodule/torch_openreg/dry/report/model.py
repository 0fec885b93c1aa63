"""The report as data: what `torch_openreg.dry.report` finds out about a run.

``to_json`` writes these classes as JSON objects with the same names; docs/dry-run.md explains each
member. Sizes are in bytes. This module does not import PyTorch, so that commands can use it.
"""

import json
import types
import typing
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

VERSION = 1

# Names of estimates.
CONTEXT, WORKSPACES, COMMUNICATOR = "context of the process", "workspaces of cuBLAS", "NCCL"

# The groups of memory, in the order in which the report shows them.
GROUPS = (
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "communication buffers",
    "temporaries",
    "other",
)


@dataclass
class Site:
    """Where memory was allocated: a line of the program, an operator, a module."""

    file: str = ""  # the innermost line outside of PyTorch and openreg; "" if there is none
    line: int = 0
    function: str = ""
    operator: str = ""  # such as aten::mm, or MmBackward0 for a node of autograd
    module: str = ""  # the path of the module, such as "Model.layers.0"
    # In a backward: the line of the forward whose gradient is computed.
    forward_file: str = ""
    forward_line: int = 0


@dataclass
class Peak:
    """A largest value, and when it was reached for the first time."""

    bytes: int = 0
    event: int = 0  # the number of allocations and frees of all devices before
    step: int | None = None  # None: after the last step
    phase: str = ""  # "set-up", "forward", "backward" or "optimizer"
    site: Site = field(default_factory=Site)


@dataclass
class Owner:
    """Memory of one group that the same line, operator and module allocated."""

    bytes: int = 0
    blocks: int = 0
    name: str = ""  # of a parameter, a gradient or a state; numbers are replaced by *
    site: Site = field(default_factory=Site)


@dataclass
class Group:
    """Memory of one kind. `name` is one of GROUPS."""

    name: str
    bytes: int = 0
    blocks: int = 0
    owners: list[Owner] = field(default_factory=list)  # largest first


@dataclass
class Fragmentation:
    """Memory that was reserved and not allocated when most memory was reserved."""

    reserved: int = 0
    allocated: int = 0
    # The largest request that needed new memory although more than it was cached, and that cache.
    largest_request_that_did_not_fit: int = 0
    cached_then: int = 0


@dataclass
class OutOfMemory:
    """A request that failed."""

    requested: int
    reserving: int  # what the allocator tried to reserve for it
    missing: int  # how much more free memory the device would have needed
    free: int  # of the device
    cached: int  # reserved by this process and not allocated
    allocated: int
    event: int
    step: int | None
    phase: str
    site: Site
    groups: list[Group]


@dataclass
class Estimate:
    """Memory that a GPU holds beside the allocator's. It is an estimate."""

    name: str
    bytes: int
    source: str
    count: int = 1  # of workspaces
    is_counted: bool = False  # whether the simulated device counted it already


@dataclass
class Step:
    """One step: what happened until an optimizer's step ended."""

    number: int
    begin: int  # events
    end: int
    peak_allocated: int
    peak_reserved: int
    requests: int  # allocations


@dataclass
class Point:
    """The largest values between the previous point and the event."""

    event: int
    allocated: int
    reserved: int


@dataclass
class Device:
    """A device that the process used."""

    index: int
    name: str
    profile: str
    capacity: int
    limit: int  # what this process may use; the capacity without set_per_process_memory_fraction
    peak_allocated: Peak
    peak_reserved: Peak
    groups: list[Group]  # what was allocated at the peak of allocated memory; its sum is the peak
    fragmentation: Fragmentation
    out_of_memory: list[OutOfMemory]
    estimates: list[Estimate]
    steps: list[Step]
    series: list[Point]
    events: int
    events_lost: int = 0  # of all devices
    requests: str = ""  # what `recording.pack` returns; "" if they are in the side file

    @property
    def estimated(self) -> int:
        """The sum of the estimates, except workspaces that the allocator counted."""
        return sum(
            each.bytes
            for each in self.estimates
            if not (each.name == WORKSPACES and each.is_counted)
        )

    @property
    def needed(self) -> int:
        """The peak of reserved memory and the estimates."""
        return self.peak_reserved.bytes + self.estimated


@dataclass
class Read:
    """A value of unknown data that the program read."""

    file: str
    line: int
    operator: str
    value: str
    count: int


@dataclass
class Rank:
    """One process of the run."""

    rank: int
    devices: list[Device] = field(default_factory=list)
    error: str = ""  # the last line of the exception that ended the program
    is_out_of_memory: bool = False  # whether that was an out-of-memory error
    is_dry: bool = False
    reads: list[Read] = field(default_factory=list)
    not_modelled: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Report:
    """The report of a run."""

    version: int = VERSION
    command: list[str] = field(default_factory=list)
    device_type: str = ""
    world: int = 1  # the number of ranks
    ranks: list[Rank] = field(default_factory=list)  # those that reported
    is_represented: bool = False  # only some ranks ran, and stand for the others

    def text(self) -> str:
        """Return the report as text of at most 60 lines."""
        from .text import write

        return write(self)

    def to_json(self) -> str:
        """Return the complete report as JSON."""
        return json.dumps(asdict(self))

    def to_html(self) -> str:
        """Return the report as one HTML page that loads nothing."""
        from .page import write

        return write(self)

    @staticmethod
    def from_json(text: str) -> "Report":
        """Return the report that `to_json` wrote.

        Raises
        ------
        ValueError
            If it is no such report, or was written by a later version.
        """
        try:
            value = json.loads(text)
            version = value["version"]
            if version != VERSION:
                raise ValueError(f"version {version}: expected {VERSION}")
            return _build(Report, value)
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(f"not a report of openreg: {error}") from None


def _build(kind: Any, value: Any) -> Any:
    """Make an object of a class from the values of `asdict`. Unknown members are skipped."""
    origin = typing.get_origin(kind)
    if origin is list:
        (inner,) = typing.get_args(kind)
        return [_build(inner, each) for each in value]
    if origin in (types.UnionType, typing.Union):
        inner = next(each for each in typing.get_args(kind) if each is not type(None))
        return None if value is None else _build(inner, value)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(
            **{
                each.name: _build(hints[each.name], value[each.name])
                for each in fields(kind)
                if each.name in value
            }
        )
    return value


def worst(report: Report) -> Rank | None:
    """Return the rank that decides whether the job fits.

    One that ran out of memory comes first, then the one whose device is fullest.
    """

    def fill(rank: Rank) -> tuple[bool, bool, float]:
        most = max((each.needed / each.limit for each in rank.devices), default=0.0)
        return rank.is_out_of_memory, bool(rank.error), most

    return max(report.ranks, key=fill, default=None)
