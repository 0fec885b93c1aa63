"""What happened to memory, and what there is: recording, and snapshots for PyTorch's tools.

A snapshot has the format of ``torch.cuda.memory._snapshot``: ``torch.cuda._memory_viz`` and
https://pytorch.org/memory_viz read it. Its streams are numbers, 0 for the default stream.
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
        `MemPool.id` of the pool whose segments are wanted; None, or ``(0, 0)``, means all.
    include_traces : bool
        Has no effect: segments have none.
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
    """Begin or end the recording of what happens to memory, and of who asked for it.

    It holds for all devices. Ending it throws away what was recorded, the stacks of blocks that
    are still held too; take the snapshot before.

    Parameters
    ----------
    enabled : "state", "all" or None
        None ends it; ``"state"`` keeps the stacks of what is held; ``"all"`` also the history. A
        bool is taken for the first argument of an older signature, as with ``torch.cuda``.
    context : "state", "alloc", "all" or None
        Of what stacks are kept: of what is held, also of past allocations, also of what was freed.
    stacks : "python" or "all"
        Whether stacks have frames of Python and TorchScript, or of C++ too.
    max_entries : int
        Events that are kept of each device; later ones take the place of earlier ones.
    device : torch.device, str, int or None
        Has no effect, as with ``torch.cuda``.
    clear_history : bool
        Whether the events that were recorded before are thrown away.
    compile_context : bool
        Whether events tell the compiled region that they happened in.
    global_record_annotations : bool
        Whether `torch.profiler.record_function` of all threads is recorded, or of this one.
    skip_actions : list of str or None
        Events not to be recorded: ``"alloc"``, ``"free_requested"``, ``"free_completed"``,
        ``"segment_alloc"``, ``"segment_free"``, ``"segment_map"``, ``"segment_unmap"``, ``"oom"``,
        ``"snapshot"``.

    Raises
    ------
    RuntimeError
        For a word that is not one of these.
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
    """Return what there is on all devices and, if recording is on, what happened.

    Parameters
    ----------
    device : torch.device, str, int or None
        Has no effect, as with ``torch.cuda``.
    augment_with_fx_traces : bool
        Whether frames of code that FX generated also tell the lines that it was generated from.

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
    """Write `_snapshot` to a file, which https://pytorch.org/memory_viz shows.

    Parameters
    ----------
    filename : str
        The file.
    augment_with_fx_traces : bool
        As of `_snapshot`.
    """
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(augment_with_fx_traces=augment_with_fx_traces), file)


def _save_segment_usage(
    filename: str = "output.svg", snapshot: dict[str, Any] | None = None
) -> None:
    """Draw segments and the blocks in them, with a script that PyTorch fetches.

    Parameters
    ----------
    filename : str
        The file.
    snapshot : dict or None
        What `_snapshot` returned; None means to take one now.
    """
    with open(filename, "w") as file:
        file.write(_segments(_snapshot() if snapshot is None else snapshot))


def _save_memory_usage(
    filename: str = "output.svg", snapshot: dict[str, Any] | None = None
) -> None:
    """Draw blocks by the stacks of their allocations, with a script that PyTorch fetches.

    Parameters
    ----------
    filename : str
        The file.
    snapshot : dict or None
        What `_snapshot` returned; None means to take one now.
    """
    with open(filename, "w") as file:
        file.write(_memory(_snapshot() if snapshot is None else snapshot))


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """Return the stack with which a block was allocated; None if it was not recorded.

    Parameters
    ----------
    data_ptr : int
        ``tensor.untyped_storage().data_ptr()``.
    """
    return _C.allocation_traceback(data_ptr)


def _set_memory_metadata(metadata: str) -> None:
    """Set what events of this thread show as ``user_metadata`` from now on.

    Parameters
    ----------
    metadata : str
        The text; ``""`` for nothing.
    """
    _C.set_memory_metadata(metadata)


def _get_memory_metadata() -> str:
    """Return what `_set_memory_metadata` set."""
    return _C.memory_metadata()


def _attach_out_of_memory_observer(observer: Any) -> None:
    """Have a function called whenever a device runs out of memory, before the error is raised.

    ``torch._C._cuda_attach_out_of_memory_observer`` is CUDA's. Observers are for good; what one
    raises is raised in the error's place.

    Parameters
    ----------
    observer : callable
        Called with the device's index, the bytes that the allocator tried to reserve, those that
        this process may have on the device, and those that are free on it.
    """
    if not callable(observer):
        raise TypeError(f"openreg: observer={observer!r}: expected what can be called")
    _C.attach_out_of_memory_observer(observer)


def register() -> None:
    """Have ``torch.accelerator.memory._snapshot``, which knows two device types, find this one."""
    generic = torch.accelerator.memory
    for_others = generic._snapshot

    def snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> Any:
        accelerator = torch.accelerator.current_accelerator()
        ours = accelerator is not None and accelerator.type == "openreg"
        return (_snapshot if ours else for_others)(
            device, augment_with_fx_traces=augment_with_fx_traces
        )

    snapshot.__doc__ = for_others.__doc__
    generic._snapshot = snapshot
