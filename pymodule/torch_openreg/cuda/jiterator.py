"""``torch.cuda.jiterator``: pointwise functions in C++ that a program brings as text.

CUDA compiles them for the GPU. Here Inductor compiles them as kernels for the CPU, and a call is
one launch. As on CUDA, half precision is computed in float32.
"""

import functools
import struct
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_openreg import _C

_TYPES = {
    torch.bool: "bool",
    torch.uint8: "uint8_t",
    torch.int8: "int8_t",
    torch.int16: "int16_t",
    torch.int32: "int32_t",
    torch.int64: "int64_t",
    torch.float16: "at::Half",
    torch.bfloat16: "at::BFloat16",
    torch.float32: "float",
    torch.float64: "double",
    torch.complex64: "std::complex<float>",
    torch.complex128: "std::complex<double>",
}
_SOURCE = """
#include <complex>
#include <cstdint>
#include <cstring>
#include <math.h>

namespace {
%(code)s

// A number of the call: the bits of its parts.
template <class T> struct Number {
  static T of(double real, double) { return static_cast<T>(real); }
};
template <class T> struct Number<std::complex<T>> {
  static std::complex<T> of(double real, double imaginary) {
    return {static_cast<T>(real), static_cast<T>(imaginary)};
  }
};
double decode(int64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T> T load(const T *from, int64_t i) { return from[i]; }
bool load(const bool *from, int64_t i) { // any byte but 0 is true
  return reinterpret_cast<const uint8_t *>(from)[i] != 0;
}
} // namespace

extern "C" void kernel(%(parameters)s) {
  using Element = %(element)s;
  using Compute = %(compute)s;
  for (int64_t i = 0; i < count; ++i) {
%(body)s
  }
}
"""


def _body(name: str, by_reference: bool, inputs: int, outputs: int, numbers: int) -> str:
    """Return the statements that compute the results at index i."""
    arguments = [f"static_cast<Compute>(load(input{n}, i))" for n in range(inputs)]
    extra = [f"Number<Compute>::of(decode(real{n}), decode(imaginary{n}))" for n in range(numbers)]
    results = [f"result{n}" for n in range(outputs)]
    stores = [f"output{n}[i] = static_cast<Element>({results[n]});" for n in range(outputs)]
    if by_reference:
        call = [f"Compute {', '.join(results)};"]
        call.append(f"{name}<Compute>({', '.join(arguments + results + extra)});")
    else:
        call = [f"const Compute result0 = {name}<Compute>({', '.join(arguments + extra)});"]
    return "\n".join(call + stores)


@functools.cache
def _compile(
    code: str,
    name: str,
    by_reference: bool,
    dtype: torch.dtype,
    inputs: int,
    outputs: int,
    numbers: int,
) -> Any:
    """Return a kernel. Its arguments are inputs, outputs, the parts of numbers, and a count."""
    from torch._inductor.async_compile import AsyncCompile

    from torch_openreg.inductor.launches import launched_kernel

    element = _TYPES[dtype]
    parameters = [(f"const {element}*", f"input{n}") for n in range(inputs)]
    parameters += [(f"{element}*", f"output{n}") for n in range(outputs)]
    for n in range(numbers):
        parameters += [("int64_t", f"real{n}"), ("int64_t", f"imaginary{n}")]
    parameters.append(("int64_t", "count"))
    source = _SOURCE % {
        "code": code,
        "parameters": ", ".join(" ".join(each) for each in parameters),
        "element": element,
        "compute": "float" if dtype in (torch.float16, torch.bfloat16) else element,
        "body": _body(name, by_reference, inputs, outputs, numbers),
    }
    kernel = launched_kernel(AsyncCompile(), name, [kind for kind, _ in parameters], source)
    return kernel if isinstance(kernel, _C.CompiledKernel) else kernel.result()


def _bits(number: float) -> int:
    return struct.unpack("q", struct.pack("d", number))[0]


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
        kernel = _compile(
            code, name, by_reference, inputs[0].dtype, len(inputs), outputs, len(numbers)
        )
        parts = [
            _bits(part)
            for each in map(complex, numbers.values())
            for part in (each.real, each.imag)
        ]
        if results[0].numel() > 0:
            kernel(*inputs, *results, *parts, results[0].numel())
    return results[0] if outputs == 1 else tuple(results)
