"""What a random program is made of: steps, the views that they access, and their order.

The order is a graph of the steps themselves, and what is before what are the paths in it. Memory is
a set of words of 4 bytes. Nothing here is taken from the sanitizer, which has clocks and boxes.
"""

import functools
from dataclasses import dataclass, field, replace

import torch

HOST = -1  # as a stream


# ---- views ---------------------------------------------------------------------------------------

WORDS = 2  # of an element: int64
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
    """Return those of some views that a tensor has and that are not empty."""
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
    """Return the words of a view, counted from where its tensor begins."""
    whole = torch.arange(torch.Size(shape).numel()).view(shape)
    elements = eval(f"whole{view}", {"whole": whole}).flatten().tolist()
    return frozenset(WORDS * element + word for element in elements for word in range(WORDS))


@dataclass(frozen=True)
class Part:
    """A view of the tensor with a name."""

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
        Where it is; the stream that is waited for, or the one of the other device of a copy.
    event
        The number of an event.
    reads, writes
        Of a launch.
    work
        Of a launch: an expression of what is written first, of the words ``parts``.
    makes
        Of a launch: whether what is written is a new tensor.
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
        """Return a line that does nothing."""
        return replace(self, text="pass", is_removed=True)

    @property
    def is_launch(self):
        return self.action == "launch"


# ---- order ---------------------------------------------------------------------------------------


class Order:
    """What is before what in a program, by its steps.

    Parameters
    ----------
    steps
        The program.
    devices
        The device of each stream.
    """

    def __init__(self, steps, devices):
        self._before = []  # sets of steps, as bits
        self._last = {}  # of a stream, or of the host: the latest step
        self._events = {}  # the step that recorded it last
        self._users = {}  # the streams that are recorded to use a tensor
        self._devices = devices
        for number, step in enumerate(steps):
            self._before.append(0)
            if not step.is_removed:
                self._add(number, step)

    def is_ordered(self, first, second):
        """Whether of two steps the earlier one is before the later one."""
        return bool(self._before[second] >> first & 1)

    def before(self, number):
        """Return the steps that are before a step, as bits."""
        return self._before[number]

    def _follow(self, number, *chains):
        """Put a step behind what streams, or the host, did."""
        for chain in chains:
            self._after(number, self._last.get(chain))

    def _after(self, number, step):
        if step is not None:
            self._before[number] |= self._before[step] | 1 << step

    def _put(self, number, *chains):
        for chain in chains:
            self._last[chain] = number

    def _add(self, number, step):
        self._follow(number, HOST)  # what the host waited for is before all that it submits
        if step.action == "use":
            self._users.setdefault(step.frees, set()).add(step.stream)
        elif step.action == "free":
            # Whoever gets the memory does so when its users are done.
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
    """Whether two launches access a word in common that one of them writes.

    Parameters
    ----------
    step, other
        The launches.
    address
        Where the tensor of a part begins: the same for tensors in the same place.
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


def extensions(steps, order, most):
    """Return all orders of the launches that what is before what allows; None: more than `most`."""
    launches = [number for number, step in enumerate(steps) if step.is_launch]
    mask = sum(1 << number for number in launches)
    found = []

    def extend(done, taken):
        if len(found) > most:
            return
        if len(taken) == len(launches):
            found.append(tuple(taken))
        for number in launches:
            if not done >> number & 1 and order.before(number) & mask & ~done == 0:
                extend(done | 1 << number, [*taken, number])

    extend(0, [])
    return None if len(found) > most else found


SLOT = 64  # elements


def result(steps, sequence, address):
    """Return what is in memory, and what the host read, after the launches ran in a sequence."""
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
