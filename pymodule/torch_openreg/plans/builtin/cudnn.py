"""Convolutions by cuDNN: results, copies into the format that cuDNN gets, and one workspace each.

Sources: ATen/native/Convolution.cpp and ConvUtils.h (when, and in which format), and in
ATen/native/cudnn ConvShared.cpp (the order of blocks). The workspace is a setting
(``libraries.py``), or an estimate, which docs/gpu-memory.md compares with what an H100 took.
"""

import math
from collections.abc import Sequence

from ..libraries import ESTIMATED
from .call import Call, Tensor, check, dense

LEAST_CHANNELS_OF_DEPTHWISE = 32
MOST_ELEMENTS = 2**31 - 1  # beyond, PyTorch splits the batch

# Estimates of workspaces. The figures are those of an H100 with cuDNN 9.19.
ALIGNMENT = 16  # bytes: the channels of a pixel in a copy for tensor cores have a multiple
ALIGNED_PIXELS = 4  # a product of aligned rows has a multiple
SCALARS = 16  # bytes that come with the copies
MOST_SUMS = 16  # copies of a weight in which its gradient is summed up
MOST_SUM_BYTES = 8 << 20
PRODUCT_SUMS = 64  # those of a product
LEAST_OF_FEW_SUMS = 2 << 20  # bytes of a weight for which a product needs none


