"""Serves the planner to several processes at a socket.

``sharing.py`` describes the messages. Each process asks one question at a time. The planner answers
all questions in turn, and ends when no process is connected any more.

The planner's program imports this file by its path, so it imports nothing of the package.
"""

import marshal
import os
import select
import socket
import struct
from collections.abc import Callable
from typing import Any

LENGTH = struct.Struct("<I")  # of a message
CREDENTIALS = struct.Struct("3i")  # of a process at a socket: its number, user and group
SEND_SECONDS = 10.0  # a process that does not take its answer for so long is given up


class Connection:
    """The connection to a process that asks.

    It ends when that process closes the socket or has ended. Forks of the process may have the
    socket for longer.
    """

    def __init__(self, peer: socket.socket) -> None:
        self.socket = peer
        peer.settimeout(SEND_SECONDS)
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        pid, self.user, _ = CREDENTIALS.unpack(credentials)
        self._received = bytearray()
        try:
            self.process = os.pidfd_open(pid)
        except OSError:  # an old Linux, or a process of another namespace
            self.process = -1

    @property
    def descriptors(self) -> list[int]:
        """What becomes readable when there is something to do."""
        return [self.socket.fileno(), *([self.process] if self.process >= 0 else [])]

    def send(self, answer: Any) -> None:
        packed = marshal.dumps(answer)
        self.socket.sendall(LENGTH.pack(len(packed)) + packed)

    def receive(self) -> Any:
        """Receive what has arrived.

        Returns a question if it is complete, or None. Raises OSError if the connection has ended.
        """
        part = self.socket.recv(1 << 16)
        if not part:
            raise ConnectionError
        self._received += part
        if len(self._received) < LENGTH.size:
            return None
        end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        question = marshal.loads(self._received[LENGTH.size : end])
        del self._received[:end]
        return question

    def close(self) -> None:
        self.socket.close()
        if self.process >= 0:
            os.close(self.process)


class Server:
    """Answers the questions of all connections, one at a time, until the last one has ended."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._connections: dict[int, Connection] = {}  # by each of its descriptors
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)

    def serve(self, answer: Callable[[Any], Any]) -> None:
        """Answer questions until no process is connected."""
        while True:
            # A process that asks connects before it starts the planner, so there is one at first.
            for descriptor, _ in self._poll.poll(None if self._connections else 0):
                if descriptor == self._listener.fileno():
                    if (connection := self._accept(("ready", os.getpid()))) is not None:
                        self._keep(connection)
                elif descriptor in self._connections:  # not dropped in this round
                    self._answer(answer, self._connections[descriptor], descriptor)
            if not self._connections and not self._poll.poll(0):
                return

    def refuse(self, sentence: str) -> None:
        """Tell all that are connected why there is no planner."""
        while self._poll.poll(0):
            if (connection := self._accept(("failed", sentence))) is not None:
                connection.close()

    def _accept(self, greeting: Any) -> Connection | None:
        """Greet a process that connects. Returns None if it has ended or is not this user's."""
        connection = Connection(self._listener.accept()[0])
        try:
            if connection.user != os.getuid():
                raise PermissionError
            connection.send(greeting)
        except OSError:
            connection.close()
            return None
        return connection

    def _keep(self, connection: Connection) -> None:
        for descriptor in connection.descriptors:
            self._connections[descriptor] = connection
            self._poll.register(descriptor, select.POLLIN)

    def _answer(
        self, answer: Callable[[Any], Any], connection: Connection, descriptor: int
    ) -> None:
        try:
            if descriptor == connection.process:
                raise ProcessLookupError
            question = connection.receive()
            if question is not None:
                connection.send(("working",))
                connection.send(answer(question))
        except OSError:
            for each in connection.descriptors:
                self._poll.unregister(each)
                del self._connections[each]
            connection.close()
