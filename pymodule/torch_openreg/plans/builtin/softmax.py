"""Softmax, its gradient, and dropout's results.

Sources: ATen/native/cuda/SoftMax.cu (host_softmax, softmax_backward_cuda_out) and Dropout.cu.
"""

from .call import Call, Tensor, check, plans, wrap
from .iterator import dense_like
from .reduce import reduce


@plans("_softmax", "_log_softmax")
def softmax(call: Call, self: Tensor, dim: int, half_to_float: bool) -> None:
    """A copy of a strided input."""
    call.result("float32" if half_to_float else self.dtype, self.sizes)
    call.free(call.contiguous(self))


@plans("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(
    call: Call, grad_output: Tensor, output: Tensor, dim: int, input_dtype: str
) -> None:
    """The product of gradient and output, for softmax."""
    call.result(input_dtype, grad_output.sizes)
    is_log = call.name.startswith("_log")
    product = 0 if is_log else call.make(grad_output.dtype, *grad_output.sizes)
    gradient = grad_output
    if not is_log:  # the product has the layout of the gradient, unless that is expanded
        first = output if 0 in grad_output.strides else grad_output
        gradient = grad_output._replace(strides=first.dense_order())
    copies = [call.contiguous(gradient), call.contiguous(output)]
    call.free(*reversed(copies), product)


@plans("native_dropout")
def dropout(call: Call, input: Tensor, p: float, train: bool | None) -> list[int] | None:
    """The mask comes first, unless everything is dropped."""
    is_kept = p < 1 or train is False
    results = [(input.dtype, input.sizes), ("bool", input.sizes)]
    for dtype, sizes in reversed(results) if is_kept else results:
        call.result(dtype, sizes)
    return [1, 0] if is_kept else None


@plans("_safe_softmax")
def safe_softmax(call: Call, self: Tensor, dim: int, dtype: str | None = None) -> None:
    """ATen/native/transformers/attention.cpp: softmax, and rows without a finite value."""
    check(dtype in (None, self.dtype) and self.numel > 0 and bool(self.sizes), "a conversion")
    softmax(call, self, dim, False)
    dim = wrap(dim, len(self.sizes))
    infinite = dense_like(self, "bool")
    blocks = [call.make("bool", self.numel), call.make("bool", self.numel // self.sizes[dim])]
    reduce(call, infinite, [dim], ["bool"], 1)
    blocks.append(call.make(self.dtype))
    call.free(*reversed(blocks))
