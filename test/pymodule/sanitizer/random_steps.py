"""The parts of random programs: steps, the views that they access, and their order.

The order is a graph of the steps: one step happens before another if a path connects them. Memory
is a set of words of 4 bytes. The model shares no code or method with the sanitizer, which uses
vector clocks and strided regions.
"""

import functools
from dataclasses import dataclass, field, replace

import torch

HOST = -1  # as a stream


# ---- views ---------------------------------------------------------------------------------------

WORDS = 2  # words per element, which is an int64
SHAPES = ((4, 6), (6, 4), (8, 8), (5, 5), (3, 16))
VIEWS = (
    "",
    "[1]",
    "[2]",
    "[:, 0]",
    "[:, 3]",
    "[0:2]",
    "[2:4]",
    "[:, 0:2]",
    "[:, 1:3]",
    "[:, 2:4]",
    "[::2]",
    "[1::2]",
    "[:, ::2]",
    "[:, 1::2]",
    ".t()",
    ".t()[1:3]",
    ".flatten()[3:9]",
    ".flatten()[::3]",
    ".flatten()[1::3]",
    ".diagonal()",
    ".diagonal(1)",
    "[1:, 1:]",
)
READ_VIEWS = (*VIEWS, "[1, None].expand(4, -1)", ".flatten().unfold(0, 4, 2)", "[0, 1]")


@functools.cache
def shape_of(shape, view):
    """Return the shape of a view of a tensor."""
    return tuple(eval(f"whole{view}", {"whole": torch.empty(shape)}).shape)


@functools.cache
def views_of(shape, views):
    """Return the views that are valid for a shape and not empty."""
    found = []
    for view in views:
        try:
            sizes = shape_of(shape, view)
        except (IndexError, RuntimeError):
            continue
        if torch.Size(sizes).numel() > 0:
            found.append(view)
    return found


@functools.cache
def words_of(shape, view):
    """Return the words of a view, counted from the beginning of its tensor."""
    whole = torch.arange(torch.Size(shape).numel()).view(shape)
    elements = eval(f"whole{view}", {"whole": whole}).flatten().tolist()
    return frozenset(WORDS * element + word for element in elements for word in range(WORDS))


@dataclass(frozen=True)
class Part:
    """A view of a named tensor."""

    name: str
    shape: tuple[int, ...]  # of the tensor
    view: str

    @property
    def sizes(self):
        return shape_of(self.shape, self.view)

    @property
    def words(self):
        return words_of(self.shape, self.view)

    def __str__(self):
        return self.name + self.view


# ---- steps ---------------------------------------------------------------------------------------


@dataclass
class Step:
    """A line of a program.

    Attributes
    ----------
    text
        The line. Streams are s0, s1, ... and events e0, e1, ...
    action
        ``launch``, ``record``, ``wait``, ``wait_stream``, ``synchronize``, ``free``, ``use``.
    stream, other
        The step's stream; the stream to wait for, or the other stream of a copy between devices.
    event
        The number of an event.
    reads, writes
        The parts that a launch accesses.
    work
        An expression for what a launch writes. ``parts`` are the contents of `reads`.
    makes
        Whether a launch writes to a new tensor.
    """

    text: str
    action: str
    stream: int = HOST
    other: int | None = None
    event: int | None = None
    reads: tuple[Part, ...] = ()
    writes: tuple[Part, ...] = ()
    work: str = ""
    makes: bool = False
    frees: str | None = None
    waited_for: bool = False
    is_removed: bool = field(default=False)

    def removed(self):
        """Return a step that does nothing in the place of this one."""
        return replace(self, text="pass", is_removed=True)

    @property
    def is_launch(self):
        return self.action == "launch"


# ---- order ---------------------------------------------------------------------------------------


