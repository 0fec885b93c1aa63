"""What a run of the conformance tests prints while it goes on."""

import sys
import time


class Progress:
    """Prints a line every half minute, and one for each task that failed."""

    def __init__(self, tasks):
        self._tasks = tasks
        self._done = 0
        self._last = time.monotonic()

    def __call__(self, row):
        self._done += 1
        if row.failed:
            said = row.crash or ": ".join(row.differences[0])
            words = (
                f"{row.check} of {row.subject}, {row.dtype}: {row.failed} of {row.cases}: {said}"
            )
            print(words, file=sys.stderr, flush=True)
        if time.monotonic() - self._last > 30:
            self._last = time.monotonic()
            print(f"{self._done} of {self._tasks} tasks", file=sys.stderr, flush=True)
