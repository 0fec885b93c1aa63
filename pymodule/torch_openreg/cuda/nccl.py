"""Collectives between the devices of a process: the functions that ``torch.cuda.nccl`` needs.

The inputs are one tensor per device. Each device does its part on its current stream or a given
stream, and waits there for the others. Reductions are in the order of the inputs.
"""

import os
import struct
import time
import zlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from .. import _C

_Tensors = Sequence[torch.Tensor]

# The version of NCCL in the supported PyTorch with CUDA. Some programs require a minimum version.
VERSION = (2, 29, 7)


def _nccl_version() -> int:
    major, minor, patch = VERSION
    return major << 32 | minor << 16 | patch


def _nccl_version_suffix() -> bytes:
    return b""


# ---- communicators -------------------------------------------------------------------------------

# By the devices. They are created on first use and kept, because creating them takes time.
_communicators: dict[tuple[int, ...], list[Any]] = {}

# An id is created before the number of ranks is known. So it names a mailbox: a memfd that the
# process which created the id keeps open. Rank 0 writes there the id that the others join.
_MAILBOX = struct.Struct("=8sQQ16s")
_MAGIC = b"openreg\0"
_ID_BYTES = 128
_TIMEOUT_SECONDS = 600
_POLL_SECONDS = 1e-3


def _nccl_unique_id() -> bytes:
    file = os.memfd_create("openreg-nccl-id")
    secret = os.urandom(16)
    os.write(file, secret)
    return _MAILBOX.pack(_MAGIC, os.getpid(), file, secret).ljust(_ID_BYTES, b"\0")


def _open_mailbox(unique_id: bytes) -> int:
    if len(unique_id) != _ID_BYTES or not unique_id.startswith(_MAGIC):
        raise RuntimeError("expected an id from torch.cuda.nccl.unique_id()")
    _, process, file, secret = _MAILBOX.unpack_from(unique_id)
    try:
        mailbox = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR)
    except OSError as error:
        raise RuntimeError(
            "the process that called torch.cuda.nccl.unique_id() has ended, or belongs to another "
            "user or machine"
        ) from error
    if os.pread(mailbox, len(secret), 0) != secret:
        os.close(mailbox)
        raise RuntimeError("the process that called torch.cuda.nccl.unique_id() has ended")
    return mailbox


def _nccl_init_rank(nranks: int, comm_id: bytes, rank: int) -> Any:
    """Join the ranks of an id with the current device, and wait until all have joined."""
    if not 0 <= rank < nranks:
        raise RuntimeError(f"rank must be one of 0 to {nranks - 1}, but got {rank}")
    mailbox, offset = _open_mailbox(comm_id), 16
    try:
        if rank == 0:
            os.pwrite(mailbox, _C._nccl.make_id(nranks), offset)
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while len(joined := os.pread(mailbox, _ID_BYTES, offset)) < _ID_BYTES:
            if time.monotonic() > deadline:
                raise RuntimeError(f"rank 0 did not call init_rank within {_TIMEOUT_SECONDS} s")
            time.sleep(_POLL_SECONDS)
    finally:
        os.close(mailbox)
    return _C._nccl.join(nranks, joined, rank, torch.cuda.current_device())


def _communicators_of(tensors: _Tensors, given: Sequence[Any] | None) -> list[Any]:
    devices = tuple(tensor.get_device() for tensor in tensors)
    if given is not None:
        if len(given) != len(devices):
            raise RuntimeError("number of communicators is not equal to number of inputs")
        if tuple(communicator.device for communicator in given) != devices:
            raise RuntimeError("communicators and inputs must be on the same devices")
        return list(given)
    if devices not in _communicators:
        _communicators[devices] = _C._nccl.join_all(devices)
    return _communicators[devices]


# ---- collectives ---------------------------------------------------------------------------------


def _streams_of(tensors: _Tensors, given: Sequence[Any] | None) -> list[int]:
    if given is not None and len(given) != len(tensors):
        raise RuntimeError("number of streams is not equal to number of inputs")
    streams = []
    for tensor, stream in zip(tensors, given or [None] * len(tensors), strict=True):
        device = tensor.get_device()
        if stream is not None and stream.device_index != device:
            raise RuntimeError("streams and inputs must be on the same devices")
        streams.append(_C.current_stream(device) if stream is None else stream.stream_id)
    return streams


