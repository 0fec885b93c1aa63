"""The memory-efficient kernel of attention, forward and backward.

Sources: ATen/native/transformers/cuda/attention.cu and attention_backward.cu, and
kernel_forward.h, kernel_backward.h and generate_kernels.py of mem_eff_attention.
"""

from .call import HALF, Call, Tensor, check, plans, up, up_to
from .reduce import sum_up

FLOAT_BYTES = 4
EFFICIENT_ROUNDING = 32  # of the lengths of the logarithms
KEYS_IN_REGISTERS = 128  # wider heads of 16 bits accumulate in memory
LOCK_BYTES = 16  # of a tile of the query's gradient
ENOUGH_HEADS = 256
MAX_SPLIT_HEADS = 200


@plans("_scaled_dot_product_efficient_attention")
def efficient(
    call: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> list[int] | None:
    """A result in float32, where heads are too wide to stay in registers."""
    from ..._releases import KEEPS_UNUSED_POSITION

    batch, heads, length, _ = query.sizes
    size = value.sizes[3]
    check(heads == key.sizes[1], "heads are not shared")
    has_position = KEEPS_UNUSED_POSITION and dropout_p == 0
    if has_position:
        call.result("int64", ())
        call.result("int64", ())
    call.result(query.dtype, (batch, length, heads, size))
    if compute_log_sumexp:
        call.result("float32", (batch, heads, up_to(length, EFFICIENT_ROUNDING)))
    if query.dtype in HALF and size > KEYS_IN_REGISTERS:
        call.free(call.make("float32", batch, length, heads, size))
    if not has_position:
        return None
    return [2, 3, 0, 1] if compute_log_sumexp else [2, 0, 1]


def _backward_kernel(
    architecture: int, dtype: str, size: int, has_dropout: bool
) -> tuple[int, int, bool]:
    """Return the block of queries, of keys, and whether the gradients stay in registers.

    Blocks of 128 need more shared memory than some GPUs have: which, is the planner's answer.
    """
    is_half = dtype in HALF
    if size <= 64:
        return 64, 64, is_half
    is_large = architecture in (80, 90, 100)
    if is_half and size <= 128 and is_large:
        return 128, 128, True
    if is_half and size <= 96 and architecture in (86, 89) and not has_dropout:
        return 128, 64, True
    if is_half and (size > 128 or architecture == 75):
        return 128, 64, size <= 128
    check(is_large or architecture in (75, 86, 89), "the shared memory of this GPU")
    return 128 if is_large else 64, 64, False


@plans("_scaled_dot_product_efficient_attention_backward")
def efficient_backward(
    call: Call,
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> None:
    """The products of output and gradient, and tiles of the gradients in float32."""
    batch, heads, length, size = query.sizes
    keys, value_size = key.sizes[2], value.sizes[3]
    check(heads == key.sizes[1] and length > 0 and keys > 0, "heads are not shared")
    check(attn_bias is None or not grad_input_mask[3], "there is no gradient of a bias")
    copy = call.contiguous(grad_out_.transposed(1, 2))
    for each in (query, key, value):
        call.result(each.dtype, each.sizes)
    if query.dtype in HALF:
        delta = call.make("float32", batch, heads, length)
    else:
        product = call.make("float32", batch, length, heads, value_size)
        sums = delta = call.make("float32", batch, length, heads)
        summed = query.like("float32", (batch, length, heads, value_size))
        sum_up(call, summed, [3], "float32")
        if length != 1 and heads != 1:
            delta = call.make("float32", batch, heads, length)
            call.free(sums)
        call.free(product)
    widest = max(size, value_size)
    block, columns, in_registers = _backward_kernel(
        call.device.architecture, query.dtype, widest, dropout_p > 0
    )
    splits = up(keys, columns)
    if batch * heads >= ENOUGH_HEADS and keys <= 2 * columns:
        splits = 1
    accumulates = query.dtype in HALF and not in_registers
    if accumulates:
        splits = min(splits, MAX_SPLIT_HEADS // (batch * heads))
    splits = 1 if call.is_deterministic else max(splits, 1)
    tile = LOCK_BYTES + FLOAT_BYTES * block * columns
    count = up(length, block) * up(size, columns) * tile // FLOAT_BYTES
    if accumulates:
        count += splits * columns * (up_to(size, block) + up_to(value_size, block))
    workspace = call.take(batch * heads * up_to(count, 4) * FLOAT_BYTES)
    call.free(delta, workspace, copy)
