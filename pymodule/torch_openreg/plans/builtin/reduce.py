"""What CUDA's reduction kernel takes: one block for partial results, and one for semaphores.

Source: ATen/native/cuda/Reduce.cuh (setReduceConfig, gpu_reduce_kernel).
"""

from collections.abc import Sequence

from ..dtypes import ITEM_BYTES
from .call import HALF, Call, Tensor, accumulated, up
from .iterator import Reduction, reduction

WARP = 32
MAX_THREADS = 512
MAX_THREADS_COMPLEX_DOUBLE = 256
VECTOR = 4  # elements that a thread loads at once, along outputs
MIN_VALUES = 16  # per thread, where the input is split
MAX_VALUES = 256
INT_BYTES = 4


def _last_power(number: int) -> int:
    return 1 << max(number.bit_length() - 1, 0)


def _output_vector(iterator: Reduction, item: int) -> int:
    dim, size = iterator.reduced_dims, VECTOR
    numbers = [iterator.offset // item, iterator.sizes[dim]]
    numbers += [step // item for other, step in enumerate(iterator.input) if other != dim]
    for number in numbers:
        while number % size:
            size //= 2
    return size


def partial_results(
    iterator: Reduction, item: int, state: int, vector: int, call: Call, max_threads: int
) -> tuple[int, int]:
    """Return the bytes of the partial results, and of the semaphores.

    Parameters
    ----------
    item, state
        The bytes of an element of the input, and of the state that a thread accumulates.
    vector
        How many elements of a contiguous input a thread loads at once.
    """
    outputs = iterator.outputs
    inputs = iterator.numel // outputs
    reduced, dims = iterator.reduced_dims, len(iterator.sizes)
    is_fastest, step = True, item
    width, height = 1, 1
    if dims:
        is_fastest = reduced == dims or iterator.input[0] < iterator.input[reduced]
        step = iterator.input[0 if is_fastest else reduced]
        width, height = (inputs, outputs) if is_fastest else (outputs, inputs)
    output_vector = 1
    if step == item:
        if is_fastest and width >= 128 and reduced == 1:
            width //= vector
        elif not is_fastest:
            output_vector = _output_vector(iterator, item)
            width //= output_vector
    limit = max_threads // output_vector
    width, height = (_last_power(each) if each < limit else limit for each in (width, height))
    block_width = min(width, WARP)
    block_height = min(height, limit // block_width)
    block_width = min(width, limit // block_height)
    step_input, step_output = (block_width, 1) if is_fastest else (1, block_width)
    splits_warps = up(inputs, step_input) >= min(block_height * MIN_VALUES, MAX_VALUES)
    if splits_warps:
        step_input *= block_height
    else:
        step_output *= block_height
    target = call.device.multiprocessors * (call.device.threads // (block_width * block_height))
    grid = up(outputs // output_vector, step_output)
    values = up(inputs, step_input)
    if not splits_warps or values < MAX_VALUES or grid > target:
        return 0, 0
    blocks = max(min(up(target, grid), up(values, MIN_VALUES)), up(values, MAX_VALUES))
    if blocks <= 1:
        return 0, 0
    size = state * outputs * blocks
    if not is_fastest:
        size *= block_width * output_vector
    return size, INT_BYTES * grid


def reduce(
    call: Call,
    self: Tensor,
    dims: Sequence[int],
    outputs: Sequence[str],
    state: int,
    vector: int = 4,
    accumulates_in_output: bool = True,
) -> None:
    """Take and free what the reduction of dimensions to contiguous outputs takes.

    Parameters
    ----------
    outputs
        The dtypes of the outputs.
    state
        The bytes of the state that a thread accumulates for an output.
    vector
        How many elements of a contiguous input a thread loads at once.
    accumulates_in_output
        Whether the partial results of a large tensor's parts fit into the output.
    """
    if self.numel == 0:
        return
    iterator = reduction(self, dims, outputs)
    is_large = not iterator.fits_32_bits()
    buffer = 0
    if is_large and not accumulates_in_output:
        buffer = call.take(state * iterator.outputs)
    threads = MAX_THREADS_COMPLEX_DOUBLE if self.dtype == "complex128" else MAX_THREADS
    for part in iterator.parts():
        size, semaphores = partial_results(part, self.item, state, vector, call, threads)
        blocks = [call.take(size), call.take(semaphores)]
        call.free(*reversed(blocks))
    call.free(buffer)


def sum_up(call: Call, self: Tensor, dims: Sequence[int], dtype: str) -> None:
    """Take and free what a sum takes. It accumulates in 32 bits where the dtype has 16."""
    state = ITEM_BYTES[accumulated(dtype)]
    reduce(call, self, dims, [dtype], state, accumulates_in_output=dtype not in HALF)
