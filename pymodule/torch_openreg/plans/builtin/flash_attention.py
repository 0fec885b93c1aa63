"""The flash kernel of attention, forward and backward.

Source: ATen/native/transformers/cuda/flash_attn/flash_api.cpp (mha_fwd, mha_bwd,
num_splits_heuristic), and attention.cu and attention_backward.cu beside it (copies).
"""

import math
from typing import Any

from .call import Call, Tensor, plans, up, up_to
from .reduce import sum_up

FLOAT_BYTES = 4
RANDOM_STATE_BYTES = 16  # seed and offset
UNUSED_BYTES = 8

FLASH_QUERY_BLOCK = 64  # of the kernel that splits keys
FLASH_ROUNDING = 128  # of lengths
MAX_SPLITS = 128
FULL_ENOUGH = 0.8  # with this part of the multiprocessors in use, keys are not split
EFFICIENT_ENOUGH = 0.85  # the fewest splits that reach this part of the best efficiency


def _flash_head(size: int) -> int:
    return up_to(size, 32 if size <= 128 else 64)


def _flash_splits(work: int, multiprocessors: int, blocks: int) -> int:
    if work >= FULL_ENOUGH * multiprocessors:
        return 1
    efficiencies: dict[int, float] = {}
    for splits in range(1, min(MAX_SPLITS, multiprocessors, blocks) + 1):
        if splits == 1 or up(blocks, splits) != up(blocks, splits - 1):
            waves = work * splits / multiprocessors
            efficiencies[splits] = waves / math.ceil(waves)
    best = max(efficiencies.values(), default=0.0)
    return next((n for n, each in efficiencies.items() if each >= EFFICIENT_ENOUGH * best), 1)


@plans("_scaled_dot_product_flash_attention")
def flash(
    call: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> list[int]:
    """Partial results where keys are split, and the state of dropout."""
    batch, heads, length, size = query.sizes
    keys = key.sizes[2]
    call.result(query.dtype, query.sizes)
    call.result("float32", (batch, heads, length))
    has_mask = return_debug_mask and dropout_p > 0
    if has_mask:
        sizes = (batch, heads, up_to(length, FLASH_ROUNDING), up_to(keys, FLASH_ROUNDING))
        call.result(query.dtype, sizes)
    blocks = []
    if dropout_p == 0 and length and keys:
        columns = 256 if size <= 64 else 128 if size <= 128 else 64
        groups = heads // key.sizes[1]
        if length == 1 and groups > 1:  # the heads that share keys become the length
            work = batch * key.sizes[1] * up(groups, FLASH_QUERY_BLOCK)
        else:
            work = batch * heads * up(length, FLASH_QUERY_BLOCK)
        splits = _flash_splits(work, 2 * call.device.multiprocessors, up(keys, columns))
        if splits > 1:
            rows = splits * batch * heads * length * FLOAT_BYTES
            blocks = [call.take(rows), call.take(rows * _flash_head(size))]
    state = call.take(RANDOM_STATE_BYTES)
    unused = call.take(UNUSED_BYTES)
    if dropout_p > 0:  # the state is taken again
        blocks.append(state)
        state = call.take(RANDOM_STATE_BYTES)
    call.keep(state, "uint64", (2,))
    call.keep(unused, "uint64", ())
    call.free(*blocks)
    return [0, 1, 3, 4, 2] if has_mask else [0, 1, 2, 3]


@plans("_scaled_dot_product_flash_attention_backward")
def flash_backward(
    call: Call,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    *rest: Any,
    scale: float | None = None,
) -> None:
    """Sums in float32, and gradients of each head where several share keys."""
    batch, heads, length, size = query.sizes
    shared, keys = key.sizes[1:3]
    copies = [call.contiguous(each.transposed(1, 2)) for each in (grad_out, out)]
    for each in (query, key, value):
        call.result(each.dtype, each.sizes)
    rows = batch * heads * up_to(length, FLASH_ROUNDING) * FLOAT_BYTES
    splits = 1
    if call.is_deterministic:
        splits = up(call.device.multiprocessors, batch * heads)
    blocks = [call.take(rows), call.take(splits * rows * _flash_head(size))]
    if heads != shared:
        blocks += [call.make(key.dtype, batch, keys, heads, size) for _ in range(2)]
        for _ in range(2):
            expanded = key.like(sizes=(batch, keys, shared, heads // shared, size))
            sum_up(call, expanded, [3], key.dtype)
    call.free(*reversed(blocks), *reversed(copies))
