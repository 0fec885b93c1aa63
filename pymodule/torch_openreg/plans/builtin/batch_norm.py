"""Batch normalization of inputs whose channels lie innermost.

Sources: ATen/native/cuda/Normalization.cuh (flexible_launch_configs, the functions for channels
last) and Normalization.cu. Inputs with contiguous planes take their results only.
"""

from ..dtypes import ITEM_BYTES
from .call import Call, Tensor, accumulated, check, plans, up

MAX_THREADS = 512
ROW_THREADS = 32
ELEMENTS = 16  # of a thread
MAX_ROWS = 128  # of blocks
FEWEST_ROWS = 8  # fewer blocks in a column are one
SEMAPHORE_BYTES = 4
SUMS, GRADIENT_SUMS = 4, 2  # numbers that a block leaves for each channel


def _power(number: int) -> int:
    return 1 << max(number.bit_length() - 1, 0)


def _has_inner_channels(self: Tensor) -> bool:
    order = (0, *range(2, len(self.sizes)), 1)
    rows = self._replace(
        sizes=tuple(self.sizes[dim] for dim in order),
        strides=tuple(self.strides[dim] for dim in order),
    )
    return len(self.sizes) in (2, 4, 5) and rows.is_contiguous


def _has_planes(self: Tensor) -> bool:
    return len(self.sizes) > 2 and self.is_contiguous and self.strides[1] != 1


def _take_partial(call: Call, input: Tensor, numbers: int) -> None:
    """Take and free what the sums of channels take."""
    channels = input.sizes[1]
    rows = input.numel // channels
    width = min(_power(channels), ROW_THREADS)
    height = min(_power(up(rows, ELEMENTS)), MAX_THREADS // width)
    if width * height != MAX_THREADS:
        width = min(_power(channels), MAX_THREADS // height)
    blocks = min(up(rows, height * ELEMENTS), MAX_ROWS)
    if blocks >= FEWEST_ROWS:
        partial = call.make(accumulated(input.dtype), numbers, channels, blocks)
        semaphores = call.take(SEMAPHORE_BYTES * up(channels, width))
        call.free(semaphores, partial)


@plans("native_batch_norm", "_native_batch_norm_legit")
def batch_norm(
    call: Call,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> None:
    """Partial sums of the statistics."""
    has_planes = _has_planes(input)
    check(input.numel > 0 and (has_planes or _has_inner_channels(input)), "a strided input")
    check(training, "an evaluation")
    call.result(input.dtype, input.sizes)
    for _ in range(2):
        call.result(accumulated(input.dtype), (input.sizes[1],))
    if not has_planes:
        _take_partial(call, input, SUMS)


@plans("native_batch_norm_backward")
def batch_norm_backward(
    call: Call,
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: list[bool],
) -> list[int]:
    """Sums of channels and their parts."""
    check(weight is not None or not any(output_mask[1:]), "gradients of no weights")
    if _has_planes(input) and _has_planes(grad_out) and input.sizes[1] > 1:
        if output_mask[0]:
            call.result(input.dtype, input.sizes)
        for _ in filter(None, output_mask[1:]):
            call.result(weight.dtype if weight else "", (input.sizes[1],))
        return list(range(sum(output_mask)))
    check(train and input.numel > 0, "an evaluation")
    check(_has_inner_channels(input) and _has_inner_channels(grad_out), "other layouts")
    check(all(output_mask) if weight else output_mask == [True, False, False], "some gradients")
    channels = input.sizes[1]
    sums = [call.take(ITEM_BYTES[accumulated(input.dtype)] * channels) for _ in range(2)]
    for _ in range(2 if weight else 0):
        call.result(weight.dtype if weight else "", (channels,))
    _take_partial(call, input, GRADIENT_SUMS)
    call.result(input.dtype, input.sizes)
    call.free(*reversed(sums))
    return [2, 0, 1] if weight else [0]
