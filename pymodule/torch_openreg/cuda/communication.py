"""Copies between the devices of a process: the functions that ``torch.nn.parallel.comm`` needs.

The checks, their order and their messages are CUDA's. NCCL is not involved.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch._utils import (
    _flatten_dense_tensors,
    _flatten_sparse_tensors,
    _reorder_tensors_as,
    _take_tensors,
    _unflatten_dense_tensors,
    _unflatten_sparse_tensors,
)

_Streams = Sequence[torch.Stream | None] | None


def _check(condition: bool, sentence: str) -> None:
    if not condition:
        raise RuntimeError(sentence)


def _check_output_is_on_device(output: torch.Tensor, index: int) -> None:
    _check(
        output.is_cuda,
        "Expected all output tensors to be CUDA tensors, but output tensor at index "
        f"{index} has device '{output.device}'",
    )


def _wrap(dim: int, tensor: torch.Tensor) -> int:
    """Return a dimension as a nonnegative number."""
    rank = max(tensor.dim(), 1)
    if not -rank <= dim < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], "
            f"but got {dim})"
        )
    return dim % rank


# ---- broadcast -----------------------------------------------------------------------------------


def broadcast_out(tensor: torch.Tensor, out: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copy a tensor to each tensor of `out`. They must be on devices and have its shape."""
    for index, output in enumerate(out):
        _check_output_is_on_device(output, index)
        _check(
            output.shape == tensor.shape,
            "Expected all output tensors to have same shape as the source tensor "
            f"{list(tensor.shape)}, but output tensor at index {index} has shape "
            f"{list(output.shape)}",
        )
    return [output.copy_(tensor, non_blocking=True) for output in out]


def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    """Return a copy for each device, and the tensor itself for its own device."""
    for device in devices:
        _check(device >= 0, f"Expected non-negative device index, but got {device}")
    here = tensor.get_device()
    copies: list[torch.Tensor] = []
    for device in devices:
        if device == here:
            copies.append(tensor)
        else:
            empty = torch.empty(
                tensor.shape,
                dtype=tensor.dtype,
                layout=tensor.layout,
                device=torch.device("cuda", device),
            )
            copies.append(empty.copy_(tensor, non_blocking=True))
    return copies


def broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    """Return the tensors for the first device, and copies of them for the other devices.

    Tensors of the same type are copied together, up to `buffer_size` bytes at once.
    """
    _check(
        all(tensor.get_device() == devices[0] for tensor in tensors),
        f"All tensors must be on devices[0]: {devices[0]}",
    )
    copies: list[list[torch.Tensor]] = [[] for _ in devices[1:]]
    for chunk in _take_tensors(tensors, buffer_size):
        if chunk[0].is_sparse:
            indices, values = (broadcast(flat, devices) for flat in _flatten_sparse_tensors(chunk))
            parts = [
                _unflatten_sparse_tensors(flat, chunk)
                for flat in zip(indices[1:], values[1:], strict=True)
            ]
        else:
            whole = broadcast(_flatten_dense_tensors(chunk), devices)
            parts = [_unflatten_dense_tensors(flat, chunk) for flat in whole[1:]]
        for there, part in zip(copies, parts, strict=True):
            # `data` gives each tensor its own version counter, although they share one tensor.
            there.extend(tensor.data for tensor in part)
    return [list(tensors), *(list(_reorder_tensors_as(there, tensors)) for there in copies)]


# ---- scatter -------------------------------------------------------------------------------------


def _on_stream(
    streams: _Streams, index: int, device: int
) -> contextlib.AbstractContextManager[Any]:
    """Return a context manager that makes the stream of a copy current, if there is one."""
    stream = streams[index] if streams is not None and index < len(streams) else None
    if stream is None:
        return contextlib.nullcontext()
    _check(
        stream.device_index == device,
        f"Expected the device associated with the stream at index {index} "
        f"(was {stream.device_index}) to match the device supplied at that index "
        f"(expected {device})",
    )
    return torch.cuda.stream(stream)  # type: ignore[arg-type]


def _check_streams(streams: Any) -> _Streams:
    if streams is None:
        return None
    if not isinstance(streams, Sequence):
        raise RuntimeError("Need a sequence of streams")
    for stream in streams:
        if stream is not None and not isinstance(stream, torch.Stream):
            raise RuntimeError(
                "Unknown data type found in stream list. Need torch.cuda.Stream or None"
            )
    return streams


