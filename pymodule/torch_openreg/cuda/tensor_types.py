"""The legacy tensor types, such as ``torch.cuda.FloatTensor``.

These types exist in every PyTorch. But a PyTorch without CUDA rejects the CUDA types in two places:
when a type is called, and when it becomes the default type. Everything else works. So this module
clears the flag ``is_cuda`` of these types where C++ stores it: in the bytes after the type object
(``PyTensorType`` in ``torch/csrc/tensor/python_tensor.cpp``). It first checks that these bytes are
as expected. A side effect: the attribute ``is_cuda`` of the types is False. Tensors are not
affected.
"""

import ctypes

import torch


class _Fields(ctypes.Structure):
    """The beginning of the C++ fields after the Python part of a type object."""

    _fields_ = [
        ("dtype", ctypes.c_void_p),
        ("layout", ctypes.c_void_p),
        ("is_cuda", ctypes.c_bool),
        ("is_xpu", ctypes.c_bool),
        ("name", ctypes.c_char * 64),
    ]


def _fields_of(tensor_type: type) -> _Fields:
    # The metatype gives the size of the Python part of its instances.
    size: int = type(tensor_type).__basicsize__  # type: ignore[assignment]
    return _Fields.from_address(id(tensor_type) + size)


def _are_as_expected(fields: _Fields, tensor_type: type[torch.Tensor]) -> bool:
    return (
        fields.dtype == id(tensor_type.dtype)
        and fields.layout == id(tensor_type.layout)
        and fields.name.decode() == f"{tensor_type.__module__}.{tensor_type.__name__}"
    )


def install() -> None:
    """Enable the types of ``cuda``.

    Raises
    ------
    ImportError
        If PyTorch stores the types in another way than expected.
    """
    for tensor_type in torch._tensor_classes:
        if not tensor_type.is_cuda:
            continue
        fields = _fields_of(tensor_type)
        if not _are_as_expected(fields, tensor_type):
            raise ImportError(
                f"openreg: PyTorch {torch.__version__} has an unexpected memory layout of "
                f"{tensor_type.__name__}: install the PyTorch release that openreg supports"
            )
        fields.is_cuda = False
