"""The output of ranks, line by line, each behind the name of its rank.

A line is written when it is whole, so that no two are mixed; lines of one stream keep their order.
Whoever reads slowly makes the ranks wait, as he would without this: while a stream has something
left to write, nothing is read for it. And where nobody reads any more, the ranks hear of it.
"""

import contextlib
import io
import os
import select
import selectors
import sys
from typing import NamedTuple

_PIECE = select.PIPE_BUF  # so much a pipe takes at once, if it takes anything


class _Pipe(NamedTuple):
    source: int
    sink: int


class _Stream:
    """Stdout or stderr of this process, and the pipes that lead there."""

    def __init__(self, selector: selectors.BaseSelector, target: int) -> None:
        self._selector, self.target = selector, target
        self._left = bytearray()  # to be written
        self._parts: dict[int, bytes] = {}  # of each pipe, what is no whole line yet
        self._names: dict[int, bytes] = {}

    def add(self, rank: int, source: int) -> None:
        """Begin to read from a pipe."""
        os.set_blocking(source, False)
        self._parts[source] = b""
        self._names[source] = b"[rank%d]: " % rank
        self._selector.register(source, selectors.EVENT_READ, lambda: self._read(source))

    def leave(self) -> None:
        """Forget all pipes, in a fork."""
        for source in self._parts:
            os.close(source)

    def _take(self, source: int, line: bytes) -> None:
        name = self._names[source]
        # PyTorch begins the lines of a traceback so itself.
        self._left += line if line.startswith(name) else name + line

    def _read(self, source: int) -> bool:
        """Read once; returns whether there may be more."""
        if source not in self._parts:  # closed since both were ready
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
        with contextlib.suppress(KeyError):  # it is not read from while there is much to write
            self._selector.unregister(source)
        os.close(source)

    def _write(self) -> None:
        """Write what is taken now; wait for the rest to be."""
        poll = select.poll()
        poll.register(self.target, select.POLLOUT)
        try:
            while self._left and poll.poll(0):
                del self._left[: os.write(self.target, self._left[:_PIECE])]
        except OSError:  # nobody reads any more, and so it is for the ranks
            self._left.clear()
            for source in list(self._parts):
                self._parts[source] = b""
                self._close(source)
        is_waiting = self.target in self._selector.get_map()
        if self._left and not is_waiting:
            for source in self._parts:
                self._selector.unregister(source)
            self._selector.register(self.target, selectors.EVENT_WRITE, self._write)
        elif is_waiting and not self._left:
            self._selector.unregister(self.target)
            for source in self._parts:
                self._selector.register(
                    source, selectors.EVENT_READ, lambda source=source: self._read(source)
                )

    def finish(self) -> None:
        """Write what is there when all ranks have ended; their children are not waited for."""
        for source in list(self._parts):
            while source in self._parts and self._read(source):
                pass
            if source in self._parts:
                self._close(source)
        with contextlib.suppress(OSError):
            while self._left:
                del self._left[: os.write(self.target, self._left)]


class Output:
    """Stdout and stderr of this process, to which those of ranks lead."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._streams = [_Stream(selector, target) for target in (1, 2)]

    def open(self) -> list[_Pipe]:
        """Return what a rank that is started next will write to."""
        return [_Pipe(*os.pipe()) for _ in self._streams]

    def add(self, rank: int, pipes: list[_Pipe]) -> None:
        """Read what a rank writes."""
        for stream, pipe in zip(self._streams, pipes, strict=True):
            os.close(pipe.sink)
            stream.add(rank, pipe.source)

    def become(self, pipes: list[_Pipe]) -> None:
        """Write there, as the rank."""
        for stream, pipe in zip(self._streams, pipes, strict=True):
            stream.leave()
            os.close(pipe.source)
            os.dup2(pipe.sink, stream.target)
            os.close(pipe.sink)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # a line is shown when it is whole

    def finish(self) -> None:
        """Write what is there when all ranks have ended."""
        for stream in self._streams:
            stream.finish()
