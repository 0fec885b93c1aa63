"""Readable reports about memory: the table of statistics, and the processes on a device."""

import os
from collections.abc import Callable
from typing import Any

from torch.types import Device

from torch_openreg import _C

from ._utils import _get_device_index
from .devices import _lazy_init

_WIDTH = 75
_KINDS = [("large_pool", "      from large pool"), ("small_pool", "      from small pool")]
_METRICS = ["current", "peak", "allocated", "freed"]

# A row changes to the next unit when its first value reaches these limits.
_SIZE_LIMIT = 768 * 1024
_COUNT_LIMIT = 750 * 1000


def _format_size(size: int, shown_as: int) -> str:
    scale = shown_as / 1
    prefix = "B  "
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB"]:
        if scale < _SIZE_LIMIT:
            break
        prefix = larger
        size //= 1024
        scale /= 1024
    return f"{size:6d} {prefix}"


def _format_count(count: int, shown_as: int) -> str:
    scale = shown_as / 1
    prefix = " "
    for larger in ["K", "M"]:
        if scale < _COUNT_LIMIT:
            break
        prefix = larger
        count //= 1000
        scale /= 1000
    return f"{count:7d} {prefix} "


_Format = Callable[[int, int], str]

_FIGURES: list[tuple[str, str, _Format]] = [
    ("allocated_bytes", "Allocated memory", _format_size),
    ("active_bytes", "Active memory", _format_size),
    ("requested_bytes", "Requested memory", _format_size),
    ("reserved_bytes", "GPU reserved memory", _format_size),
    ("inactive_split_bytes", "Non-releasable memory", _format_size),
    ("allocation", "Allocations", _format_count),
    ("active", "Active allocs", _format_count),
    ("segment", "GPU reserved segments", _format_count),
    ("inactive_split", "Non-releasable allocs", _format_count),
]
_OVERSIZE: list[tuple[str, str]] = [
    ("oversize_allocations", "Oversize allocations"),
    ("oversize_segments", "Oversize GPU segments"),
]


def _row(name: str, values: dict[str, int], units_of: dict[str, int], fmt: _Format) -> str:
    cells = " | ".join(fmt(values[metric], units_of[metric]) for metric in _METRICS)
    return f" {name:<21} | {cells} "


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Return a table of the memory statistics of a device, in the format of ``torch.cuda``.

    While launches have memory plans, a line after the table says how many had a plan from which
    source (`torch_openreg.plans.ask.report`).

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    abbreviated : bool
        Whether to omit the rows of the small and the large pool.
    """
    _lazy_init()
    index = _get_device_index(device, optional=True)
    stats: dict[str, Any] = _C.memory_stats(index)
    thick, thin = "=" * _WIDTH, "-" * _WIDTH
    lines = [
        thick,
        f" {'':14} PyTorch openreg memory summary, device ID {index:<16d} ",
        thin,
        f"  {'':8} openreg OOMs: {stats['num_ooms']:<12d} | {'':4} allocation retries: "
        f"{stats['num_alloc_retries']:<8d}  ",
        thick,
        "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ",
    ]
    for key, name, fmt in _FIGURES:
        kinds = stats[key]
        lines += [thin, _row(name, kinds["all"], kinds["all"], fmt)]
        if not abbreviated:
            lines += [_row(title, kinds[kind], kinds["all"], fmt) for kind, title in _KINDS]
    for key, name in _OVERSIZE:
        lines += [thin, _row(name, stats[key], stats[key], _format_count)]
    lines.append(thick)
    table = "|" + "|\n|".join(lines) + "|\n"
    if not _C.has_memory_planner():
        return table
    from ..plans.launches import summary_line

    return table + summary_line(index)


def list_gpu_processes(device: Device = None) -> str:
    """Return a list of the processes that use memory of a device, in ``torch.cuda``'s format.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    index = _get_device_index(device, optional=True)
    _C.mem_get_info(index)  # raises if the device does not exist
    groups, _ = _C.ledger_list()
    lines = [f"GPU:{index}"]
    for group in groups:
        processes = group["processes"]
        if all(process["pid"] != os.getpid() for process in processes):
            continue
        lines += [
            f"process {process['pid']:>10d} uses {process['bytes'][index] / 2**20:>12.3f} "
            "MB GPU memory"
            for process in processes
            if process["bytes"][index] > 0
        ]
    if len(lines) == 1:
        lines.append("no processes are running")
    return "\n".join(lines)
