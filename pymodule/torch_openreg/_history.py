"""Checks the arguments of `_record_memory_history` in both modes, and starts the recording.

This module does not import PyTorch: CUDA mode uses it before PyTorch is fully imported.
"""

from torch_openreg import _C


def _check_one_of(word: str | None, allowed: tuple[str | None, ...], sentence: str) -> None:
    if word not in allowed:
        raise RuntimeError(f"{sentence}, got {word!r}")


def record(
    enabled: str | None,
    context: str | None,
    stacks: str,
    max_entries: int,
    clear_history: bool,
    compile_context: bool,
    global_record_annotations: bool,
    skip_actions: list[str] | None,
) -> None:
    """Start or stop recording the memory history.

    Parameters
    ----------
    enabled, context, stacks, max_entries, clear_history, compile_context, \
    global_record_annotations, skip_actions
        See ``torch.cuda.memory._record_memory_history``.

    Raises
    ------
    RuntimeError
        If `enabled`, `context` or `stacks` has an invalid value.
    """
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