def _check(
    inputs: _Tensors, outputs: _Tensors, from_inputs: int = 1, from_outputs: int = 1
) -> None:
    """Check inputs and outputs, as PyTorch does before it calls NCCL.

    An input of n elements corresponds to an output of n * from_inputs / from_outputs elements.
    """
    if len(inputs) == 0:
        raise RuntimeError("input sequence can't be empty")
    if len(inputs) != len(outputs):
        raise RuntimeError(
            "inputs and outputs sequences have to be of the same length, but got input of length "
            f"{len(inputs)} and output of length {len(outputs)}"
        )
    everything = (*inputs, *outputs)
    if not all(tensor.is_cuda and tensor.layout == torch.strided for tensor in everything):
        raise RuntimeError("expected all inputs and outputs to be dense tensors on CUDA devices")
    if not all(tensor.is_contiguous() for tensor in everything):
        raise RuntimeError("expected all inputs and outputs to be contiguous")
    if len({tensor.dtype for tensor in everything}) != 1:
        raise RuntimeError("expected all inputs and outputs to have the same dtype")
    if len({tensor.get_device() for tensor in inputs}) != len(inputs):
        raise RuntimeError("inputs must be on unique devices")
    if any(a.get_device() != b.get_device() for a, b in zip(inputs, outputs, strict=True)):
        raise RuntimeError("input and output must be on the same device")
    count = inputs[0].numel()
    sizes = {(tensor.numel(), from_inputs) for tensor in inputs}
    sizes |= {(tensor.numel(), from_outputs) for tensor in outputs}
    if any(size * factor != count * from_inputs for size, factor in sizes):
        raise RuntimeError(
            f"expected inputs of {count} elements and outputs of "
            f"{count * from_inputs / from_outputs:g}, but got "
            f"{[tensor.numel() for tensor in inputs]} and {[tensor.numel() for tensor in outputs]}"
        )


def _collect(
    kind: str,
    inputs: Sequence[torch.Tensor | None],
    outputs: Sequence[torch.Tensor | None],
    where: _Tensors,
    streams: Any,
    comms: Any,
    op: int = 0,
    root: int = 0,
) -> None:
    _C._nccl.collect(
        getattr(_C._nccl.Kind, kind),
        _communicators_of(where, comms),
        inputs,
        outputs,
        op,
        root,
        _streams_of(where, streams),
    )


def _check_root(root: int, count: int) -> None:
    if not 0 <= root < count:
        raise RuntimeError(f"invalid root: expected one of 0 to {count - 1}, but got {root}")


def _nccl_reduce(
    input: _Tensors, output: torch.Tensor, root: int, op: int, streams: Any, comms: Any
) -> None:
    _check(input, input)
    _check_root(root, len(input))
    _check([input[root]], [output])
    outputs = [output if rank == root else None for rank in range(len(input))]
    _collect("REDUCE", input, outputs, input, streams, comms, op, root)


def _nccl_all_reduce(
    input: Collection[torch.Tensor],
    output: Collection[torch.Tensor],
    op: int,
    streams: Any,
    comms: Any,
) -> None:
    input, output = list(input), list(output)  # PyTorch takes sets, too
    _check(input, output)
    _collect("ALL_REDUCE", input, output, input, streams, comms, op)


def _nccl_broadcast(input: _Tensors, root: int, streams: Any, comms: Any) -> None:
    _check(input, input)
    _check_root(root, len(input))
    inputs = [tensor if rank == root else None for rank, tensor in enumerate(input)]
    outputs = [None if rank == root else tensor for rank, tensor in enumerate(input)]
    _collect("BROADCAST", inputs, outputs, input, streams, comms, root=root)


def _nccl_all_gather(
    input: Collection[torch.Tensor],
    output: Collection[torch.Tensor],
    streams: Any,
    comms: Any,
) -> None:
    input, output = list(input), list(output)
    _check(input, output, from_inputs=max(len(input), 1))
    _collect("ALL_GATHER", input, output, input, streams, comms)


def _nccl_reduce_scatter(
    input: Collection[torch.Tensor],
    output: Collection[torch.Tensor],
    op: int,
    streams: Any,
    comms: Any,
) -> None:
    input, output = list(input), list(output)
    _check(input, output, from_outputs=max(len(input), 1))
    _collect("REDUCE_SCATTER", input, output, input, streams, comms, op)


# ---- installation --------------------------------------------------------------------------------


def _hash_tensors(tensors: _Tensors) -> int:
    """Return the hash that PyTorch logs of sent objects with TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    result = 0
    for tensor in tensors:
        result = zlib.crc32(tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes(), result)
    return result


_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    _nccl_all_gather,
    _nccl_all_reduce,
    _nccl_broadcast,
    _nccl_init_rank,
    _nccl_reduce,
    _nccl_reduce_scatter,
    _nccl_unique_id,
    _nccl_version,
    _nccl_version_suffix,
)


def install() -> None:
    """Add the functions to ``torch._C``."""
    if not hasattr(_C, "_nccl"):  # a PyTorch without torch.distributed
        return
    for function in _FUNCTIONS:
        setattr(torch._C, function.__name__, function)
    torch._C._distributed_c10d._hash_tensors = _hash_tensors
