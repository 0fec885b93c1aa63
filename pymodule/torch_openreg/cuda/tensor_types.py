"""The legacy types of tensors: ``torch.cuda.FloatTensor`` and its kind make tensors.

PyTorch's C++ has these types in every build. One without CUDA asks a type whether it is of CUDA, in
two places, and refuses those: where a type is called, and where it becomes the default. All else is
there and works. So this answers no, for each of the types, where C++ keeps the answer: in the bytes
behind the type object itself (``PyTensorType`` of ``torch/csrc/tensor/python_tensor.cpp``). These
must be as expected before any is changed. What it costs: the attribute ``is_cuda`` of the types
says no as well; that of tensors does not come from here.
"""

import ctypes

import torch


class _Fields(ctypes.Structure):
    """What follows Python's part of a type object, as far as it matters here."""

    _fields_ = [
        ("dtype", ctypes.c_void_p),
        ("layout", ctypes.c_void_p),
        ("is_cuda", ctypes.c_bool),
        ("is_xpu", ctypes.c_bool),
        ("name", ctypes.c_char * 64),
    ]


def _fields_of(tensor_type: type) -> _Fields:
    # The size of Python's part is what the types' own type says of its instances.
    size: int = type(tensor_type).__basicsize__  # type: ignore[assignment]
    return _Fields.from_address(id(tensor_type) + size)


def _are_as_expected(fields: _Fields, tensor_type: type[torch.Tensor]) -> bool:
    return (
        fields.dtype == id(tensor_type.dtype)
        and fields.layout == id(tensor_type.layout)
        and fields.name.decode() == f"{tensor_type.__module__}.{tensor_type.__name__}"
    )


def install() -> None:
    """Let the types of ``cuda`` make tensors, and be the default."""
    for tensor_type in torch._tensor_classes:
        if not tensor_type.is_cuda:
            continue
        fields = _fields_of(tensor_type)
        if not _are_as_expected(fields, tensor_type):
            raise ImportError(
                f"openreg: {tensor_type.__name__} of PyTorch {torch.__version__} is not laid out "
                "as that of the PyTorch that openreg was written for"
            )
        fields.is_cuda = False
