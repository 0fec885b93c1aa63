"""The memory history: recording of allocations, and snapshots for PyTorch's tools.

Snapshots have the format of ``torch.cuda.memory._snapshot``, so ``torch.cuda._memory_viz`` and
https://pytorch.org/memory_viz can read them. Their streams are numbers, 0 for the default stream.
"""

import pickle
import sys
from inspect import signature
from typing import Any, Literal

import torch
from torch._utils import _augment_memory_snapshot_stack_traces
from torch.cuda._memory_viz import memory as _memory
from torch.cuda._memory_viz import segments as _segments
from torch.types import Device

from torch_openreg import _C, _history

from .devices import _lazy_init


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """Return the segments of all devices, each with its blocks.

    Parameters
    ----------
    mempool_id : tuple of int or None
        The `MemPool.id` of the pool whose segments to return; None or ``(0, 0)`` means all.
    include_traces : bool
        Has no effect, because segments have no traces.
    """
    _lazy_init()
    mempool = 0 if mempool_id is None else mempool_id[1]
    segments: list[dict[str, Any]] = _C.memory_snapshot(mempool, False)["segments"]
    return segments


def _record_memory_history_legacy(
    enabled: bool,
    record_context: bool = True,
    trace_alloc_max_entries: int = 1,
    trace_alloc_record_context: bool = False,
    device: Device = None,
    record_context_cpp: bool = False,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    context = "alloc" if trace_alloc_record_context else "state" if record_context else None
    _lazy_init()
    _C.record_memory_history(
        enabled,
        context,
        record_context_cpp,
        trace_alloc_max_entries,
        clear_history,
        compile_context,
        global_record_annotations,
        skip_actions or [],
    )


def _record_memory_history(
    enabled: Literal["state", "all"] | bool | None = "all", *args: Any, **kwargs: Any
) -> None:
    """Start or stop recording allocations and frees, with the stacks of their callers.

    The setting applies to all devices. Stopping discards everything that was recorded, including
    the stacks of blocks that are still allocated, so take a snapshot before.

    Parameters
    ----------
    enabled : "state", "all" or None
        None stops recording; ``"state"`` records the stacks of allocated blocks; ``"all"`` also
        records the history of events. A bool selects an older signature, as with ``torch.cuda``.
    context : "state", "alloc", "all" or None
        Which stacks to record: of allocated blocks, also of past allocations, also of frees.
    stacks : "python" or "all"
        Whether stacks have only frames of Python and TorchScript, or also of C++.
    max_entries : int
        The number of events to keep for each device. Newer events replace older ones.
    device : torch.device, str, int or None
        Has no effect, as with ``torch.cuda``.
    clear_history : bool
        Whether to discard the events recorded so far.
    compile_context : bool
        Whether to record the compiled region of each event.
    global_record_annotations : bool
        Whether to record `torch.profiler.record_function` of all threads, or only of this one.
    skip_actions : list of str or None
        The events not to record: ``"alloc"``, ``"free_requested"``, ``"free_completed"``,
        ``"segment_alloc"``, ``"segment_free"``, ``"segment_map"``, ``"segment_unmap"``, ``"oom"``,
        ``"snapshot"``.

    Raises
    ------
    RuntimeError
        If an argument has none of these values.
    """
    if isinstance(enabled, bool):
        _record_memory_history_legacy(enabled, *args, **kwargs)
    else:
        _record_memory_history_impl(enabled, *args, **kwargs)


def _record_memory_history_impl(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    _lazy_init()
    _history.record(
        enabled,
        context,
        stacks,
        max_entries,
        clear_history,
        compile_context,
        global_record_annotations,
        skip_actions,
    )


_record_memory_history.__signature__ = signature(  # type: ignore[attr-defined]
    _record_memory_history_impl
)


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Return the segments of all devices and, if recording is on, the history of events.

    Parameters
    ----------
    device : torch.device, str, int or None
        Has no effect, as with ``torch.cuda``.
    augment_with_fx_traces : bool
        Whether frames of code that FX generated also have the source lines that it came from.

    Returns
    -------
    dict
        ``segments`` (with ``blocks``), ``device_traces`` (a list of events for each device),
        ``allocator_settings`` and ``external_annotations``, as ``torch.cuda`` documents them.
    """
    _lazy_init()
    snapshot: dict[str, Any] = _C.memory_snapshot(0, True)
    if augment_with_fx_traces:
        snapshot = _augment_memory_snapshot_stack_traces(snapshot)  # type: ignore[assignment, arg-type]
    return snapshot


def _dump_snapshot(
    filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Write a snapshot to a file, which https://pytorch.org/memory_viz can show.

    Parameters
    ----------
    filename : str
        The file to write.
    augment_with_fx_traces : bool
        See `_snapshot`.
    """
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(augment_with_fx_traces=augment_with_fx_traces), file)


def _save_segment_usage(
    filename: str = "output.svg", snapshot: dict[str, Any] | None = None
) -> None:
    """Draw the segments and their blocks to an SVG file, with a script that PyTorch downloads.

    Parameters
    ----------
    filename : str
        The file to write.
    snapshot : dict or None
        A result of `_snapshot`; None takes a snapshot now.
    """
    with open(filename, "w") as file:
        file.write(_segments(_snapshot() if snapshot is None else snapshot))


def _save_memory_usage(
    filename: str = "output.svg", snapshot: dict[str, Any] | None = None
) -> None:
    """Draw memory by allocation stacks to an SVG file, with a script that PyTorch downloads.

    Parameters
    ----------
    filename : str
        The file to write.
    snapshot : dict or None
        A result of `_snapshot`; None takes a snapshot now.
    """
    with open(filename, "w") as file:
        file.write(_memory(_snapshot() if snapshot is None else snapshot))


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """Return the stack of a block's allocation, or None if it was not recorded.

    Parameters
    ----------
    data_ptr : int
        The address of the block: ``tensor.untyped_storage().data_ptr()``.
    """
    return _C.allocation_traceback(data_ptr)


def _set_memory_metadata(metadata: str) -> None:
    """Set the text that later events of this thread have as ``user_metadata``.

    Parameters
    ----------
    metadata : str
        The text; ``""`` removes it.
    """
    _C.set_memory_metadata(metadata)


def _get_memory_metadata() -> str:
    """Return the text that `_set_memory_metadata` set."""
    return _C.memory_metadata()


def _attach_out_of_memory_observer(observer: Any) -> None:
    """Register a function to call when a device runs out of memory, before the error is raised.

    The counterpart of ``torch._C._cuda_attach_out_of_memory_observer``. Observers cannot be
    removed. An exception of an observer replaces the error.

    Parameters
    ----------
    observer : callable
        Called with the index of the device, the bytes that the allocator tried to reserve, the
        bytes that this process may use on the device, and the free bytes of the device.
    """
    if not callable(observer):
        raise TypeError(f"openreg: observer={observer!r}: expected a callable")
    _C.attach_out_of_memory_observer(observer)


def register() -> None:
    """Make ``torch.accelerator.memory._snapshot`` support openreg devices."""
    generic = torch.accelerator.memory
    if not hasattr(generic, "_snapshot"):
        return  # PyTorch 2.12 has this function only in the modules of the devices
    for_others = generic._snapshot

    def snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> Any:
        accelerator = torch.accelerator.current_accelerator()
        ours = accelerator is not None and accelerator.type == "openreg"
        return (_snapshot if ours else for_others)(
            device, augment_with_fx_traces=augment_with_fx_traces
        )

    snapshot.__doc__ = for_others.__doc__
    generic._snapshot = snapshot
