"""Memory of the devices: statistics and settings of the caching allocator, and free memory.

Statistics are bytes or counts, with the names of ``torch.cuda``. *Allocated* memory is held by
tensors, rounded up to blocks. *Reserved* memory is held by the allocator, for tensors or for later
use. Other modules implement tables, pools and the history; this module re-exports them.
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
    """Return the statistics of `memory_stats` as nested dictionaries.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.

    Raises
    ------
    RuntimeError
        If this process was forked from a process with initialized devices.
    """
    if _is_in_bad_fork():
        _lazy_init()
    if not is_initialized():
        return {}
    return _C.memory_stats(_get_device_index(device, optional=True))


def memory_stats(device: Device = None) -> "OrderedDict[str, Any]":
    """Return the allocator statistics of a device, sorted by name; empty before first use.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.

    Returns
    -------
    OrderedDict
        The keys are:

        ``"<statistic>.<pool>.<metric>"``
            The statistic is ``allocation``, ``segment``, ``active`` or ``inactive_split`` (counts),
            or ``allocated_bytes``, ``reserved_bytes``, ``active_bytes``, ``inactive_split_bytes``
            or ``requested_bytes``. The pool is ``all``, ``small_pool`` or ``large_pool``. The
            metric is ``current``, ``peak``, or ``allocated`` or ``freed``, the totals since the
            start.
        ``"reserved_bytes_by_private_pools.<pool>.<metric>"``
            The same for each `MemPool`, whose id is written as in ``0_1``.
        ``"oversize_allocations.<metric>"``, ``"oversize_segments.<metric>"``
            Blocks of at least ``max_split_size``, which are never split.
        others
            Counters such as ``num_ooms``, and ``max_split_size``, which is -1 for no limit.

    Raises
    ------
    RuntimeError
        If this process was forked from a process with initialized devices.
    """
    return _flatten(memory_stats_as_nested_dict(device))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Return the statistics of `host_memory_stats` as nested dictionaries."""
    return _C.host_memory_stats()


def host_memory_stats() -> "OrderedDict[str, Any]":
    """Return the statistics of pinned host memory, sorted by name.

    The function does not need a device: the statistics exist before the first use of a device.

    Returns
    -------
    OrderedDict
        The keys are:

        ``"<statistic>.<metric>"``
            The statistic is ``allocations`` or ``allocated_bytes`` (in use and cached), or
            ``active_requests`` or ``active_bytes`` (in use). The metric is ``current``, ``peak``,
            ``allocated`` or ``freed``. As on CUDA, peaks of memory in use are sums over size
            classes, one for each power of two.
        ``"host_alloc_time.<metric>"``, ``"host_free_time.<metric>"``
            The microseconds for allocating blocks from the system and for freeing them. The metric
            is ``total``, ``max``, ``min``, ``count`` or ``avg``.
        ``"num_host_alloc"``, ``"num_host_free"``
            The number of such allocations and frees.
    """
    return _flatten(host_memory_stats_as_nested_dict())


def reset_peak_host_memory_stats() -> None:
    """Reset every peak of `host_memory_stats` to the current value."""
    _C.reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Reset the totals of `host_memory_stats` to zero."""
    _C.reset_accumulated_host_memory_stats()


# As in torch.cuda: 0 instead of an error if the devices are not initialized, or after a fork.
def _statistic(device: Device, name: str) -> int:
    return int(memory_stats(device)[name]) if is_initialized() else 0


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that tensors occupy on a device.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return _statistic(device, "allocated_bytes.all.current")


def max_memory_allocated(device: Device = None) -> int:
    """Return the peak of `memory_allocated` since the start or the last reset.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return _statistic(device, "allocated_bytes.all.peak")


def memory_reserved(device: Device = None) -> int:
    """Return the bytes that the allocator has reserved on a device, in use or cached.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return _statistic(device, "reserved_bytes.all.current")


def max_memory_reserved(device: Device = None) -> int:
    """Return the peak of `memory_reserved` since the start or the last reset.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return _statistic(device, "reserved_bytes.all.peak")