def scatter_out(
    tensor: torch.Tensor, out: list[torch.Tensor], dim: int, streams: Any
) -> list[torch.Tensor]:
    """Copy parts of a tensor to the tensors of `out`, whose sizes define the parts."""
    streams = _check_streams(streams)
    _check(len(out) > 0, "Expected at least one output tensor to scatter to")
    dim = _wrap(dim, tensor)
    chunk_sizes = []
    for index, output in enumerate(out):
        _check_output_is_on_device(output, index)
        shape = list(output.shape)
        if len(shape) == tensor.dim():
            chunk_sizes.append(shape[dim])
            shape[dim] = tensor.size(dim)
        _check(
            shape == list(tensor.shape),
            f"Output tensor at index {index} has incorrect shape: {list(output.shape)}. Expected "
            f"same shape except for scatter dim {dim} as the source tensor: {list(tensor.shape)}",
        )
    _check(
        sum(chunk_sizes) == tensor.size(dim),
        f"Total size for output tensors along scatter dim {dim} does not match the source tensor "
        f"size at dim {dim}. Expected {tensor.size(dim)}, but got total size {sum(chunk_sizes)}",
    )
    chunks = tensor.split_with_sizes(chunk_sizes, dim)
    for index, (output, chunk) in enumerate(zip(out, chunks, strict=True)):
        with _on_stream(streams, index, output.get_device()):
            output.copy_(chunk, non_blocking=True)
    return out


def scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Any,
) -> list[torch.Tensor]:
    """Return a part of a tensor for each device. By default the parts are equal.

    The part for the tensor's own device is a view.
    """
    streams = _check_streams(streams)
    _check(len(devices) > 0, "Expected at least one device to scatter to")
    _check(
        chunk_sizes is None or len(chunk_sizes) == len(devices),
        "Expected devices and chunk_sizes to be of same length, but got "
        f"len(devices) = {len(devices)} and len(chunk_sizes) = {len(chunk_sizes or ())}",
    )
    dim = _wrap(dim, tensor)
    if chunk_sizes is not None:
        chunks = list(tensor.split_with_sizes(list(chunk_sizes), dim))
    else:
        chunks = list(tensor.chunk(len(devices), dim))
    here = tensor.get_device()
    for index, chunk in enumerate(chunks):
        device = devices[index]
        if device != here:
            with _on_stream(streams, index, device):
                _check(device >= 0, f"Expected non-negative device index, but got {device}")
                chunks[index] = chunk.to(torch.device("cuda", device), non_blocking=True)
    return chunks


# ---- gather --------------------------------------------------------------------------------------


def _gathered_shape(tensors: Sequence[torch.Tensor], dim: int) -> list[int]:
    """Return the shape of the concatenated tensors. Their shapes may only differ in `dim`."""
    expected = list(tensors[0].shape)
    total = 0
    for index, tensor in enumerate(tensors):
        _check(
            tensor.is_cuda,
            "Expected all input tensors to be CUDA tensors, but tensor at index "
            f"{index} has device '{tensor.device}'",
        )
        _check(
            tensor.dim() == len(expected),
            "Expected all input tensors to have the same number of dimensions, but tensor at index "
            f"{index} has {tensor.dim()} dimensions, (expected {len(expected)})",
        )
        expected[dim] = tensor.size(dim)
        _check(
            expected == list(tensor.shape),
            f"Input tensor at index {index} has invalid shape {list(tensor.shape)}, "
            f"but expected {expected}",
        )
        total += tensor.size(dim)
    expected[dim] = total
    return expected


def _concatenate(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int) -> torch.Tensor:
    chunks = out.split_with_sizes([tensor.size(dim) for tensor in tensors], dim)
    for chunk, tensor in zip(chunks, tensors, strict=True):
        chunk.copy_(tensor, non_blocking=out.is_cuda)
    return out


def gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int) -> torch.Tensor:
    """Concatenate tensors of several devices into a tensor on any device."""
    _check(len(tensors) > 0, "Expected at least one tensor to gather from")
    dim = _wrap(dim, tensors[0])
    shape = _gathered_shape(tensors, dim)
    _check(
        list(out.shape) == shape,
        f"Expected out tensor to have shape {shape}, but got {list(out.shape)}",
    )
    return _concatenate(tensors, out, dim)


def gather(
    tensors: Sequence[torch.Tensor], dim: int, destination_index: int | None
) -> torch.Tensor:
    """Concatenate tensors of several devices on one device: None is the current one, -1 the CPU."""
    _check(len(tensors) > 0, "Expected at least one tensor to gather from")
    dim = _wrap(dim, tensors[0])
    shape = _gathered_shape(tensors, dim)
    formats = {suggest_memory_format(tensor) for tensor in tensors}
    device = torch.device("cpu")
    if destination_index != -1:
        index = torch.cuda.current_device() if destination_index is None else destination_index
        device = torch.device("cuda", index)
    out = torch.empty(
        shape,
        dtype=tensors[0].dtype,
        device=device,
        memory_format=formats.pop() if len(formats) == 1 else torch.contiguous_format,
    )
    return _concatenate(tensors, out, dim)


def install() -> None:
    """Add the functions to ``torch._C``."""
    for function in (
        broadcast,
        broadcast_out,
        broadcast_coalesced,
        scatter,
        scatter_out,
        gather,
        gather_out,
    ):
        setattr(torch._C, f"_{function.__name__}", function)
