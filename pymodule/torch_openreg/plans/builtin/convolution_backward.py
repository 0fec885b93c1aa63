"""Gradients of convolutions. The sources are those of ``convolution.py``."""

from ..dtypes import ITEM_BYTES
from . import cudnn
from .call import Call, Tensor, plans
from .convolution import Shape, shape_of
from .reduce import sum_up


def _sum_bias(call: Call, shape: Shape, dtype: str, samples: int) -> None:
    """Sum a gradient, or one sample of it, over everything but its channels."""
    sizes = (samples, shape.outputs, *shape.results) if samples else (shape.outputs, *shape.results)
    gradient = Tensor(dtype, (), ()).like(sizes=sizes)
    dims = [dim for dim in range(len(sizes)) if dim != (1 if samples else 0)]
    sum_up(call, gradient, dims, dtype)


def _backward(
    call: Call,
    shape: Shape,
    dtype: str,
    input: int,
    weight: int,
    mask: list[bool],
    strided: int = 0,
) -> dict[int, int]:
    """Take what the kernel of one group takes. Returns the blocks of the gradients.

    `input` and `weight` are their bytes, and `strided` those of a strided gradient of the output.
    """
    item = ITEM_BYTES[dtype]
    columns = shape.columns * item
    blocks: dict[int, int] = {}
    if shape.kind == "depthwise":
        copy = call.take(strided) if mask[0] or mask[1] else 0
        order = (1, 0) if len(shape.kernel) == 2 else (0, 1)
        for each in order:
            if mask[each]:
                blocks[each] = call.take((input, weight)[each])
        call.free(copy)
        if mask[2]:
            blocks[2] = call.make(dtype, shape.outputs)
            _sum_bias(call, shape, dtype, shape.samples)
    elif shape.kind == "2d":
        shared = 0
        if mask[0]:
            blocks[0], shared = call.take(input), call.take(columns)
        if mask[2]:
            blocks[2] = call.make(dtype, shape.outputs)
            _sum_bias(call, shape, dtype, shape.samples)
        if mask[1]:
            blocks[1] = call.take(weight)
            if not shared:
                shared = call.take(columns)
        call.free(shared)
    elif shape.kind == "dilated":
        for each in (0, 1):
            if mask[each]:
                blocks[each] = call.take((input, weight)[each])
        if mask[2]:
            blocks[2] = call.make(dtype, shape.outputs)
        shared = call.take(columns) if mask[0] or mask[1] else 0
        for _ in range(shape.samples if mask[2] else 0):
            sums = call.make(dtype, shape.outputs)
            _sum_bias(call, shape, dtype, 0)
            call.free(sums)
        call.free(shared)
    else:
        if mask[0]:
            copy = call.take(strided)
            blocks[0] = call.take(input)
            if not shape.is_plain:
                call.free(call.take(columns))
            call.free(copy)
        if mask[1]:
            blocks[1] = call.take(weight)
        if mask[2]:
            blocks[2] = call.make(dtype, shape.outputs)
        if mask[1] or mask[2]:
            copy = call.take(strided)
            shared = 0 if shape.is_plain else call.take(columns)
            if mask[2]:
                _sum_bias(call, shape, dtype, shape.samples)
            call.free(shared, copy)
    return blocks


@plans("convolution_backward")
def convolution_backward(
    call: Call,
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: list[bool],
) -> list[int]:
    """Columns of one sample, sums of the bias; slices of groups."""
    shape = shape_of(input, weight, stride, padding, dilation, transposed, output_padding, groups)
    dtype = input.dtype
    sizes = (input.sizes, weight.sizes, (grad_output.sizes[1],))
    if cudnn.is_chosen(call, input, weight, shape.kind, stride, dilation, output_padding):
        blocks = cudnn.backward(call, grad_output, input, weight, stride, output_mask)
        if output_mask[2]:
            blocks[2] = call.make(dtype, *sizes[2])
            dims = [dim for dim in range(len(grad_output.sizes)) if dim != 1]
            sum_up(call, grad_output, dims, dtype)
        for each, block in sorted(blocks.items()):
            call.keep(block, dtype, sizes[each])
        return list(range(len(blocks)))
    # Some kernels copy a strided gradient themselves, and so do slices of groups.
    is_late = (transposed or groups > 1) and not grad_output.is_contiguous
    copies = [0 if is_late else call.contiguous(grad_output)]
    copies += [call.contiguous(each) for each in (weight, input)]
    if groups == 1 or shape.kind == "depthwise":
        strided = grad_output.nbytes if is_late else 0
        blocks = _backward(call, shape, dtype, input.nbytes, weight.nbytes, output_mask, strided)
    else:
        parts: list[dict[int, int]] = []
        for _ in range(groups):
            slices = [
                call.take(each.nbytes // groups)
                for each in (grad_output, input)
                if shape.samples > 1
                or (is_late and each is grad_output and grad_output.numel > groups)
            ]
            parts.append(
                _backward(
                    call,
                    shape,
                    dtype,
                    input.nbytes // groups,
                    weight.nbytes // groups,
                    output_mask,
                )
            )
            call.free(*reversed(slices))
        blocks = {each: call.make(dtype, *sizes[each]) for each in range(3) if output_mask[each]}
        for each in (2, 1, 0):
            call.free(*(part[each] for part in parts if each in part))
    for each, block in sorted(blocks.items()):
        call.keep(block, dtype, sizes[each])
    call.free(*reversed(copies))
    return list(range(len(blocks)))
