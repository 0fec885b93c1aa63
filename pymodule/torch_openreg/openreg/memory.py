"""Memory: how much of a device is used, by this process's caching allocator and in all.

Figures are bytes or counts under the names that ``torch.cuda`` gives them. *Allocated* is what
tensors hold, rounded up to blocks; *reserved* is what the allocator holds for them and for later.
Tables, pools and the history are in rooms of their own, and are offered here.
"""

import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.types import Device
from typing_extensions import deprecated

from torch_openreg import _C

from ._memory_history import (
    _allocation_traceback,
    _attach_out_of_memory_observer,
    _dump_snapshot,
    _get_memory_metadata,
    _record_memory_history,
    _save_memory_usage,
    _save_segment_usage,
    _set_memory_metadata,
    _snapshot,
    memory_snapshot,
)
from ._memory_pools import (
    CUDAPluggableAllocator,
    MemPool,
    _CUDAAllocator,
    _get_current_allocator,
    change_current_allocator,
    device_free,
    device_malloc,
    graph_pool_handle,
    use_mem_pool,
)
from ._memory_summary import list_gpu_processes, memory_summary
from ._utils import _get_device_index
from .devices import _is_in_bad_fork, _lazy_init, current_device, is_initialized
from .streams import current_stream

__all__ = [
    "CUDAPluggableAllocator",
    "MemPool",
    "_CUDAAllocator",
    "_allocation_traceback",
    "_attach_out_of_memory_observer",
    "_dump_snapshot",
    "_get_current_allocator",
    "_get_memory_metadata",
    "_record_memory_history",
    "_save_memory_usage",
    "_save_segment_usage",
    "_set_allocator_settings",
    "_set_memory_metadata",
    "_snapshot",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "device_free",
    "device_malloc",
    "device_memory_used",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "graph_pool_handle",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "ipc_collect",
    "list_gpu_processes",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


def _flatten(nested: dict[Any, Any]) -> "OrderedDict[str, Any]":
    flat: list[tuple[str, Any]] = []

    def collect(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                name = "_".join(map(str, key)) if isinstance(key, tuple) else key
                collect(f"{prefix}.{name}" if prefix else name, inner)
        else:
            flat.append((prefix, value))

    collect("", nested)
    return OrderedDict(sorted(flat))


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Return the figures of `memory_stats` as nested dictionaries.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.

    Raises
    ------
    RuntimeError
        In a process that was forked from one with initialized devices.
    """
    if _is_in_bad_fork():
        _lazy_init()
    if not is_initialized():
        return {}
    return _C.memory_stats(_get_device_index(device, optional=True))


def memory_stats(device: Device = None) -> "OrderedDict[str, Any]":
    """Return the statistics of a device's allocator, sorted by name; empty before first use.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.

    Returns
    -------
    OrderedDict
        ``"<figure>.<pool>.<metric>"``, where the figure is one of ``allocation``, ``segment``,
        ``active``, ``inactive_split`` (counts), ``allocated_bytes``, ``reserved_bytes``,
        ``active_bytes``, ``inactive_split_bytes``, ``requested_bytes``; the pool one of ``all``,
        ``small_pool``, ``large_pool``; the metric one of ``current``, ``peak``, ``allocated`` and
        ``freed`` (both since the start); the same of ``reserved_bytes_by_private_pools``, after
        whose name comes that of the `MemPool`, as in ``0_1``; ``oversize_allocations`` and
        ``oversize_segments``, of blocks that are as long as ``max_split_size`` allows to split, and
        longer; and plain counters such as ``num_ooms``. Without a limit ``max_split_size`` is -1.

    Raises
    ------
    RuntimeError
        In a process that was forked from one with initialized devices.
    """
    return _flatten(memory_stats_as_nested_dict(device))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Return the figures of `host_memory_stats` as nested dictionaries."""
    return _C.host_memory_stats()


def host_memory_stats() -> "OrderedDict[str, Any]":
    """Return the statistics of pinned host memory, sorted by name.

    It needs no device: the figures are there before the first is used.

    Returns
    -------
    OrderedDict
        ``"<figure>.<metric>"`` with ``current``, ``peak``, ``allocated`` and ``freed`` of
        ``allocations`` and ``allocated_bytes`` (held and cached), ``active_requests`` and
        ``active_bytes`` (held); ``total``, ``max``, ``min``, ``count`` and ``avg`` of
        ``host_alloc_time`` and ``host_free_time``, the microseconds spent in asking the system for
        blocks and in giving them back; and ``num_host_alloc`` and ``num_host_free``. As on CUDA,
        the peaks of what is held are added up over the sizes between each two powers of two.
    """
    return _flatten(host_memory_stats_as_nested_dict())


def reset_peak_host_memory_stats() -> None:
    """Make every peak of `host_memory_stats` the present value."""
    _C.reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Make every sum since the start of `host_memory_stats` zero."""
    _C.reset_accumulated_host_memory_stats()


# As in torch.cuda, no error but 0 in a process without devices, a forked one too.
def _figure(device: Device, name: str) -> int:
    return int(memory_stats(device)[name]) if is_initialized() else 0


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that tensors hold on a device.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return _figure(device, "allocated_bytes.all.current")


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes that tensors have held, since the start or the last reset.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return _figure(device, "allocated_bytes.all.peak")


def memory_reserved(device: Device = None) -> int:
    """Return the bytes that the allocator holds on a device, in use or cached.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return _figure(device, "reserved_bytes.all.current")


def max_memory_reserved(device: Device = None) -> int:
    """Return the most bytes that the allocator has held, since the start or the last reset.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return _figure(device, "reserved_bytes.all.peak")


def reset_peak_memory_stats(device: Device = None) -> None:
    """Make every peak of `memory_stats` the present value.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _C.reset_peak_memory_stats(_get_device_index(device, optional=True))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Make every sum since the start, and every counter, of `memory_stats` zero.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _C.reset_accumulated_memory_stats(_get_device_index(device, optional=True))


@deprecated(
    "`torch.openreg.memory_cached` has been renamed to `torch.openreg.memory_reserved`",
    category=FutureWarning,
)
def memory_cached(device: Device = None) -> int:
    """Return `memory_reserved`, whose earlier name this is.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return memory_reserved(device)


@deprecated(
    "`torch.openreg.max_memory_cached` has been renamed to `torch.openreg.max_memory_reserved`",
    category=FutureWarning,
)
def max_memory_cached(device: Device = None) -> int:
    """Return `max_memory_reserved`, whose earlier name this is.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return max_memory_reserved(device)


def _warn_that_all_peaks_are_reset(name: str) -> None:
    warnings.warn(
        f"torch.openreg.{name} now calls torch.openreg.reset_peak_memory_stats, "
        "which resets /all/ peak memory stats.",
        FutureWarning,
        stacklevel=3,
    )


def reset_max_memory_allocated(device: Device = None) -> None:
    """Do what `reset_peak_memory_stats` does, with a warning.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _warn_that_all_peaks_are_reset("reset_max_memory_allocated")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Device = None) -> None:
    """Do what `reset_peak_memory_stats` does, with a warning.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _warn_that_all_peaks_are_reset("reset_max_memory_cached")
    reset_peak_memory_stats(device)


def empty_cache() -> None:
    """Give the memory that the allocator holds but no tensor uses back to the system."""
    if is_initialized():
        _C.empty_cache()


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limit how much of a device's memory this process may use.

    Parameters
    ----------
    fraction : float
        0 to 1, of the device's total memory.
    device : torch.device, str, int or None
        The device; None means the current one.

    Raises
    ------
    TypeError, ValueError
        When `fraction` is not a float, or outside of its range.
    """
    _lazy_init()
    index = _get_device_index(device, optional=device is None)
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _C.set_memory_fraction(index, fraction)


def get_per_process_memory_fraction(device: Device = None) -> float:
    """Return the limit that `set_per_process_memory_fraction` set; 1 at the start.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    return _C.get_memory_fraction(_get_device_index(device, optional=device is None))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return free and total bytes of a device, all processes counted.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    return _C.mem_get_info(_get_device_index(device, optional=True))


def device_memory_used(device: Device = None) -> int:
    """Return the bytes of a device that are in use by all processes, as ``openreg smi`` shows them.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    free, total = mem_get_info(device)
    return total - free


def caching_allocator_alloc(size: int, device: Device = None, stream: Any = None) -> int:
    """Allocate memory outside of any tensor, and return its address on the device.

    Parameters
    ----------
    size : int
        Bytes. Of 0 bytes the address is 0.
    device : torch.device, str, int or None
        The device; None means the current one.
    stream : torch.openreg.Stream, int or None
        The stream that it is for, or that one's native handle; None means the device's current one.

    Raises
    ------
    TypeError, ValueError
        When `stream` or `size` is none of these, or `size` is below 0.
    """
    if not isinstance(size, int):
        raise TypeError(f"openreg: size={size!r}: expected a number of bytes, an int")
    if not 0 <= size < 2**63:
        raise ValueError(f"openreg: size={size}: expected a number of bytes, 0 to {2**63 - 1}")
    index = current_device() if device is None else _get_device_index(device)
    if stream is None:
        stream = current_stream(index)
    if isinstance(stream, torch.Stream):
        stream = stream.stream_id
    if not isinstance(stream, int):
        raise TypeError(
            "Invalid type for stream argument, must be `torch.openreg.Stream` or `int` "
            "representing the native handle of an existing stream"
        )
    _lazy_init()
    return _C.raw_alloc(index, stream, size)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Give memory back that `caching_allocator_alloc` returned.

    Parameters
    ----------
    mem_ptr : int
        Its address.

    Raises
    ------
    TypeError, ValueError
        When it is no int, and when nothing that is allocated begins there.
    """
    if not isinstance(mem_ptr, int):
        raise TypeError(f"openreg: mem_ptr={mem_ptr!r}: expected an address, an int")
    if not 0 <= mem_ptr < 2**64:
        raise ValueError(f"openreg: mem_ptr={mem_ptr}: expected an address, 0 to {2**64 - 1}")
    _C.raw_delete(mem_ptr)


def _set_allocator_settings(env: str) -> None:
    """Set how device and pinned memory is had and kept, as ``PYTORCH_ALLOC_CONF`` does.

    Parameters
    ----------
    env : str
        ``key:value`` pairs, separated by commas; CUDA's keys and values. What is not named of
        ``max_split_size_mb``, ``max_non_split_rounding_mb``, ``roundup_power2_divisions`` and
        ``garbage_collection_threshold`` is set to its default.

    Raises
    ------
    ValueError
        For a key that does not exist or a value that is not allowed; what came before it is set.
    """
    _C.set_allocator_settings(env)


def caching_allocator_enable(value: bool = True) -> None:
    """Turn the cache on or off.

    While it is off, each tensor's memory is had from the device when it is made and given back when
    it is gone; such memory counts in no statistic of the allocator.

    Parameters
    ----------
    value : bool
        Whether the cache is on.
    """
    if is_initialized():
        _C.enable_cache(value)


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Turn the cache off for a while."""
    previous = _C.cache_is_enabled()
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(previous)


def get_allocator_backend() -> str:
    """Return ``"native"`` for the caching allocator, ``"pluggable"`` for one of one's own."""
    return "native" if _C.get_allocator() is None else "pluggable"


def ipc_collect() -> None:
    """Take memory back that was sent to other processes, which no longer have it."""
    _lazy_init()
    _C.ipc_collect()
