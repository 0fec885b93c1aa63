"""Signatures: what a plan depends on, as plain values that ``marshal`` can write.

A tensor becomes ``("tensor", dtype, sizes, strides, offset, storage, storage bytes, flags)``. The
storage is a number: tensors with the same number share memory. A tensor that occurs again becomes
``("again", n)``, where n counts the tensors before it. Flags: ``h`` on the host, ``c`` conjugate,
``n`` negative, ``g`` requires gradients.

Other values: ``("dtype", "float32")``, ``("layout", "strided")``, ``("format", "channels_last")``,
``("device", "cuda")``; numbers, texts and None as they are; lists as lists.

Values of tensors are not part of a signature.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torch_openreg import _C

__all__ = ["Unsupported", "current_settings", "describe"]


class Unsupported(Exception):
    """A signature cannot describe an argument. The argument is a sentence."""


_MAX_HOST_BYTES = 1 << 30


class _Writer:
    def __init__(self) -> None:
        self.tensors: dict[int, int] = {}  # by the tensor's identity
        self.storages: dict[int, int] = {}

    def write(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, complex, str)):
            return value
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, (list, tuple)):
            return [self.write(each) for each in value]
        if isinstance(value, torch.dtype):
            return ("dtype", str(value)[6:])
        if isinstance(value, torch.layout):
            return ("layout", str(value)[6:])
        if isinstance(value, torch.memory_format):
            return ("format", str(value)[6:])
        if isinstance(value, torch.device):
            return ("device", "cpu" if value.type == "cpu" else "cuda")
        if isinstance(value, torch.Generator):
            return None  # the planner's default generator
        raise Unsupported(f"openreg: an argument is a {type(value).__name__}")

    def _tensor(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        if (before := self.tensors.get(id(tensor))) is not None:
            return ("again", before)
        if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
            raise Unsupported("openreg: an argument is sparse, nested or quantized")
        if tensor._is_zerotensor():
            raise Unsupported("openreg: an argument is a tensor of zeros without memory")
        storage, nbytes = _C.storage_of(tensor)
        number = self.storages.setdefault(storage, len(self.storages))
        is_host = tensor.device.type == "cpu"
        if is_host and nbytes > _MAX_HOST_BYTES:
            raise Unsupported(f"openreg: a tensor on the host has {nbytes} bytes")
        self.tensors[id(tensor)] = len(self.tensors)
        return (
            "tensor",
            str(tensor.dtype)[6:],
            tuple(tensor.shape),
            tensor.stride(),
            tensor.storage_offset(),
            number,
            nbytes,
            ("h" if is_host else "")
            + ("c" if tensor.is_conj() else "")
            + ("n" if tensor.is_neg() else "")
            + ("g" if tensor.requires_grad and tensor.is_leaf else ""),
        )


def describe(
    arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Describe the arguments of a call.

    Raises
    ------
    Unsupported
        If an argument has a type or layout that a signature lacks.
    """
    writer = _Writer()
    return (
        [writer.write(each) for each in arguments],
        {name: writer.write(each) for name, each in keywords.items()},
    )


def current_settings() -> tuple[Any, ...]:
    """Return PyTorch's global settings that change what an operator allocates.

    Returns
    -------
    tuple
        Whether gradients are recorded; deterministic algorithms, and whether they only warn; the
        default dtype; the paths of attention (flash, memory-efficient, math, overrideable, and
        math's reductions in 16 bits; the planner has no cuDNN for it); their order; the preferred
        library of linear algebra; whether convolutions may use cuDNN.
    """
    C = torch._C
    return (
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        str(torch.get_default_dtype())[6:],
        (
            C._get_flash_sdp_enabled(),
            C._get_mem_efficient_sdp_enabled(),
            C._get_math_sdp_enabled(),
            C._get_overrideable_sdp_enabled(),
            C._get_math_sdp_allow_fp16_bf16_reduction(),
        ),
        tuple(int(each) for each in C._get_sdp_priority_order()),
        str(C._get_linalg_preferred_backend()).rpartition(".")[2].lower(),
        C._get_cudnn_enabled(),
    )
