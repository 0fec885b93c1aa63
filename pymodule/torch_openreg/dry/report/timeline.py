"""The order of a run: its steps and phases, and where in the program an event happened."""

from bisect import bisect_left, bisect_right
from collections import Counter

from .log import IN_BACKWARD, Event, Log, line_of
from .model import Site
from .recorder import Recorder, Span

# Autograd's name for what it does around a node, before the name of the node.
_ENGINE = "autograd::engine::evaluate_function: "


class Spans:
    """Spans that do not overlap, except for nested ones, in the order in which they begin."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans: list[tuple[int, int, Span]] = []
        for span in spans:
            end = 1 << 62 if span.end is None else span.end
            if not self._spans or span.begin >= self._spans[-1][1]:
                self._spans.append((span.begin, end, span))
        self._begins = [begin for begin, _, _ in self._spans]

    def around(self, event: int) -> Span | None:
        """Return the span that an event is in."""
        index = bisect_right(self._begins, event) - 1
        return self._spans[index][2] if index >= 0 and event < self._spans[index][1] else None

    def next(self, event: int, skip: int = 0) -> tuple[int, int] | None:
        """Return begin and end of the first span after an event, or of a later one."""
        index = bisect_right(self._begins, event) + skip
        return self._spans[index][:2] if index < len(self._spans) else None


class Timeline:
    """What the recorder knows about positions in the log."""

    def __init__(self, log: Log, recorder: Recorder) -> None:
        self._log, self._calls = log, recorder.module_calls
        self.backwards = Spans(recorder.backwards)
        self.optimizer_steps = Spans([span for _, span in recorder.optimizer_steps])
        outermost = [call for call in self._calls[1:] if call.outer == 0]
        self._first_call = min((call.begin for call in outermost), default=1 << 62)
        # Where forwards and backwards begin.
        self._activity = sorted(span.begin for span in (*outermost, *recorder.backwards))
        self._last_activity = self._activity[-1] if self._activity else -1
        self.step_ends = self._step_ends(recorder)
        # The first allocation of each thread and number of autograd's sequence; made on first use.
        self._forwards: dict[tuple[int, int], int] | None = None
        self._threads: list[int] = []

    def _step_ends(self, recorder: Recorder) -> list[int]:
        """Return where each step ends: where the optimizer that steps most often has stepped."""
        ended: list[tuple[int, int]] = []
        latest: dict[int, int] = {}  # the index of each optimizer's last step
        for owner, span in recorder.optimizer_steps:
            if span.end is None:
                continue
            index = latest.get(owner)
            if index is not None and self._continues(ended[index][1], span.begin):
                ended[index] = (owner, span.end)
            else:
                latest[owner] = len(ended)
                ended.append((owner, span.end))
        if not ended:
            return []
        most = max(Counter(owner for owner, _ in ended).values())
        counts = Counter(owner for owner, _ in ended)
        # Of several optimizers that step equally often, the last one ends the step.
        owner = next(owner for owner, _ in reversed(ended) if counts[owner] == most)
        return [end for each, end in ended if each == owner]

    def _continues(self, end: int, begin: int) -> bool:
        """Return whether a step of an optimizer goes on with another part of the parameters.

        DeepSpeed calls an optimizer several times between two forwards.
        """
        index = bisect_left(self._activity, end)
        return bool(self._activity) and (
            index == len(self._activity) or self._activity[index] > begin
        )

    @property
    def steps(self) -> int:
        """The number of steps, with the last one even if it did not end."""
        ends = self.step_ends
        return len(ends) + (not ends or self._last_activity >= ends[-1])

    def step(self, event: int) -> int | None:
        """Return the number of the step, from 1; None after the last one."""
        number = bisect_right(self.step_ends, event) + 1
        return number if number <= self.steps else None

    def phase(self, event: int) -> str:
        """Return what the program did: "set-up", "forward", "backward" or "optimizer"."""
        if self.backwards.around(event):
            return "backward"
        if self.optimizer_steps.around(event):
            return "optimizer"
        return "set-up" if event < self._first_call < 1 << 62 else "forward"

    # ---- where -------------------------------------------------------------------------------

    def _forward_of(self, event: Event) -> Event | None:
        """Return an allocation of the forward whose gradient an event of a backward belongs to.

        An operator of the forward makes the node of its backward, which takes a number of
        autograd's sequence, before it allocates its result.
        """
        if self._forwards is None:
            self._forwards = {}
            for index, each in enumerate(self._log.events):
                if each.stack and not each.flags & IN_BACKWARD:
                    # Threads count on their own. Most programs have one forward thread.
                    self._forwards.setdefault((each.thread, each.sequence), index)
            self._threads = sorted({thread for thread, _ in self._forwards})
        for thread in self._threads:
            if (found := self._forwards.get((thread, event.sequence + 1))) is not None:
                return self._log.events[found]
        return None

    def site(self, index: int) -> Site:
        """Return where an event happened."""
        event = self._log.events[index]
        site = Site(
            operator=self._log.operations[event.operation].removeprefix(_ENGINE),
            module=self._calls[event.module_call].path,
        )
        line = line_of(event.stack) if event.stack else None
        if event.flags & IN_BACKWARD and event.module_call == 0:
            forward = self._forward_of(event)
            if forward is not None:
                site.module = self._calls[forward.module_call].path
                if found := line_of(forward.stack):
                    site.forward_file, site.forward_line = found.file, found.line
            if line is None and (backward := self.backwards.around(index)):
                line = line_of(backward.stack)
        if line is not None:
            site.file, site.line, site.function = line.file, line.line, line.function
        return site

    def call_ended(self, event: Event) -> int:
        """Return the position at which the innermost module call around an event ended."""
        end = self._calls[event.module_call].end
        return 1 << 62 if end is None else end
