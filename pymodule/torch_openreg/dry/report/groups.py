"""Sorts what was allocated at a moment into groups: parameters, gradients, activations and so on.

The recorder's labels are certain. The rest follows from where memory was allocated and when it was
freed. Memory without any of these signs is "other".
"""

import re
from collections.abc import Iterable

from .log import GRAD_ENABLED, IN_BACKWARD, Log, communicates
from .model import GROUPS, Group, Owner
from .recorder import Recorder
from .timeline import Timeline

NEVER = 1 << 62

_NUMBERS = re.compile(r"(?<=\.)\d+(?=\.|$| )")


class Groups:
    """Finds the groups of allocations.

    Parameters
    ----------
    log, recorder, timeline
        What was recorded.
    freed
        The event that freed each allocation, by the event that allocated it.
    """

    def __init__(
        self, log: Log, recorder: Recorder, timeline: Timeline, freed: dict[int, int]
    ) -> None:
        self._log, self._recorder, self._timeline = log, recorder, timeline
        self._freed = freed

    def of(self, index: int) -> str:
        """Return the group of an allocation, by its event."""
        label = self._recorder.labels.get(index)
        # FSDP2 makes gathered parameters those of a module for a while.
        if label is not None and (label.group != "parameters" or label.is_trained):
            return label.group
        event = self._log.events[index]
        if event.stack and communicates(event.stack):
            return "communication buffers"
        if label is not None:
            return label.group
        freed = self._freed.get(index, NEVER)
        if step := self._timeline.optimizer_steps.around(index):
            return "other" if step.end is not None and freed > step.end else "temporaries"
        if event.flags & IN_BACKWARD or self._timeline.backwards.around(index):
            return self._of_backward(index, freed)
        return self._of_forward(index, freed)

    def _of_backward(self, index: int, freed: int) -> str:
        event = self._log.events[index]
        if event.module_call and event.flags & GRAD_ENABLED:  # a forward is repeated
            return "activations" if freed > self._timeline.call_ended(event) else "temporaries"
        backward = self._timeline.backwards.around(index)
        survives = backward is not None and backward.end is not None and freed > backward.end
        return "other" if survives else "temporaries"

    def _of_forward(self, index: int, freed: int) -> str:
        event = self._log.events[index]
        call_ended = self._timeline.call_ended(event) if event.module_call else index
        backward = self._timeline.backwards.next(index)
        if backward is not None and freed > backward[0]:
            if freed <= backward[1]:
                return "activations"
            if not event.module_call or not event.flags & GRAD_ENABLED:
                return "other"
            # The program holds a result until it computes the next one.
            after = self._timeline.backwards.next(index, skip=1)
            return "activations" if after is None or freed <= after[0] else "other"
        if not event.module_call:
            return "other"
        if freed <= call_ended:
            return "temporaries"
        if freed < NEVER or (event.flags & GRAD_ENABLED and backward is None):
            return "activations"
        return "other"

    def sum_up(self, allocations: Iterable[int]) -> list[Group]:
        """Return all groups, with the owners of the allocations, which are given by events."""
        groups = {name: Group(name) for name in GROUPS}
        owners: dict[tuple[object, ...], Owner] = {}
        for index in allocations:
            event = self._log.events[index]
            group = groups[self.of(index)]
            label = self._recorder.labels.get(index)
            name = _NUMBERS.sub("*", label.name) if label else ""
            site = self._timeline.site(index)
            site.module = _NUMBERS.sub("*", site.module)
            if label:  # its name says more than the operators that made it
                site.operator = ""
            key = (group.name, name, *vars(site).values())
            owner = owners.get(key)
            if owner is None:
                owners[key] = owner = Owner(name=name, site=site)
                group.owners.append(owner)
            for each in (group, owner):
                each.bytes += event.block_bytes
                each.blocks += 1
        for group in groups.values():
            group.owners.sort(key=lambda owner: -owner.bytes)
        return list(groups.values())
