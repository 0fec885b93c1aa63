"""What processes tell ``openreg sanitize``, which started them: one JSON object a message.

- ``{"type": "start", "pid", "arguments"}``: a process is watched.
- ``{"type": "finding", "pid", "id", "notes": {}, "text", "remedy", "finding": {}}``: it found
  something.
- ``{"type": "end", "pid", "counts": {}, "suppressed": {}, "suppressions": [], "counters": {}}``:
  how often it found each, by their ids, and how many each suppression kept from being told.

A message is whole, whichever processes send at the same time: it is a datagram. Nothing here needs
PyTorch.
"""

import contextlib
import itertools
import json
import socket
from typing import Any

_MOST_BYTES = 150_000  # of a message: the buffers that the system gives to a socket hold more
_MOST_FRAMES, _MOST_COUNTS, _MOST_CHARACTERS = 20, 2000, 8000  # of one that would have more
_SECONDS = 10.0  # in which one that is stopped would have made room


def _cut(value: Any) -> Any:
    """Return the beginning of all that is long."""
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in itertools.islice(value.items(), _MOST_COUNTS)}
    if isinstance(value, (list, tuple)):
        return [_cut(item) for item in value[:_MOST_FRAMES]]
    return value[:_MOST_CHARACTERS] if isinstance(value, str) else value


def send(address: str, message: dict[str, Any]) -> bool:
    """Send a message; returns whether anybody listens."""
    data = json.dumps(message).encode()
    if len(data) > _MOST_BYTES:  # stacks of thousands of frames, or counts of thousands of findings
        data = json.dumps(_cut(message)).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_SECONDS)
        try:
            sender.sendto(data, address)
        except OSError:
            return False
    return True


def listen(address: str) -> socket.socket:
    """Return a socket that receives messages."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(address)
    listener.setblocking(False)
    return listener


def receive(listener: socket.socket) -> dict[str, Any] | None:
    """Return a message; None if there is none now, or it is none."""
    with contextlib.suppress(BlockingIOError):
        data = listener.recv(2 * _MOST_BYTES)
        with contextlib.suppress(ValueError):
            message = json.loads(data)
            return message if isinstance(message, dict) else {}
        return {}
    return None
