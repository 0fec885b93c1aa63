"""Memory: how much of a device is used, by this process's caching allocator and in all.

Figures are bytes or counts under the names that ``torch.cuda`` gives them. *Allocated* is what
tensors hold, rounded up to blocks; *reserved* is what the allocator holds for them and for later.
"""

from collections import OrderedDict
from typing import Any

from torch.types import Device

from torch_openreg import _C

from ._utils import _get_device_index
from .devices import _lazy_init, is_initialized


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Return the figures of `memory_stats` as nested dictionaries.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
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
        ``freed`` (both since the start); and plain counters such as ``num_ooms``.
    """
    flat: list[tuple[str, Any]] = []

    def collect(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                collect(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat.append((prefix, value))

    collect("", memory_stats_as_nested_dict(device))
    return OrderedDict(sorted(flat))


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that tensors hold on a device.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return int(memory_stats(device).get("allocated_bytes.all.current", 0))


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes that tensors have held, since the start or the last reset.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return int(memory_stats(device).get("allocated_bytes.all.peak", 0))


def memory_reserved(device: Device = None) -> int:
    """Return the bytes that the allocator holds on a device, in use or cached.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return int(memory_stats(device).get("reserved_bytes.all.current", 0))


def max_memory_reserved(device: Device = None) -> int:
    """Return the most bytes that the allocator has held, since the start or the last reset.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return int(memory_stats(device).get("reserved_bytes.all.peak", 0))


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
