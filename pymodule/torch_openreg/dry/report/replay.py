"""Makes the recorded requests of a device again, of the first device of this process.

`openreg fit` starts a process with this module for each GPU. The process has the GPU's profile, and
its allocator may reserve as much as the GPU has. Memory is never touched, so the machine needs
none. The process reads the requests on stdin and prints one JSON object.
"""

import json
import os
import sys
from collections.abc import Sequence

import torch

from torch_openreg import _C

from .recording import ALLOCATE, FREE, Request, unpack

_GRANULE = 2 << 20  # the allocator reserves multiples of it


def _reserved_peak() -> int:
    return int(_C.memory_stats(0)["reserved_bytes"]["all"]["peak"])


def attempt(requests: Sequence[Request], limit: int) -> int | None:
    """Make all requests, with a limit of reserved memory.

    Parameters
    ----------
    requests
        The requests.
    limit
        How many bytes the allocator may reserve.

    Returns
    -------
    int or None
        The peak of reserved memory; None if a request did not fit.
    """
    total = _C.get_device_properties(0).total_memory
    _C.set_memory_fraction(0, min(1.0, limit / total))
    _C.reset_peak_memory_stats(0)
    addresses: list[int] = []
    try:
        for request in requests:
            if request.kind == ALLOCATE:
                addresses.append(_C.raw_alloc(0, request.stream, request.value))
            elif request.kind == FREE:
                _C.raw_delete(addresses[request.value])
                addresses[request.value] = 0
            else:
                _C.empty_cache()
        return _reserved_peak()
    except torch.OutOfMemoryError:
        return None
    finally:
        for address in addresses:
            _C.raw_delete(address)
        _C.empty_cache()


def smallest_limit(requests: Sequence[Request], least: int, most: int) -> int:
    """Return the smallest limit, in granules, with which all requests fit.

    Parameters
    ----------
    requests
        The requests.
    least, most
        A limit that may be too small, and one that is large enough.
    """
    low, high = least // _GRANULE, -(-most // _GRANULE)
    while low < high:
        middle = (low + high) // 2
        if attempt(requests, middle * _GRANULE) is None:
            low = middle + 1
        else:
            high = middle
    return high * _GRANULE


def main() -> None:
    """Read a question on stdin and print the answer."""
    question = json.load(sys.stdin)
    requests = list(unpack(question["requests"]))
    _C.initialize()
    properties = _C.get_device_properties(0)
    capacity = properties.profile_memory
    if capacity == 0:
        sys.exit(f"openreg: the profile {properties.profile} is no GPU with a known memory")
    estimated = question["estimated"] + properties.context_bytes
    estimated += question["workspaces"] * _C.cublas_workspace_size()
    answer = {
        "name": properties.name,
        "capacity": capacity,
        "estimated": estimated,
        "peak_reserved": attempt(requests, max(0, capacity - estimated)),
    }
    if question["smallest"]:
        peak = attempt(requests, properties.total_memory)
        if peak is not None:
            answer["smallest"] = smallest_limit(requests, question["peak_allocated"], peak)
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
