"""Forwards the output of the ranks line by line, with the rank in front of each line.

Only complete lines are written, so lines of different ranks never mix. Lines of one stream keep
their order. A slow reader makes the ranks wait, as it would without this module: while a stream has
unwritten output, nothing is read for it. If the reader closes the stream, the ranks' pipes are
closed as well.
"""

import contextlib
import io
import os
import select
import selectors
import sys
from typing import NamedTuple

_PIECE = select.PIPE_BUF  # a writable pipe accepts this much without blocking


class _Pipe(NamedTuple):
    source: int
    sink: int


class _Stream:
    """Stdout or stderr of this process, and the pipes of the ranks that lead there."""

    def __init__(self, selector: selectors.BaseSelector, target: int) -> None:
        self._selector, self.target = selector, target
        self._pending = bytearray()  # not yet written
        self._parts: dict[int, bytes] = {}  # the incomplete line of each pipe
        self._names: dict[int, bytes] = {}

    def add(self, rank: int, source: int) -> None:
        """Start reading from a pipe."""
        os.set_blocking(source, False)
        self._parts[source] = b""
        self._names[source] = b"[rank%d]: " % rank
        self._selector.register(source, selectors.EVENT_READ, lambda: self._read(source))

    def leave(self) -> None:
        """Close all pipes, in a fork."""
        for source in self._parts:
            os.close(source)

    def _take(self, source: int, line: bytes) -> None:
        name = self._names[source]
        # PyTorch itself starts the lines of a traceback like this.
        self._pending += line if line.startswith(name) else name + line

    def _read(self, source: int) -> bool:
        """Read once; return whether there may be more."""
        if source not in self._parts:  # closed after select reported it
            return False
        try:
            data = os.read(source, 1 << 16)
        except BlockingIOError:
            return False
        *lines, self._parts[source] = (self._parts[source] + data).split(b"\n")
        for line in lines:
            self._take(source, line + b"\n")
        if not data:
            self._close(source)
        self._write()
        return bool(data)

    def _close(self, source: int) -> None:
        if part := self._parts.pop(source):
            self._take(source, part + b"\n")
        with contextlib.suppress(KeyError):  # not registered while output is pending
            self._selector.unregister(source)
        os.close(source)

    def _write(self) -> None:
        """Write what the target accepts now; wait for it to accept the rest."""
        poll = select.poll()
        poll.register(self.target, select.POLLOUT)
        try:
            while self._pending and poll.poll(0):
                del self._pending[: os.write(self.target, self._pending[:_PIECE])]
        except OSError:  # the reader is gone: close the ranks' pipes as well
            self._pending.clear()
            for source in list(self._parts):
                self._parts[source] = b""
                self._close(source)
        is_waiting = self.target in self._selector.get_map()
        if self._pending and not is_waiting:
            for source in self._parts:
                self._selector.unregister(source)
            self._selector.register(self.target, selectors.EVENT_WRITE, self._write)
        elif is_waiting and not self._pending:
            self._selector.unregister(self.target)
            for source in self._parts:
                self._selector.register(
                    source, selectors.EVENT_READ, lambda source=source: self._read(source)
                )

    def finish(self) -> None:
        """Write what is left after all ranks have ended, without waiting for their children."""
        for source in list(self._parts):
            while source in self._parts and self._read(source):
                pass
            if source in self._parts:
                self._close(source)
        with contextlib.suppress(OSError):
            while self._pending:
                del self._pending[: os.write(self.target, self._pending)]


class Output:
    """Stdout and stderr of this process, for the output of the ranks."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._streams = [_Stream(selector, target) for target in (1, 2)]

    def open(self) -> list[_Pipe]:
        """Return the pipes for the next rank's stdout and stderr."""
        return [_Pipe(*os.pipe()) for _ in self._streams]

    def add(self, rank: int, pipes: list[_Pipe]) -> None:
        """Start reading the output of a rank."""
        for stream, pipe in zip(self._streams, pipes, strict=True):
            os.close(pipe.sink)
            stream.add(rank, pipe.source)

    def redirect(self, pipes: list[_Pipe]) -> None:
        """In a rank: let stdout and stderr lead to the pipes."""
        for stream, pipe in zip(self._streams, pipes, strict=True):
            stream.leave()
            os.close(pipe.source)
            os.dup2(pipe.sink, stream.target)
            os.close(pipe.sink)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # show each line when it is complete

    def finish(self) -> None:
        """Write what is left after all ranks have ended."""
        for stream in self._streams:
            stream.finish()
