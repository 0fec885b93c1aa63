"""Makes the report of this process from the allocation log and the recorder."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from torch_openreg import _C

from . import estimates
from .groups import Groups
from .log import (
    ALLOCATED,
    ALLOCATING,
    EXHAUSTED,
    FREE_COMPLETED,
    FREE_REQUESTED,
    SEGMENT_ALLOCATED,
    SEGMENT_FREED,
    SEGMENT_MAPPED,
    SEGMENT_UNMAPPED,
    Log,
)
from .model import Device, Fragmentation, OutOfMemory, Peak, Point, Rank, Step
from .recorder import Failure, Recorder
from .recording import ALLOCATE, EMPTY_CACHE, FREE, Request, pack
from .timeline import Timeline

# How many points a picture of memory over the run has.
_POINTS = 1000


@dataclass
class _Usage:
    """A device's memory, counted event by event."""

    allocated: int = 0
    reserved: int = 0
    most_allocated: int = 0
    most_reserved: int = 0
    at_most_allocated: int = 0  # events
    at_most_reserved: int = 0
    allocated_at_most_reserved: int = 0
    live: dict[int, int] = field(default_factory=dict)  # addresses: the allocating events
    freed: dict[int, int] = field(default_factory=dict)  # allocating events: the freeing ones
    steps: list[Step] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)  # events
    live_at: dict[int, list[int]] = field(default_factory=dict)
    at_failure: dict[int, tuple[int, int]] = field(default_factory=dict)  # allocated, reserved
    refused: tuple[int, int] = (0, 0)  # the largest request that the cache did not fit; the cache
    events: int = 0


def _step(usage: _Usage, number: int, event: int) -> Step:
    """Return the step of an event, a new one at its first event."""
    if not usage.steps or usage.steps[-1].number != number:
        usage.steps.append(Step(number, event, event, usage.allocated, usage.reserved, 0))
    return usage.steps[-1]