class Order:
    """The happens-before relation of the steps of a program.

    Parameters
    ----------
    steps
        The program.
    devices
        The device of each stream.
    """

    def __init__(self, steps, devices):
        self._before = []  # for each step, the steps before it, as bits
        self._last = {}  # the latest step of each stream and of the host
        self._events = {}  # the step that recorded each event last
        self._users = {}  # the streams that record_stream() named for each tensor
        self._devices = devices
        for number, step in enumerate(steps):
            self._before.append(0)
            if not step.is_removed:
                self._add(number, step)

    def is_ordered(self, first, second):
        """Return whether the first step happens before the second one."""
        return bool(self._before[second] >> first & 1)

    def before(self, number):
        """Return the steps that happen before a step, as bits."""
        return self._before[number]

    def _follow(self, number, *chains):
        """Order a step after the latest steps of streams, or of the host."""
        for chain in chains:
            self._after(number, self._last.get(chain))

    def _after(self, number, step):
        if step is not None:
            self._before[number] |= self._before[step] | 1 << step

    def _put(self, number, *chains):
        for chain in chains:
            self._last[chain] = number

    def _add(self, number, step):
        self._follow(number, HOST)  # what the host waited for happens before what it submits
        if step.action == "use":
            self._users.setdefault(step.frees, set()).add(step.stream)
        elif step.action == "free":
            # The allocator reuses the memory when its users are done.
            users = self._users.pop(step.frees, set())
            self._follow(number, step.stream, *users)
            self._put(number, step.stream)
        elif step.action == "record":
            self._follow(number, step.stream)
            self._put(number, step.stream)
            self._events[step.event] = number
        elif step.action == "wait":
            self._follow(number, step.stream)
            self._after(number, self._events.get(step.event))
            self._put(number, step.stream)
        elif step.action == "wait_stream":
            self._follow(number, step.stream, step.other)
            self._put(number, step.stream)
        elif step.action == "synchronize":
            if step.event is not None:
                self._after(number, self._events.get(step.event))
            elif step.stream != HOST:
                self._follow(number, step.stream)
            else:
                self._follow(number, *(s for s, d in enumerate(self._devices) if d == step.other))
            self._put(number, HOST)
        else:
            chains = [chain for chain in (step.stream, step.other) if chain is not None]
            self._follow(number, *chains)
            self._put(number, *chains, *([HOST] if step.waited_for else []))


def conflict(step, other, address=lambda part: part.name):
    """Return whether two launches share a word that at least one of them writes.

    Parameters
    ----------
    step, other
        The launches.
    address
        Returns the address of a part's tensor; it is equal for tensors in the same memory.
    """

    def meet(parts, others):
        return any(
            address(part) == address(another) and part.words & another.words
            for part in parts
            for another in others
        )

    return (
        meet(step.writes, other.writes)
        or meet(step.writes, other.reads)
        or meet(step.reads, other.writes)
    )


def conflicts(steps, order, address):
    """Return the pairs of launches that conflict and that nothing orders."""
    launches = [number for number, step in enumerate(steps) if step.is_launch]
    return {
        (first, second)
        for second in launches
        for first in launches
        if first < second
        and not order.is_ordered(first, second)
        and conflict(steps[first], steps[second], address)
    }


# ---- all orders in which a program may run -------------------------------------------------------


def extensions(steps, order, limit):
    """Return all orders of the launches that the relation allows; None: more than `limit`."""
    launches = [number for number, step in enumerate(steps) if step.is_launch]
    mask = sum(1 << number for number in launches)
    found = []

    def extend(done, taken):
        if len(found) > limit:
            return
        if len(taken) == len(launches):
            found.append(tuple(taken))
        for number in launches:
            if not done >> number & 1 and order.before(number) & mask & ~done == 0:
                extend(done | 1 << number, [*taken, number])

    extend(0, [])
    return None if len(found) > limit else found


SLOT = 64  # elements


def result(steps, sequence, address):
    """Run the launches in a sequence. Return the contents of memory and what the host read."""
    places = {}
    for number in sequence:
        for part in (*steps[number].reads, *steps[number].writes):
            places.setdefault(address(part), len(places))
    memory = torch.zeros(len(places), SLOT, dtype=torch.int64)

    def view(part):
        whole = memory[places[address(part)]][: torch.Size(part.shape).numel()].view(part.shape)
        return eval(f"whole{part.view}", {"whole": whole})

    read = {}
    for number in sequence:
        step = steps[number]
        new = eval(step.work, {"torch": torch, "parts": [view(part) for part in step.reads]})
        if step.writes:
            view(step.writes[0]).copy_(new)
        else:
            read[number] = tuple(new.flatten().tolist())
    by_address = sorted((where, tuple(memory[row].tolist())) for where, row in places.items())
    return tuple(by_address), tuple(sorted(read.items()))
