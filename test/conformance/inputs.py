"""Inputs that are the same on every device: their whole memory is copied, not only their values.

A sample is made once, on the CPU. Each run gets a copy of its own, in which every tensor keeps its
sizes, strides, offset, conjugate and negative bits, and tensors that shared memory share it still.
What lies in that memory beside the tensor is copied too, so that a stray write shows.
"""

import os

import torch
import torch_openreg  # noqa: F401
from torch.nested._internal.nested_tensor import NestedTensor

HOST = torch.device("cpu")
DEVICE = torch.device(os.environ.get("OPENREG_DEVICE_TYPE") or "openreg", 0)


class Stay:
    """A value that stays on the host on every device. A move copies it there."""

    def __init__(self, value):
        self.value = value


class _Mover:
    """One move of several values. It remembers moved tensors, so that aliases remain aliases."""

    def __init__(self, device):
        self._device = device
        self._tensors = {}
        self._storages = {}

    def move(self, value):
        if isinstance(value, torch.Tensor):
            key = id(value)
            if key not in self._tensors:
                self._tensors[key] = self._move_tensor(value)
            return self._tensors[key]
        if isinstance(value, Stay):
            return move(value.value, HOST)
        if isinstance(value, torch.device):
            return self._device if value.type == "cpu" else value
        if isinstance(value, str):
            return str(self._device) if value == "cpu" else value
        if isinstance(value, torch.Generator):
            generator = torch.Generator(self._device)
            generator.manual_seed(value.initial_seed())
            return generator
        if isinstance(value, dict):
            return type(value)((key, self.move(each)) for key, each in value.items())
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.move, value))
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            return type(value)(map(self.move, value))
        return value

    def _move_tensor(self, tensor):
        if tensor.device.type != "cpu":
            return tensor
        with torch.no_grad():
            moved = self._copy(tensor.detach())
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(moved, tensor.requires_grad)
        return moved.requires_grad_(tensor.requires_grad)

    def _copy(self, tensor):
        if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized:
            return tensor.to(self._device, copy=True)
        copy = torch.empty(0, dtype=tensor.dtype, device=self._device)
        copy.set_(
            self._move_storage(tensor.untyped_storage()),
            tensor.storage_offset(),
            tensor.size(),
            tensor.stride(),
        )
        if tensor.is_conj():
            copy = copy.conj()
        if tensor.is_neg():
            copy = torch._neg_view(copy)
        return copy

    def _move_storage(self, storage):
        key = storage._cdata
        if key not in self._storages:
            memory = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._storages[key] = memory.to(self._device, copy=True).untyped_storage()
        return self._storages[key]


def move(value, device):
    """Return a copy of a value on a device. Tensors may be in containers of any kind."""
    return _Mover(device).move(value)


def components(tensor):
    """Return the strided parts of a sparse or nested tensor by name; nothing for others."""
    if isinstance(tensor, NestedTensor):
        parts = {"values": tensor._values, "offsets": tensor._offsets}
        return parts | ({"lengths": tensor._lengths} if tensor._lengths is not None else {})
    if tensor.is_nested:
        return {str(i): part for i, part in enumerate(tensor.unbind())}
    if tensor.layout == torch.sparse_coo:
        return {"indices": tensor._indices(), "values": tensor._values()}
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return {
            "crow_indices": tensor.crow_indices(),
            "col_indices": tensor.col_indices(),
            "values": tensor.values(),
        }
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return {
            "ccol_indices": tensor.ccol_indices(),
            "row_indices": tensor.row_indices(),
            "values": tensor.values(),
        }
    return {}


def random_like(tensor, generator):
    """Return a tangent or cotangent of a tensor's shape and dtype, drawn on the CPU."""
    real = torch.float64 if tensor.dtype in (torch.float64, torch.complex128) else torch.float32
    numbers = torch.randn(tensor.shape, dtype=real, generator=generator)
    if tensor.is_complex():
        numbers = torch.complex(
            numbers, torch.randn(numbers.shape, dtype=real, generator=generator)
        )
    return numbers.to(tensor.dtype).to(tensor.device)