def _follow(log: Log, timeline: Timeline, device: int) -> _Usage:
    """Count the memory of a device over the whole log."""
    usage = _Usage()
    width = max(1, len(log.events) // _POINTS)
    grown_cache = -1  # what was cached before a request took new memory
    for index, event in enumerate(log.events):
        if event.device != device:
            continue
        usage.events += 1
        if event.action == ALLOCATED:
            usage.live[event.address] = index
            usage.allocated += event.block_bytes
            if grown_cache >= event.block_bytes > usage.refused[0]:
                usage.refused = (event.block_bytes, grown_cache)
            grown_cache = -1
        elif event.action == FREE_REQUESTED:
            if (allocation := usage.live.pop(event.address, None)) is not None:
                usage.freed[allocation] = index
                usage.allocated -= event.block_bytes
        elif event.action in (SEGMENT_ALLOCATED, SEGMENT_MAPPED):
            if grown_cache < 0:
                grown_cache = usage.reserved - usage.allocated
            usage.reserved += event.bytes
        elif event.action in (SEGMENT_FREED, SEGMENT_UNMAPPED):
            usage.reserved -= event.bytes
        elif event.action == EXHAUSTED:
            usage.failed.append(index)
            usage.live_at[index] = list(usage.live.values())
            usage.at_failure[index] = (usage.allocated, usage.reserved)
            grown_cache = -1
        if usage.allocated > usage.most_allocated:
            usage.most_allocated, usage.at_most_allocated = usage.allocated, index
        if usage.reserved > usage.most_reserved:
            usage.most_reserved, usage.at_most_reserved = usage.reserved, index
            usage.allocated_at_most_reserved = usage.allocated
        if (number := timeline.step(index)) is not None:
            step = _step(usage, number, index)
            step.end = index
            step.requests += event.action == ALLOCATED
            step.peak_allocated = max(step.peak_allocated, usage.allocated)
            step.peak_reserved = max(step.peak_reserved, usage.reserved)
        if not usage.points or usage.points[-1].event // width != index // width:
            usage.points.append(Point(index, usage.allocated, usage.reserved))
        point = usage.points[-1]
        point.allocated = max(point.allocated, usage.allocated)
        point.reserved = max(point.reserved, usage.reserved)
    return usage


def _live_at(log: Log, usage: _Usage, device: int, position: int) -> list[int]:
    """Return the allocations that are alive right after an event."""
    return [
        index
        for index, event in enumerate(islice(log.events, position + 1))
        if event.device == device
        and event.action == ALLOCATED
        and usage.freed.get(index, position + 1) > position
    ]


def _peak(timeline: Timeline, size: int, event: int) -> Peak:
    return Peak(size, event, timeline.step(event), timeline.phase(event), timeline.site(event))


def _allocated_for(log: Log, device: int, segment: int) -> int:
    """Return the allocation that a new segment was taken for, or the segment if there is none."""
    thread = log.events[segment].thread
    for index in range(segment, min(segment + 1000, len(log.events))):
        event = log.events[index]
        if event.device == device and event.action == ALLOCATED and event.thread == thread:
            return index
    return segment


def _out_of_memory(
    log: Log,
    timeline: Timeline,
    groups: Groups,
    usage: _Usage,
    recorder: Recorder,
    device: int,
) -> list[OutOfMemory]:
    failures: list[Failure] = [each for each in recorder.failures if each.device == device]
    made = []
    for index in usage.failed:
        event = log.events[index]
        # The observer is called after the event, before the next one of the device.
        failure = next((each for each in failures if each.position > index), None)
        tried = failure.tried if failure else event.bytes
        free = event.address
        live = usage.live_at[index]
        allocated, reserved = usage.at_failure[index]
        available = min(free, failure.allowed - reserved) if failure else free
        made.append(
            OutOfMemory(
                requested=event.bytes,
                reserving=tried,
                missing=max(0, tried - available),
                free=free,
                cached=reserved - allocated,
                allocated=allocated,
                event=index,
                step=timeline.step(index),
                phase=timeline.phase(index),
                site=timeline.site(index),
                groups=groups.sum_up(live),
            )
        )
    return made


def _requests(log: Log, device: int) -> Iterator[Request]:
    """Yield the requests of a device, for `openreg fit`."""
    numbers: dict[int, int] = {}  # of live allocations, by address
    count = 0
    emptied = False
    for event in log.events:
        if event.device != device:
            continue
        is_emptying = event.action in (SEGMENT_FREED, SEGMENT_UNMAPPED) and not (
            event.flags & ALLOCATING
        )
        if is_emptying and not emptied:
            yield Request(EMPTY_CACHE, 0, 0)
        emptied = is_emptying
        if event.action == ALLOCATED:
            yield Request(ALLOCATE, event.stream, event.bytes)
            numbers[event.address] = count
            count += 1
        elif event.action == FREE_COMPLETED and event.address in numbers:
            yield Request(FREE, event.stream, numbers.pop(event.address))


def _device(log: Log, recorder: Recorder, timeline: Timeline, index: int) -> Device:
    properties = _C.get_device_properties(index)
    usage = _follow(log, timeline, index)
    groups = Groups(log, recorder, timeline, usage.freed)
    at_peak = _live_at(log, usage, index, usage.at_most_allocated)
    for_reserved = _allocated_for(log, index, usage.at_most_reserved)
    capacity = properties.total_memory
    return Device(
        index=index,
        name=properties.name,
        profile=properties.profile,
        capacity=capacity,
        limit=int(capacity * _C.get_memory_fraction(index)),
        peak_allocated=_peak(timeline, usage.most_allocated, usage.at_most_allocated),
        peak_reserved=_peak(timeline, usage.most_reserved, for_reserved),
        groups=groups.sum_up(at_peak),
        fragmentation=Fragmentation(
            usage.most_reserved, usage.allocated_at_most_reserved, *usage.refused
        ),
        out_of_memory=_out_of_memory(log, timeline, groups, usage, recorder, index),
        estimates=estimates.of_device(log, recorder, index),
        steps=usage.steps,
        series=usage.points,
        events=usage.events,
        events_lost=log.lost,
        requests=pack(_requests(log, index)),
    )


def analyse(recorder: Recorder, rank: int) -> Rank:
    """Return the report of this process, without what only the caller knows."""
    log = Log()
    timeline = Timeline(log, recorder)
    used = sorted({event.device for event in log.events})
    made = Rank(rank, [_device(log, recorder, timeline, index) for index in used])
    if log.lost:
        made.notes.append(
            f"The log was full after {len(log.events)} allocations and frees. {log.lost} later "
            "ones are not in this report."
        )
    return made
