"""Checks the arguments of `_record_memory_history` in both modes, and starts the recording.

This module does not import PyTorch: CUDA mode uses it before PyTorch is fully imported.
"""

from torch_openreg import _C


def _check_one_of(word: str | None, allowed: tuple[str | None, ...], sentence: str) -> None:
    if word not in allowed:
        raise RuntimeError(f"{sentence}, got {word!r}")


def require_device_history(record_pinned_host_memory: bool, record_cuda: bool) -> None:
    """Raise NotImplementedError unless the history is that of device memory alone.

    PyTorch has these arguments since 2.14.
    """
    if record_pinned_host_memory or not record_cuda:
        raise NotImplementedError(
            f"openreg records the history of device memory only, but record_pinned_host_memory is "
            f"{record_pinned_host_memory} and record_cuda is {record_cuda}: leave out both"
        )


def record(
    enabled: str | None,
    context: str | None,
    stacks: str,
    max_entries: int,
    clear_history: bool,
    compile_context: bool,
    global_record_annotations: bool,
    skip_actions: list[str] | None,
    record_pinned_host_memory: bool = False,
    record_cuda: bool = True,
) -> None:
    """Start or stop recording the memory history.

    Parameters
    ----------
    enabled, context, stacks, max_entries, clear_history, compile_context, \
    global_record_annotations, skip_actions, record_pinned_host_memory, record_cuda
        See ``torch.cuda.memory._record_memory_history``.

    Raises
    ------
    RuntimeError
        If `enabled`, `context` or `stacks` has an invalid value.
    NotImplementedError
        If `record_pinned_host_memory` is set.
    """
    require_device_history(record_pinned_host_memory, record_cuda)
    _check_one_of(enabled, ("state", "all", None), "expected state to be 'state', 'all', or None")
    _check_one_of(
        context,
        ("state", "alloc", "all", None),
        "expected context to be 'state', 'alloc', 'all', or None",
    )
    _check_one_of(stacks, ("python", "all"), "expected stacks to be 'python', or 'all'")
    _C.record_memory_history(
        enabled is not None,
        context,
        stacks == "all",
        max_entries if enabled == "all" else 1,
        clear_history,
        compile_context,
        global_record_annotations,
        skip_actions or [],
    )
