"""Layer, RMS and group normalization.

Sources: layer_norm_kernel.cu and group_norm_kernel.cu in ATen/native/cuda.
"""

import math
from collections.abc import Sequence

from .call import HALF, Call, Tensor, accumulated, check, plans
from .reduce import sum_up

# Rows and columns from which a layer norm's weights are reduced in two steps.
MANY_ROWS = 1 << 16
COLUMN_TILE = 32
ROW_TILE = 32
MAX_TILES = 1 << 15


def _rows(self: Tensor, normalized_shape: Sequence[int]) -> tuple[int, int]:
    columns = math.prod(normalized_shape)
    return (self.numel // columns if columns else 0), columns


def _statistics(self: Tensor, normalized_shape: Sequence[int]) -> list[int]:
    count = len(self.sizes) - len(normalized_shape)
    return [*self.sizes[:count], *[1] * len(normalized_shape)]


@plans("native_layer_norm", "_fused_rms_norm")
def layer_norm(
    call: Call,
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None,
    *rest: object,
) -> None:
    """A copy of a strided input."""
    copy = call.contiguous(input)
    call.result(input.dtype, input.sizes)
    for _ in range(1 if call.name == "_fused_rms_norm" else 2):
        call.result(accumulated(input.dtype), _statistics(input, normalized_shape))
    call.free(copy)


def _weights(call: Call, sizes: list[Tensor | None], rows: int, columns: int) -> list[int]:
    """Reduce the gradients of weights, which are the next results."""
    present = [each for each in sizes if each is not None]
    results = [call.make(each.dtype, columns) for each in present]
    tiles = -(-columns // COLUMN_TILE)
    if rows <= MANY_ROWS or columns / COLUMN_TILE >= call.device.multiprocessors / 2:
        return results
    parts = min(MAX_TILES // tiles, -(-rows // ROW_TILE))
    partial = [call.make(each.dtype, parts, columns) for each in present]
    for number, each in enumerate(present):
        old = results[number]
        results[number] = call.make(each.dtype, columns)
        sum_up(call, each.like(sizes=(parts, columns)), [0], each.dtype)
        call.free(old)
    call.free(*reversed(partial))
    return results


@plans("native_layer_norm_backward")
def layer_norm_backward(
    call: Call,
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: list[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: list[bool],
) -> None:
    """Copies of strided operands, and partial sums of the gradients of weights."""
    rows, columns = _rows(input, normalized_shape)
    check(rows > 0 and output_mask[0], "an input without a gradient")
    copy = call.contiguous(input)
    call.result(input.dtype, input.sizes)
    wanted = [
        each if mask else None for each, mask in zip((weight, bias), output_mask[1:], strict=True)
    ]
    check(not (wanted[1] and not wanted[0]) or rows <= MANY_ROWS, "a bias without a weight")
    is_strided = not grad_out.is_contiguous
    check(not is_strided or rows <= MANY_ROWS, "the order of the copy is not known")
    blocks = _weights(call, wanted, rows, columns)
    gradient = call.contiguous(grad_out)
    for block, each in zip(blocks, [each for each in wanted if each], strict=True):
        call.keep(block, each.dtype, normalized_shape)
    call.free(gradient, copy)


@plans("_fused_rms_norm_backward")
def rms_norm_backward(
    call: Call,
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: list[int],
    rstd: Tensor,
    weight: Tensor | None,
    output_mask: list[bool],
) -> None:
    """As layer norm's, without a bias."""
    layer_norm_backward(
        call, grad_out, input, normalized_shape, rstd, rstd, weight, None, [*output_mask, False]
    )


# ---- groups --------------------------------------------------------------------------------------


@plans("native_group_norm")
def group_norm(
    call: Call,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> None:
    """Statistics in float32, and a scale and a shift of each channel."""
    from ..._releases import WIDENS_STATISTICS

    check(input.numel > 0 and input.is_contiguous, "an empty or strided input")
    of = accumulated(input.dtype)
    call.result(input.dtype, input.sizes)
    for _ in range(2):
        call.result(input.dtype, (N, group))
    blocks = []
    if input.dtype in HALF and WIDENS_STATISTICS:
        blocks += [call.make(of, N, group) for _ in range(2)]
    if HxW > 1 and (weight is not None or bias is not None):
        blocks += [call.make(of, N, C) for _ in range(2)]
    call.free(*reversed(blocks))


@plans("native_group_norm_backward")
def group_norm_backward(
    call: Call,
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: list[bool],
) -> None:
    """Sums of each channel, and coefficients of each channel and group."""
    from ..._releases import SUMS_SINGLE_ELEMENTS

    check(input.numel > 0 and input.is_contiguous and grad_out.is_contiguous, "a strided input")
    of = accumulated(input.dtype)
    if output_mask[0]:
        call.result(input.dtype, input.sizes)
    for _ in range(sum(output_mask[1:])):
        call.result(weight.dtype if weight else input.dtype, (C,))
    sums = [call.make(of, N, C) for _ in range(2 if HxW > 1 or SUMS_SINGLE_ELEMENTS else 0)]
    if output_mask[0]:
        coefficients = [call.make(of, N, group) for _ in range(2)]
        scale = call.make(of, N, C) if weight is not None and HxW > 1 else 0
        call.free(*reversed(coefficients), scale)
    call.free(*reversed(sums))
