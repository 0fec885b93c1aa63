"""The messages that processes send to ``openreg sanitize``. Each message is a JSON object.

- ``{"type": "start", "pid", "arguments"}``: the sanitizer watches a process.
- ``{"type": "finding", "pid", "id", "notes": {}, "text", "remedy", "finding": {}}``: a
  new finding.
- ``{"type": "end", "pid", "counts": {}, "suppressed": {}, "suppressions": [], "counters": {}}``:
  the count of each finding by id, the number of findings that each suppression matched, and
  statistics.

A message is a datagram, so messages of different processes never mix. This module does not need
PyTorch.
"""

import contextlib
import itertools
import json
import socket
from typing import Any

_MAX_BYTES = 150_000  # the largest message; the system's socket buffers hold more
_MAX_FRAMES, _MAX_COUNTS, _MAX_CHARACTERS = 20, 2000, 8000  # limits that shorten larger messages
_TIMEOUT_SECONDS = 10.0  # how long to wait for room in the receiver's buffer


def _shorten(value: Any) -> Any:
    """Return a value with all long lists, dictionaries and texts shortened."""
    if isinstance(value, dict):
        return {key: _shorten(item) for key, item in itertools.islice(value.items(), _MAX_COUNTS)}
    if isinstance(value, (list, tuple)):
        return [_shorten(item) for item in value[:_MAX_FRAMES]]
    return value[:_MAX_CHARACTERS] if isinstance(value, str) else value


def send(address: str, message: dict[str, Any]) -> bool:
    """Send a message; return whether the receiver exists."""
    data = json.dumps(message).encode()
    if len(data) > _MAX_BYTES:  # stacks of thousands of frames, or thousands of findings
        data = json.dumps(_shorten(message)).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_TIMEOUT_SECONDS)
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
    """Return the next message: {} if it is malformed, None if there is no message now."""
    with contextlib.suppress(BlockingIOError):
        data = listener.recv(2 * _MAX_BYTES)
        with contextlib.suppress(ValueError):
            message = json.loads(data)
            return message if isinstance(message, dict) else {}
        return {}
    return None
