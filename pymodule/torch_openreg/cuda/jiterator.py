"""``torch.cuda.jiterator``: pointwise functions in C++ that a program brings as text.

CUDA compiles them for the GPU. Here Inductor's compiler for the CPU does, and a call is one launch.
As on CUDA, half precision is computed in float32.
"""

import functools
from collections.abc import Callable
from ctypes import c_double, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

_TYPES = {
    torch.bool: "bool",
    torch.uint8: "uint8_t",
    torch.int8: "int8_t",
    torch.int16: "int16_t",
    torch.int32: "int32_t",
    torch.int64: "int64_t",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.float32: "float",
    torch.float64: "double",
    torch.complex64: "std::complex<float>",
    torch.complex128: "std::complex<double>",
}
_SOURCE = """
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <complex>
#include <cstdint>
#include <math.h>

namespace {
%(code)s

template <class T> T number(double real, double) { return static_cast<T>(real); }
template <> std::complex<float> number(double real, double imaginary) {
  return {static_cast<float>(real), static_cast<float>(imaginary)};
}
template <> std::complex<double> number(double real, double imaginary) { return {real, imaginary}; }

template <class T> T load(const void *from, int64_t i) { return static_cast<const T *>(from)[i]; }
template <> bool load(const void *from, int64_t i) { // any byte but 0 is true
  return static_cast<const uint8_t *>(from)[i] != 0;
}
} // namespace

extern "C" void launch(int64_t count, void **inputs, void **outputs, const double *numbers) {
  using Element = %(element)s;
  using Compute = %(compute)s;
  for (int64_t i = 0; i < count; ++i) {
%(body)s
  }
}
"""

_operators = torch.library.Library("openreg", "FRAGMENT")
_operators.define(
    "run_pointwise(int function, Tensor[] inputs, Tensor(a!)[] outputs, Scalar[] numbers) -> ()"
)
_functions: list[Any] = []  # of the operator


@torch.library.impl(_operators, "run_pointwise", "CPU")
def _run(
    function: int, inputs: list[Tensor], outputs: list[Tensor], numbers: list[complex]
) -> None:
    def addresses(tensors: list[Tensor]) -> Any:
        return (c_void_p * len(tensors))(*[each.data_ptr() for each in tensors])

    parts = [part for each in numbers for part in (complex(each).real, complex(each).imag)]
    _functions[function](
        c_int64(outputs[0].numel()),
        addresses(inputs),
        addresses(outputs),
        (c_double * len(parts))(*parts),
    )


def _body(name: str, by_reference: bool, inputs: int, outputs: int, numbers: int) -> str:
    """Return the statements that compute the results at index i."""
    arguments = [f"static_cast<Compute>(load<Element>(inputs[{n}], i))" for n in range(inputs)]
    extra = [f"number<Compute>(numbers[{2 * n}], numbers[{2 * n + 1}])" for n in range(numbers)]
    results = [f"result{n}" for n in range(outputs)]
    stores = [
        f"static_cast<Element *>(outputs[{n}])[i] = static_cast<Element>({results[n]});"
        for n in range(outputs)
    ]
    if by_reference:
        call = [f"Compute {', '.join(results)};"]
        call.append(f"{name}<Compute>({', '.join(arguments + results + extra)});")
    else:
        call = [f"const Compute result0 = {name}<Compute>({', '.join(arguments + extra)});"]
    return "\n".join(call + stores)


@functools.cache
def _compile(code: str, name: str, body: str, dtype: torch.dtype) -> int:
    """Return the number of a compiled function."""
    from torch._inductor.codecache import CppCodeCache

    is_half = dtype in (torch.float16, torch.bfloat16)
    source = _SOURCE % {
        "code": code,
        "element": _TYPES[dtype],
        "compute": "float" if is_half else _TYPES[dtype],
        "body": body,
    }
    _functions.append(CppCodeCache.load(source, device_type="cpu").launch)
    return len(_functions) - 1


def _operands(tensors: tuple[Tensor, ...]) -> tuple[list[Tensor], Callable[[], Tensor]]:
    """Return tensors of one dtype, shape and layout, and a function that makes such a result."""
    from torch._prims_common import (
        ELEMENTWISE_TYPE_PROMOTION_KIND,
        check_same_device,
        compute_elementwise_output_strides,
        elementwise_dtypes,
    )

    check_same_device(*tensors, allow_cpu_scalar_tensors=False)
    _, dtype = elementwise_dtypes(
        *tensors, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    )
    if dtype not in _TYPES:
        raise NotImplementedError(f"torch.cuda.jiterator: openreg does not support {dtype}")
    expanded = torch.broadcast_tensors(*tensors)
    shape, strides = expanded[0].shape, compute_elementwise_output_strides(*expanded)

    def make() -> Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype, device=expanded[0].device)

    def convert(tensor: Tensor) -> Tensor:
        # As on CUDA, a function sees the elements in memory, without a lazy conjugation or sign.
        plain = tensor.conj() if tensor.is_conj() else tensor
        plain = plain._neg_view() if plain.is_neg() else plain
        is_alike = plain.dtype == dtype and plain.stride() == tuple(strides)
        return plain if is_alike else make().copy_(plain)

    return [convert(each) for each in expanded], make


def compile_and_launch(
    code: str,
    name: str,
    by_reference: bool,
    outputs: int,
    tensors: tuple[Tensor, ...],
    numbers: dict[str, Any],
) -> Tensor | tuple[Tensor, ...]:
    """Implement what ``torch.cuda.jiterator`` calls."""
    with torch.no_grad():
        inputs, make = _operands(tensors)
        results = [make() for _ in range(outputs)]
        body = _body(name, by_reference, len(inputs), outputs, len(numbers))
        function = _compile(code, name, body, inputs[0].dtype)
        torch.ops.openreg.run_pointwise(function, inputs, results, list(numbers.values()))
    return results[0] if outputs == 1 else tuple(results)
