"""Fused attention over packed sequences: the operators below scaled_dot_product_attention.

A reference computes each sequence by itself in float64, with a mask of the keys that a query sees.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out

from device import DEVICE, module

flash = torch.ops.aten._flash_attention_forward
efficient = torch.ops.aten._efficient_attention_forward

LENGTHS = ([5, 0, 9, 4], [7, 3, 9, 2])  # of queries and of keys
STARTS = [torch.tensor([0, *lengths]).cumsum(0).to(torch.int32) for lengths in LENGTHS]
HALF, SINGLE = torch.bfloat16, torch.float32
TOLERANCE = {HALF: 3e-2, SINGLE: 1e-5}
SIZE = 16


def packed(dtype=HALF, heads=(4, 4)):
    """Return query, key and value: (rows, heads, head size)."""
    generator = torch.Generator().manual_seed(0)
    rows = [STARTS[0][-1], STARTS[1][-1], STARTS[1][-1]]
    numbers = (heads[0], heads[1], heads[1])
    return [
        torch.randn(row, number, SIZE, generator=generator).to(dtype)
        for row, number in zip(rows, numbers, strict=True)
    ]


def on_device(tensors):
    return [tensor.to(DEVICE) for tensor in tensors]


def seen(queries, keys, before=-1, after=-1, at_end=True):
    """Return which keys a query sees; a negative number of keys means all."""
    distance = torch.arange(queries)[:, None] - torch.arange(keys)
    if at_end:
        distance += keys - queries
    everything = torch.ones_like(distance, dtype=torch.bool)
    left = distance <= before if before >= 0 else everything
    return left & (distance >= -after if after >= 0 else everything)


def one_by_one(query, key, value, starts=STARTS, counts=None, at_end=True, **window):
    """Return the output and logsumexp of each sequence, computed by itself."""
    outputs, sums = [], []
    times = query.shape[1] // key.shape[1]
    for i in range(len(starts[0]) - 1):
        rows = slice(starts[0][i], starts[0][i + 1])
        columns = slice(
            starts[1][i], starts[1][i + 1] if counts is None else starts[1][i] + counts[i]
        )
        q = query[rows].double().transpose(0, 1)
        k, v = (
            each[columns].double().transpose(0, 1).repeat_interleave(times, 0)
            for each in (key, value)
        )
        scores = q @ k.transpose(-2, -1) / SIZE**0.5
        mask = seen(q.shape[1], k.shape[1], at_end=at_end, **window)
        scores = scores.masked_fill(~mask, -torch.inf)
        outputs.append((scores.softmax(-1).nan_to_num() @ v).transpose(0, 1))
        sums.append(scores.logsumexp(-1))
    return torch.cat(outputs), torch.cat(sums, -1)


def assert_close(found, expected, dtype=HALF):
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(
        found.detach().cpu().double(), expected, rtol=tolerance, atol=tolerance
    )


# ---- the flash kernel ---------------------------------------------------------------------------

WINDOWS = {
    "all": (-1, -1),
    "causal": (-1, 0),
    "sliding": (3, 0),
    "around": (2, 1),
}


@pytest.mark.parametrize("heads", [(4, 4), (4, 2)], ids=["equal heads", "shared heads"])
@pytest.mark.parametrize("window", WINDOWS)
def test_sequences_of_different_lengths(window, heads):
    tensors = packed(heads=heads)
    before, after = WINDOWS[window]
    leaves = [tensor.double().requires_grad_() for tensor in tensors]
    expected, sums = one_by_one(*leaves, before=before, after=after)
    weight = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64).reshape(expected.shape)
    gradients = torch.autograd.grad(expected, leaves, weight)

    here = [tensor.requires_grad_() for tensor in on_device(tensors)]
    found, found_sums = varlen_attn(
        *here,
        *on_device(STARTS),
        *map(max, LENGTHS),
        return_aux=AuxRequest(lse=True),
        window_size=(before, after),
        enable_gqa=heads[0] != heads[1],
    )
    assert found.shape == tensors[0].shape and found.dtype == HALF
    assert_close(found, expected.detach())
    visible = sums.isfinite()  # a query without keys has no sum
    assert_close(found_sums.cpu()[visible], sums.detach()[visible])
    assert found_sums.shape == (heads[0], len(tensors[0]))
    for mine, theirs in zip(
        torch.autograd.grad(found, here, weight.to(found)), gradients, strict=True
    ):
        assert_close(mine, theirs)


def test_only_the_first_keys_of_each_sequence_count():
    tensors, counts = packed(), [4, 1, 9, 0]
    expected, _ = one_by_one(*tensors, counts=counts)
    used = torch.tensor(counts, dtype=torch.int32, device=DEVICE)
    with torch.no_grad():
        found = varlen_attn(
            *on_device(tensors), *on_device(STARTS), *map(max, LENGTHS), seqused_k=used
        )
    assert_close(found, expected)


def test_keys_in_pages_and_a_given_output():
    tensors, counts = packed(), LENGTHS[1]
    pages, table = 8, torch.tensor([[5, 1], [0, 0], [2, 3], [4, 0]], dtype=torch.int32)
    pools = []
    for tensor in tensors[1:]:
        pool = torch.zeros(6, pages, *tensor.shape[1:], dtype=HALF)
        for i, count in enumerate(counts):
            rows = tensor[STARTS[1][i] : STARTS[1][i + 1]]
            for row in range(count):
                pool[table[i, row // pages], row % pages] = rows[row]
        pools.append(pool)
    expected, _ = one_by_one(*tensors)
    query, *keys = on_device([tensors[0], *pools])
    options = {
        "seqused_k": torch.tensor(counts, dtype=torch.int32, device=DEVICE),
        "block_table": table.to(DEVICE),
    }
    out = torch.empty_like(query)
    with torch.no_grad():
        arguments = (query, *keys, STARTS[0].to(DEVICE), None, max(LENGTHS[0]), 2 * pages)
        assert_close(varlen_attn(*arguments, **options), expected)
        result = varlen_attn_out(out, *arguments, **options)
    assert result.data_ptr() == out.data_ptr()
    assert_close(out, expected)


def test_a_batch_is_computed_like_scaled_dot_product_attention():
    shape = (2, 6, 4, SIZE)
    tensors = [torch.randn(shape, dtype=HALF, device=DEVICE) for _ in range(3)]
    output, sums, state, unused, weights = flash(*tensors, None, None, 6, 6, 0.0, True, False)
    expected = F.scaled_dot_product_attention(
        *(tensor.transpose(1, 2) for tensor in tensors), is_causal=True
    )
    assert torch.equal(output, expected.transpose(1, 2))
    assert (output.stride(), sums.shape) == (tensors[0].stride(), (2, 4, 6))
    assert (state.dtype, state.shape, unused.shape, weights.shape) == (torch.uint64, (2,), (), (0,))


def test_dropout_is_repeated_in_the_gradients():
    tensors = [tensor.requires_grad_() for tensor in on_device(packed(heads=(1, 1)))]
    value = tensors[2]
    module.manual_seed(1)
    output, *_, weights = flash(*tensors, *on_device(STARTS), *map(max, LENGTHS), 0.5, False, True)
    assert weights.shape == (4, 1, 128, 128)
    (gradient,) = torch.autograd.grad(output, value, torch.ones_like(output))
    weights = weights[0, 0, : LENGTHS[0][0], : LENGTHS[1][0]]
    assert 0 < (weights < 0).float().mean().item() < 1
    torch.testing.assert_close(
        gradient[: LENGTHS[1][0], 0, 0].float(),
        weights.float().clamp(min=0).sum(0),
        rtol=3e-2,
        atol=3e-2,
    )
    module.manual_seed(1)
    again = flash(*tensors, *on_device(STARTS), *map(max, LENGTHS), 0.5, False, False)[0]
    assert torch.equal(output, again)


REFUSALS = {
    "float32": ({}, SINGLE, "only support fp16 and bf16"),
    "one kind of rows": ({"key_starts": None}, HALF, "must be both set or both not set"),
    "other integers": (
        {"key_starts": STARTS[1].long()},
        HALF,
        "cu_seqlens_k must have dtype int32",
    ),
    "alibi": ({"alibi_slopes": torch.ones(4)}, HALF, "does not support alibi"),
    "too few rows": (
        {"key_starts": STARTS[1][:-1]},
        HALF,
        "4 sequences expects 5 first rows, got 4",
    ),
    "too few numbers of keys": (
        {"seqused_k": torch.ones(3, dtype=torch.int32)},
        HALF,
        "4 sequences expects as many numbers of keys",
    ),
    "rows in another order": (
        {"key_starts": STARTS[1].flip(0).contiguous()},
        HALF,
        "expects the first rows of the sequences in order",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    options, dtype, words = REFUSALS[name]
    options = dict(options)
    starts = options.pop("key_starts", STARTS[1])
    starts = starts if starts is None else starts.to(DEVICE)
    options = {key: value.to(DEVICE) for key, value in options.items()}
    with pytest.raises(RuntimeError, match=words):
        flash(
            *on_device(packed(dtype)),
            STARTS[0].to(DEVICE),
            starts,
            9,
            9,
            0.0,
            False,
            False,
            **options,
        )


# ---- the memory-efficient kernel ----------------------------------------------------------------

MASKS = {
    "all": (0, {}, {}),
    "causal from the beginning": (1, {"after": 0, "at_end": False}, {}),
    "causal from the end": (2, {"after": 0}, {}),
    "a window": (2, {"before": 2, "after": 0}, {"window_size": 3}),
}


@pytest.mark.parametrize("dtype", [SINGLE, HALF])
@pytest.mark.parametrize("name", MASKS)
def test_memory_efficient_attention_of_packed_sequences(name, dtype):
    kind, window, options = MASKS[name]
    tensors = packed(dtype)
    leaves = [tensor.double().requires_grad_() for tensor in tensors]
    expected, _ = one_by_one(*leaves, **window)
    weight = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64).reshape(expected.shape)
    gradients = torch.autograd.grad(expected, leaves, weight)

    here = [tensor.requires_grad_() for tensor in on_device(tensors)]
    output, sums, seed, offset, longest_query, longest_key = efficient(
        *(tensor.unsqueeze(0) for tensor in here),
        None,
        *on_device(STARTS),
        *map(max, LENGTHS),
        0.0,
        kind,
        True,
        **options,
    )
    assert (longest_query, longest_key) == (9, 9)
    assert (sums.shape, seed.shape, offset.shape) == ((4, 4, 32), (), ())
    assert_close(output[0], expected.detach(), dtype)
    if options:
        return  # PyTorch does not pass the window to the gradients
    found = torch.autograd.grad(output[0], here, weight.to(output))
    for mine, theirs in zip(found, gradients, strict=True):
        assert_close(mine, theirs, dtype)


def test_memory_efficient_attention_with_a_bias():
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(2, 6, 4, SIZE, generator=generator) for _ in range(3)]
    tensors.append(torch.randn(2, 4, 6, 6, generator=generator))
    leaves = [tensor.requires_grad_() for tensor in tensors]
    expected = F.scaled_dot_product_attention(
        *(tensor.transpose(1, 2) for tensor in leaves[:3]), attn_mask=leaves[3]
    ).transpose(1, 2)
    weight = torch.linspace(-1, 1, expected.numel()).reshape(expected.shape)
    here = [tensor.detach().to(DEVICE).requires_grad_() for tensor in tensors]
    found = efficient(*here, None, None, None, None, 0.0, 0, True)[0]
    torch.testing.assert_close(found.cpu(), expected)
    theirs = torch.autograd.grad(expected, leaves, weight)
    mine = torch.autograd.grad(found, here, weight.to(DEVICE))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_packed_sequences_with_a_bias():
    tensors = packed(SINGLE)
    bias = torch.randn(4, 4, 9, 9, generator=torch.Generator().manual_seed(1))
    leaves = [each.clone().requires_grad_() for each in (*tensors, bias)]
    outputs = []
    for i, (queries, keys) in enumerate(zip(*LENGTHS, strict=True)):
        q, k, v = (
            each[starts[i] : starts[i + 1]].transpose(0, 1)
            for each, starts in zip(leaves, [STARTS[0], STARTS[1], STARTS[1]], strict=False)
        )
        added = leaves[3][i, :, :queries, :keys]
        outputs.append(F.scaled_dot_product_attention(q, k, v, attn_mask=added).transpose(0, 1))
    expected = torch.cat(outputs)
    weight = torch.linspace(-1, 1, expected.numel()).reshape(expected.shape)
    here = [each.detach().to(DEVICE).requires_grad_() for each in leaves]
    inputs = [each.unsqueeze(0) for each in here[:3]]
    found = efficient(*inputs, here[3], *on_device(STARTS), 9, 9, 0.0, 0, True)[0][0]
    torch.testing.assert_close(found.cpu(), expected)
    theirs = torch.autograd.grad(expected, leaves, weight)
    mine = torch.autograd.grad(found, here, weight.to(DEVICE))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.cpu(), b)


@pytest.mark.parametrize(
    "batch, kind, options, words",
    [
        (2, 0, {}, "only supports batch_size=1"),
        (1, 3, {}, "custom_mask_type not supported"),
        (1, 0, {"window_size": 4}, "custom_mask_type not supported"),
    ],
)
def test_refusals_of_memory_efficient_attention(batch, kind, options, words):
    tensors = [tensor.expand(batch, *tensor.shape) for tensor in on_device(packed(SINGLE))]
    with pytest.raises(RuntimeError, match=words):
        efficient(*tensors, None, *on_device(STARTS), 9, 9, 0.0, kind, True, **options)


# ---- asynchrony and graphs ----------------------------------------------------------------------


def test_a_queued_launch_reads_the_rows_when_it_runs(close_gate):
    tensors, starts = on_device(packed()), on_device(STARTS)
    expected = flash(*tensors, *starts, 9, 9, 0.0, False, False)[0]
    later = [each.clone() for each in starts]
    flash(*tensors, *later, 9, 9, 0.0, False, False)
    zero = torch.zeros_like(later[0])
    module.synchronize()
    gate = close_gate()
    for each, start in zip(later, starts, strict=True):
        each.copy_(zero)
        each.copy_(start)
    found = flash(*tensors, *later, 9, 9, 0.0, False, False)[0]
    assert not module.current_stream().query()
    gate.open()
    assert torch.equal(found, expected)


def test_a_replay_reads_the_rows_again():
    tensors, starts = on_device(packed()), on_device(STARTS)
    graph = getattr(module, "CUDAGraph", None) or module.Graph
    captured = graph()
    with module.graph(captured):
        output = flash(*tensors, *starts, 9, 9, 0.0, False, False)[0]
    captured.replay()
    expected = flash(*tensors, *starts, 9, 9, 0.0, False, False)[0]
    assert torch.equal(output, expected)
    starts[0].zero_()  # no sequence has a query
    captured.replay()
    assert not output.any()
