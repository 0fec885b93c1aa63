"""Convolutions; those without cuDNN in full.

Sources: ATen/native/Convolution.cpp (which kernel, groups, copies), and in ATen/native/cuda
ConvolutionMM2d.cu, NaiveDilatedConvolution.cu, NaiveConvolutionTranspose2d.cu and 3d.cu,
DepthwiseConv2d.cu, DepthwiseConv3d.cu. Products of matrices read columns: the part of one sample
that each output element needs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from . import cudnn
from .call import Call, Tensor, check, plans


class Shape(NamedTuple):
    """A convolution of one group, with two or three spatial dimensions."""

    samples: int
    inputs: int
    outputs: int
    kernel: tuple[int, ...]
    sizes: tuple[int, ...]  # of the input
    results: tuple[int, ...]  # sizes of the output
    kind: str
    is_plain: bool  # the columns are the input itself

    @property
    def columns(self) -> int:
        """The elements of the columns of one sample."""
        channels, sizes = self.inputs, self.results
        if self.kind.startswith("transposed"):
            channels, sizes = self.outputs, self.sizes
        return channels * math.prod(self.kernel) * math.prod(sizes)


def shape_of(
    input: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Shape:
    lists = [list(each) for each in (stride, padding, dilation, output_padding)]
    rank = len(input.sizes) - 2
    sizes, kernel = input.sizes[2:], weight.sizes[2:]
    lists = [each * rank if len(each) == 1 else each for each in lists]
    if rank == 1:  # becomes a convolution with two dimensions
        sizes, kernel, rank = (1, *sizes), (1, *kernel), 2
        neutral = (1, 0, 1, 0)
        lists = [[first, *each] for first, each in zip(neutral, lists, strict=True)]
    stride, padding, dilation, output_padding = lists
    check(rank in (2, 3) and input.numel > 0 and weight.numel > 0, "an empty convolution")
    channels = input.sizes[1]
    if transposed:
        outputs = weight.sizes[1] * groups
        results = tuple(
            (size - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel[i] - 1) + 1
            + output_padding[i]
            for i, size in enumerate(sizes)
        )  # fmt: skip
    else:
        outputs = weight.sizes[0]
        results = tuple(
            (size + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
            for i, size in enumerate(sizes)
        )
    check(all(each > 0 for each in results), "an empty convolution")
    is_depthwise = (
        not transposed and 1 < groups == channels and outputs % channels == 0 and rank in (2, 3)
    )
    if is_depthwise:
        kind = "depthwise"
    elif transposed:
        kind = f"transposed {rank}d"
    else:
        kind = "dilated" if rank == 3 or any(each != 1 for each in dilation) else "2d"
    is_plain = (
        all(each == 1 for each in (*kernel, *stride, *dilation))
        and not any(padding)
        and not any(output_padding)
    )
    divisor = 1 if is_depthwise else groups
    return Shape(
        input.sizes[0],
        channels // divisor,
        outputs // divisor,
        tuple(kernel),
        tuple(sizes),
        results,
        kind,
        is_plain,
    )


def _output(call: Call, shape: Shape, dtype: str, rank: int) -> int:
    """Take the output of one group."""
    sizes = _output_sizes(shape, rank)
    first = 0
    if shape.kind == "transposed 3d":  # it has the sizes of the input first
        count = shape.samples * shape.inputs * math.prod(shape.sizes)
        check(math.prod(sizes) >= count, "an output in larger memory")
        first = call.make(dtype, count) if math.prod(sizes) > count else 0
    block = call.make(dtype, *sizes)
    call.free(first)
    return block


def _output_sizes(shape: Shape, rank: int, groups: int = 1) -> list[int]:
    return [shape.samples, shape.outputs * groups, *shape.results[-rank:]]


def _forward(call: Call, shape: Shape, item: int, has_bias: bool) -> None:
    """Take and free what the kernel of one group takes."""
    if shape.kind == "depthwise" or (shape.kind == "2d" and shape.is_plain):
        return
    blocks = [call.take(shape.columns * item)]
    if shape.kind.startswith("transposed") and has_bias:
        blocks.append(call.take(math.prod(shape.results) * item))  # ones
    call.free(*reversed(blocks))


@plans("convolution", "_convolution", "cudnn_convolution")
def convolution(
    call: Call,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    *flags: bool,
) -> None:
    """Columns of one sample; slices of groups."""
    shape = shape_of(input, weight, stride, padding, dilation, transposed, output_padding, groups)
    rank, item = len(input.sizes) - 2, input.item
    if cudnn.is_chosen(call, input, weight, shape.kind, stride, dilation, output_padding):
        sizes = _output_sizes(shape, rank, 1 if shape.kind == "depthwise" else groups)
        cudnn.forward(call, input, weight, sizes, stride)
        return
    copies = [call.contiguous(input), call.contiguous(weight)]
    if groups == 1 or shape.kind == "depthwise":
        block = _output(call, shape, input.dtype, rank)
        call.keep(block, input.dtype, _output_sizes(shape, rank))
        _forward(call, shape, item, bias is not None)
    else:
        parts = []
        for _ in range(groups):
            part = 0
            if shape.samples > 1:
                part = call.take(input.nbytes // groups)
            parts.append(_output(call, shape, input.dtype, rank))
            _forward(call, shape, item, bias is not None)
            call.free(part)
        call.result(input.dtype, _output_sizes(shape, rank, groups))
        call.free(*parts)
    call.free(*reversed(copies))
