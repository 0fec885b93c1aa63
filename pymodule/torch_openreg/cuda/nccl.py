"""Collectives among devices of one process, as ``torch.cuda.nccl`` asks ``torch._C`` for them.

Inputs are one tensor a device. Sums are in the order of the inputs. Communicators, which NCCL's
callers may pass to have them used again, are not needed and not looked at.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

_Tensors = Sequence[torch.Tensor]

# By NCCL's numbers of operations.
_OPERATIONS: tuple[Callable[..., torch.Tensor], ...] = (
    torch.add,
    torch.mul,
    torch.maximum,
    torch.minimum,
)


def _check(inputs: _Tensors, outputs: _Tensors) -> None:
    """Refuse what NCCL's callers check before they call it."""
    if len(inputs) == 0:
        raise RuntimeError("input sequence can't be empty")
    if len(inputs) != len(outputs):
        raise RuntimeError(
            "inputs and outputs sequences have to be of the same length, but got input of length "
            f"{len(inputs)} and output of length {len(outputs)}"
        )
    if not all(tensor.is_cuda for tensor in (*inputs, *outputs)):
        raise RuntimeError("expected all inputs and outputs to be tensors on CUDA devices")
    if len({tensor.get_device() for tensor in inputs}) != len(inputs):
        raise RuntimeError("inputs must be on unique devices")


@contextlib.contextmanager
def _on(streams: Sequence[Any] | None) -> Any:
    """Make the streams the current ones of their devices."""
    with contextlib.ExitStack() as entered:
        for stream in streams or ():
            entered.enter_context(torch.cuda.stream(stream))
        yield


def _reduced(inputs: _Tensors, op: int, device: torch.device) -> torch.Tensor:
    """Combine the inputs on a device; the result is none of them."""
    if not 0 <= op < len(_OPERATIONS):
        raise RuntimeError(f"op must be one of 0 to {len(_OPERATIONS) - 1}, but got {op}")
    first, *others = (tensor.to(device, non_blocking=True) for tensor in inputs)
    return functools.reduce(_OPERATIONS[op], others, first.clone())


def _nccl_reduce(
    input: _Tensors, output: torch.Tensor, root: int, op: int, streams: Any, comms: Any
) -> None:
    _check(input, input)
    with torch.no_grad(), _on(streams):
        output.copy_(_reduced(input, op, output.device))


def _nccl_all_reduce(input: _Tensors, output: _Tensors, op: int, streams: Any, comms: Any) -> None:
    _check(input, output)
    with torch.no_grad(), _on(streams):
        result = _reduced(input, op, output[0].device)
        for tensor in output:
            tensor.copy_(result, non_blocking=True)


def _nccl_broadcast(input: _Tensors, root: int, streams: Any, comms: Any) -> None:
    _check(input, input)
    with torch.no_grad(), _on(streams):
        for index, tensor in enumerate(input):
            if index != root:
                tensor.copy_(input[root], non_blocking=True)


def _nccl_all_gather(input: _Tensors, output: _Tensors, streams: Any, comms: Any) -> None:
    _check(input, output)
    with torch.no_grad(), _on(streams):
        for tensor in output:
            parts = tensor.view(len(input), -1)
            for part, source in zip(parts, input, strict=True):
                part.copy_(source.reshape(-1), non_blocking=True)


def _nccl_reduce_scatter(
    input: _Tensors, output: _Tensors, op: int, streams: Any, comms: Any
) -> None:
    _check(input, output)
    with torch.no_grad(), _on(streams):
        result = _reduced(input, op, output[0].device).view(len(output), -1)
        for tensor, part in zip(output, result, strict=True):
            tensor.copy_(part.view(tensor.shape), non_blocking=True)


def install() -> None:
    """Put the functions where PyTorch looks for them."""
    for function in (
        _nccl_all_gather,
        _nccl_all_reduce,
        _nccl_broadcast,
        _nccl_reduce,
        _nccl_reduce_scatter,
    ):
        setattr(torch._C, function.__name__, function)
