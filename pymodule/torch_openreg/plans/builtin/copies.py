"""Operators that copy a strided operand: gradients of interpolation and pooling, and roll.

Sources: UpSample*.cu, AdaptiveAveragePooling*.cu and TensorTransformations.cu in ATen/native/cuda.
"""

from .call import Call, Tensor, check, plans


@plans(
    *(f"upsample_{kind}_backward" for kind in ("nearest1d", "linear1d", "nearest3d")),
    *("_upsample_nearest_exact1d_backward", "_upsample_nearest_exact3d_backward"),
    "upsample_trilinear3d_backward",
)
def upsample_backward(
    call: Call, grad_output: Tensor, output_size: list[int], input_size: list[int], *more: object
) -> None:
    """A copy of a strided gradient."""
    is_simple = grad_output.is_contiguous or 0 in grad_output.strides
    check(grad_output.numel > 0 and (is_simple or len(input_size) == 3), "channels last")
    call.result(grad_output.dtype, input_size)
    call.free(call.contiguous(grad_output))


@plans("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def pool_backward(call: Call, grad_output: Tensor, self: Tensor) -> None:
    """A copy of a strided gradient."""
    check(grad_output.numel > 0 and self.is_contiguous, "a strided input")
    call.result(self.dtype, self.sizes)
    call.free(call.contiguous(grad_output))


@plans("roll")
def roll(call: Call, self: Tensor, shifts: list[int], dims: list[int] | None = None) -> None:
    """A copy of a strided input, or the result of the first of two shifts."""
    check(dims is not None and len(dims) == len(shifts) in (1, 2), "all dimensions")
    check(self.numel > 0, "no elements")
    assert dims is not None
    first = call.contiguous(self)
    if len(dims) == 2:
        shifted = call.take(self.nbytes)
        call.free(first)
        first = shifted
    call.result(self.dtype, self.sizes)
    call.free(first)