def is_chosen(
    call: Call,
    input: Tensor,
    weight: Tensor,
    kind: str,
    stride: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> bool:
    """Return whether CUDA runs cuDNN. `kind` is that of `convolution.Shape`."""
    if call.device.cudnn_workspace is None or not call.settings[-1]:
        return False
    check(max(input.numel, weight.numel) <= MOST_ELEMENTS, "a batch that is split")
    has_gaps = len(input.sizes) == 3 and not (input.is_contiguous and weight.is_contiguous)
    check(not has_gaps, "strides of one dimension")
    if kind == "depthwise":
        if is_channels_last(input, weight):
            return True
        may = (
            input.dtype == "float16"
            and len(input.sizes) == 4
            and input.sizes[1] >= LEAST_CHANNELS_OF_DEPTHWISE
            and all(each == 1 for each in dilation)
        )
        check(not may, "cuDNN by a table of sizes")
        return False
    return not any(more >= stride[min(i, len(stride) - 1)] for i, more in enumerate(output_padding))


def _has_strides_of_channels_last(tensor: Tensor) -> bool:
    """Return what PyTorch takes for the format of a tensor with these strides."""
    rank = len(tensor.sizes)
    if rank not in (4, 5) or tensor.strides[1] == 0:
        return False
    least = 0
    for dim in (1, *range(rank - 1, 1, -1), 0):
        size, stride = tensor.sizes[dim], tensor.strides[dim]
        if size == 0 or stride < least or (dim == 0 and least == tensor.strides[1]):
            return False
        least = stride * max(size, 1)
    return True


def is_channels_last(input: Tensor, weight: Tensor) -> bool:
    """Return whether cuDNN gets tensors whose channels lie next to each other."""
    return input.dtype != "float64" and any(map(_has_strides_of_channels_last, (input, weight)))


def _copy(call: Call, tensor: Tensor, is_last: bool) -> tuple[Tensor, int]:
    """Take a copy of a tensor that has another format. Returns the tensor to use and the block."""
    dims = list(range(len(tensor.sizes)))
    order = [0, *dims[2:], 1] if is_last else dims
    permuted = tensor._replace(
        sizes=tuple(tensor.sizes[dim] for dim in order),
        strides=tuple(tensor.strides[dim] for dim in order),
    )
    if permuted.is_contiguous:
        return tensor, 0
    strides = dict(zip(order, dense(permuted.sizes), strict=True))
    copy = tensor._replace(strides=tuple(strides[dim] for dim in dims))
    return copy, call.take(tensor.nbytes)


def _copied_bytes(sizes: Sequence[int], item: int) -> int:
    """Return the bytes of a copy in channels_last for tensor cores."""
    channels = -(-sizes[1] * item // ALIGNMENT) * ALIGNMENT
    return sizes[0] * channels * math.prod(sizes[2:])


def _copies_nothing(input: Tensor, weight: Tensor) -> bool:
    """Return whether cuDNN uses the tensors as they are: those of depthwise convolutions, too."""
    has_one_channel = weight.sizes[1] == 1
    return has_one_channel or is_channels_last(input, weight) or input.dtype == "float64"


def _estimate(input: Tensor, weight: Tensor, results: Sequence[int], stride: Sequence[int]) -> int:
    """Return the workspace of a convolution, or of the gradient of its input.

    Kernels for tensor cores want channels_last, and cuDNN copies the three tensors for them.
    Filters of one pixel are not copied. With stride 1 these make a product of matrices, whose rows
    have an element for each pixel of the input. It needs no copies if the rows are aligned.
    """
    if _copies_nothing(input, weight):
        return 0
    copied = [input.sizes, results]
    if math.prod(weight.sizes[2:]) > 1:
        copied.append(weight.sizes)
    elif math.prod(stride) == 1 and math.prod(input.sizes[2:]) % ALIGNED_PIXELS == 0:
        return 0
    return sum(_copied_bytes(sizes, input.item) for sizes in copied) + SCALARS


def _estimate_of_weight(
    input: Tensor, weight: Tensor, results: Sequence[int], stride: Sequence[int]
) -> int:
    """Return the workspace of the gradient of the weight, with its partial sums in float32."""
    if _copies_nothing(input, weight):
        return 0
    copies = _estimate(input, weight, results, stride)
    sums = 4 * weight.numel
    if copies == 0:  # a product
        return PRODUCT_SUMS * sums if sums < LEAST_OF_FEW_SUMS else 0
    return copies + min(MOST_SUMS, MOST_SUM_BYTES // sums) * sums


def _use_workspace(call: Call, estimate: int) -> None:
    size = call.device.cudnn_workspace or 0
    call.free(call.take(estimate if size == ESTIMATED else size))


def forward(
    call: Call,
    input: Tensor,
    weight: Tensor,
    sizes: Sequence[int],
    stride: Sequence[int],
) -> None:
    """Take what a convolution takes; its result has these sizes."""
    estimate = _estimate(input, weight, sizes, stride)
    is_last = is_channels_last(input, weight)
    copies = [_copy(call, input, is_last)[1]]
    call.result(input.dtype, sizes)
    copies.append(_copy(call, weight, is_last)[1])
    _use_workspace(call, estimate)
    call.free(*reversed(copies))


def backward(
    call: Call,
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    mask: Sequence[bool],
) -> dict[int, int]:
    """Take what the gradients of input and weight take. Returns their blocks."""
    blocks: dict[int, int] = {}
    copies = []
    if mask[1]:
        input, copy = _copy(call, input, is_channels_last(input, weight))
        copies.append(copy)
    grad_output, copy = _copy(call, grad_output, _has_strides_of_channels_last(input))
    copies.append(copy)
    if mask[0]:
        is_last = is_channels_last(grad_output, weight)
        blocks[0] = call.take(input.nbytes)
        inner = [_copy(call, each, is_last)[1] for each in (weight, grad_output)]
        _use_workspace(call, _estimate(input, weight, grad_output.sizes, stride))
        call.free(*reversed(inner))
    if mask[1]:
        is_last = is_channels_last(input, grad_output)
        inner = [_copy(call, each, is_last)[1] for each in (grad_output, input)]
        blocks[1] = call.take(weight.nbytes)
        _use_workspace(call, _estimate_of_weight(input, weight, grad_output.sizes, stride))
        call.free(*reversed(inner))
    call.free(*reversed(copies))
    return blocks