def reset_peak_memory_stats(device: Device = None) -> None:
    """Reset every peak of `memory_stats` to the current value.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _C.reset_peak_memory_stats(_get_device_index(device, optional=True))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Reset the totals and counters of `memory_stats` to zero.

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
    """Return `memory_reserved`. This is its earlier name.

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
    """Return `max_memory_reserved`. This is its earlier name.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return max_memory_reserved(device)


def _warn_about_reset(name: str) -> None:
    warnings.warn(
        f"torch.openreg.{name} now calls torch.openreg.reset_peak_memory_stats, "
        "which resets /all/ peak memory stats.",
        FutureWarning,
        stacklevel=3,
    )


def reset_max_memory_allocated(device: Device = None) -> None:
    """Call `reset_peak_memory_stats`, with a warning.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _warn_about_reset("reset_max_memory_allocated")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Device = None) -> None:
    """Call `reset_peak_memory_stats`, with a warning.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _warn_about_reset("reset_max_memory_cached")
    reset_peak_memory_stats(device)


def empty_cache() -> None:
    """Release all cached memory that no tensor uses."""
    if is_initialized():
        _C.empty_cache()


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limit how much of a device's memory this process may use.

    Parameters
    ----------
    fraction : float
        The fraction of the device's total memory, from 0 to 1.
    device : torch.device, str, int or None
        The device; None means the current one.

    Raises
    ------
    TypeError, ValueError
        If `fraction` is not a float, or is outside of its range.
    """
    _lazy_init()
    index = _get_device_index(device, optional=device is None)
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _C.set_memory_fraction(index, fraction)


def get_per_process_memory_fraction(device: Device = None) -> float:
    """Return the limit of `set_per_process_memory_fraction`; initially 1.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    return _C.get_memory_fraction(_get_device_index(device, optional=device is None))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return the free and total bytes of a device, counting all processes.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    return _C.mem_get_info(_get_device_index(device, optional=True))


def device_memory_used(device: Device = None) -> int:
    """Return the bytes of a device that all processes use, as shown by ``openreg smi``.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    free, total = mem_get_info(device)
    return total - free


def caching_allocator_alloc(size: int, device: Device = None, stream: Any = None) -> int:
    """Allocate memory that belongs to no tensor, and return its address on the device.

    Parameters
    ----------
    size : int
        The size in bytes. For 0 the address is 0.
    device : torch.device, str, int or None
        The device; None means the current one.
    stream : torch.openreg.Stream, int or None
        The stream that will use the memory, or its native handle; None means the current stream of
        the device.

    Raises
    ------
    TypeError, ValueError
        If `stream` or `size` has another type, or `size` is negative or too large.
    """
    if not isinstance(size, int):
        raise TypeError(f"openreg: size={size!r}: expected a number of bytes (int)")
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
    """Free memory of `caching_allocator_alloc`.

    Parameters
    ----------
    mem_ptr : int
        The address of the memory.

    Raises
    ------
    TypeError, ValueError
        If `mem_ptr` is not an int, or not the address of an allocation.
    """
    if not isinstance(mem_ptr, int):
        raise TypeError(f"openreg: mem_ptr={mem_ptr!r}: expected an address (int)")
    if not 0 <= mem_ptr < 2**64:
        raise ValueError(f"openreg: mem_ptr={mem_ptr}: expected an address, 0 to {2**64 - 1}")
    _C.raw_delete(mem_ptr)


def _set_allocator_settings(env: str) -> None:
    """Change the settings of the allocators for device and pinned memory.

    Parameters
    ----------
    env : str
        Settings in the format of ``PYTORCH_ALLOC_CONF``: ``key:value`` pairs, separated by commas,
        with CUDA's keys and values. The keys ``max_split_size_mb``, ``max_non_split_rounding_mb``,
        ``roundup_power2_divisions`` and ``garbage_collection_threshold`` are reset to their
        defaults if they are missing.

    Raises
    ------
    ValueError
        For an unknown key or an invalid value. The settings before it take effect.
    """
    _C.set_allocator_settings(env)


def caching_allocator_enable(value: bool = True) -> None:
    """Turn the cache on or off.

    While it is off, the memory of each tensor is allocated from the device and released with the
    tensor. The statistics of the allocator do not include this memory.

    Parameters
    ----------
    value : bool
        Whether to turn the cache on.
    """
    if is_initialized():
        _C.enable_cache(value)


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Context manager that turns the cache off."""
    previous = _C.cache_is_enabled()
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(previous)


def get_allocator_backend() -> str:
    """Return ``"native"`` for the caching allocator, ``"pluggable"`` for a custom allocator."""
    return "native" if _C.get_allocator() is None else "pluggable"


def ipc_collect() -> None:
    """Free memory that was sent to other processes and that they no longer use."""
    _lazy_init()
    _C.ipc_collect()
