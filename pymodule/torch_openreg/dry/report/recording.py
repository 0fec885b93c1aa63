"""The requests of a device in their order, packed for a file, so that they can be made again.

`openreg fit` makes them of other GPUs. This module does not import PyTorch.
"""

import base64
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# Kinds of requests.
ALLOCATE, FREE, EMPTY_CACHE = range(3)

_PACKED = struct.Struct("<Bhq")


class Request(NamedTuple):
    """A request to the allocator."""

    kind: int
    stream: int
    # ALLOCATE: the bytes. FREE: the number of the allocation, counted from 0.
    value: int


def pack(requests: Iterable[Request]) -> str:
    """Return requests as text."""
    data = b"".join(_PACKED.pack(*each) for each in requests)
    return base64.b85encode(zlib.compress(data, 6)).decode()


def unpack(text: str) -> Iterator[Request]:
    """Yield the requests that `pack` packed.

    Raises
    ------
    ValueError
        If the text is damaged.
    """
    try:
        data = zlib.decompress(base64.b85decode(text))
        yield from (Request._make(each) for each in _PACKED.iter_unpack(data))
    except (zlib.error, struct.error) as error:
        raise ValueError(f"the recorded requests are damaged: {error}") from None
