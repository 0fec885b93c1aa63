"""Random numbers that depend on a key alone (`torch.func._random`), compared with the formulas."""

import pytest
import torch

from device import DEVICE, module

split = torch.ops.aten._philox_key_split
fold_in = torch.ops.aten._philox_key_fold_in
uniform_ = torch.ops.aten._philox_uniform_
normal_ = torch.ops.aten._philox_normal_

SEED, OFFSET = 0x1122334455667788, 2**32 - 2  # the block's number needs two words


def philox(seed, block):
    """Return the four words of a block of Philox4x32-10, subsequence 0."""
    low = 0xFFFFFFFF
    x, y, z, w = block & low, block >> 32 & low, 0, 0
    k0, k1 = seed & low, seed >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * x, 0xCD9E8D57 * z
        x, y, z, w = (b >> 32) ^ y ^ k0, b & low, (a >> 32) ^ w ^ k1, a & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return x, y, z, w


def keys(*pairs, device=DEVICE):
    return torch.tensor(pairs if len(pairs) > 1 else pairs[0], dtype=torch.uint64, device=device)


def uniforms(seed, offset, count):
    words = [word for block in range((count + 3) // 4) for word in philox(seed, offset + block)]
    return torch.tensor([(word & 0xFFFFFF) / 2**24 for word in words[:count]])


def test_derived_keys_are_blocks_of_a_key():
    derived = split(keys((SEED, OFFSET)), 5).cpu().tolist()
    for block, (seed, offset) in enumerate(derived):
        x, y, z, w = philox(SEED, OFFSET + block)
        assert (seed, offset) == (x | y << 32, z | w << 32)
        assert fold_in(keys((SEED, OFFSET)), block).tolist() == [seed, offset]


def test_keys_of_a_batch_are_split_one_by_one():
    batch = keys((1, 2), (3, 4), (5, 6))
    derived = split(batch, 2)
    assert derived.shape == (2, 3, 2)
    for index in range(3):
        assert torch.equal(derived[:, index], split(batch[index], 2))
        assert torch.equal(fold_in(batch[::2], 7)[1], fold_in(batch[2], 7))


@pytest.mark.parametrize("count", [1, 4, 1031])
def test_uniform_numbers_are_words_of_blocks(count):
    drawn = uniform_(torch.empty(count, device=DEVICE), keys((SEED, OFFSET)))
    assert torch.equal(drawn.cpu(), uniforms(SEED, OFFSET, count))


def test_normal_numbers_have_their_mean_and_deviation():
    drawn = normal_(torch.empty(100_000, device=DEVICE), keys((SEED, OFFSET)), 3.0, 2.0)
    assert abs(drawn.mean().item() - 3) < 0.02
    assert abs(drawn.std().item() - 2) < 0.02


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("draw", [uniform_, normal_], ids=["uniform", "normal"])
def test_each_key_of_a_batch_fills_its_part(draw, dtype):
    batch = keys((1, 2), (3, 4), (5, 6)).view(3, 1, 1, 2)
    drawn = draw(torch.empty(3, 5, 7, dtype=dtype, device=DEVICE), batch)
    for index in range(3):
        part = draw(torch.empty(35, dtype=dtype, device=DEVICE), batch[index, 0, 0])
        assert torch.equal(drawn[index].flatten(), part)


def test_a_key_is_repeated_over_a_dimension_that_has_one():
    batch = keys((1, 2), (3, 4)).view(1, 2, 2)
    drawn = uniform_(torch.empty(3, 2, device=DEVICE), batch).cpu()
    assert torch.equal(drawn, torch.cat([uniforms(1, 2, 1), uniforms(3, 4, 1)]).expand(3, 2))


LAYOUTS = {
    "transposed": lambda: torch.zeros(6, 5, device=DEVICE).t(),
    "unaligned": lambda: torch.zeros(31, device=DEVICE)[1:].view(5, 6),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_result_of_any_layout_is_filled_in_order(layout):
    drawn = uniform_(LAYOUTS[layout](), keys((SEED, OFFSET)))
    assert torch.equal(drawn.cpu().flatten(), uniforms(SEED, OFFSET, 30))


def test_keys_with_strides():
    key = torch.zeros(2, 3, dtype=torch.uint64, device=DEVICE)
    key[:, 1] = keys((SEED, OFFSET))
    drawn = uniform_(torch.empty(9, device=DEVICE), key[:, 1])
    assert torch.equal(drawn.cpu(), uniforms(SEED, OFFSET, 9))
    unaligned = torch.zeros(5, dtype=torch.uint64, device=DEVICE)
    unaligned[1:] = keys((1, 2), (3, 4)).flatten()
    batch = unaligned[1:].view(2, 2)
    expected = torch.cat([uniforms(1, 2, 1), uniforms(3, 4, 1)])
    assert torch.equal(uniform_(torch.empty(2, device=DEVICE), batch).cpu(), expected)
    table = torch.zeros(2, 3, dtype=torch.uint64, device=DEVICE)
    table[:, :2] = batch
    assert torch.equal(uniform_(torch.empty(2, device=DEVICE), table[:, :2]).cpu(), expected)
    columns = batch.t().contiguous().t()
    assert torch.equal(uniform_(torch.empty(2, device=DEVICE), columns).cpu(), expected)


def test_draws_wait_for_the_key_on_their_stream(close_gate):
    five = torch.full((2,), 5, device=DEVICE)
    key = torch.zeros(2, dtype=torch.int64, device=DEVICE)
    key.copy_(five)  # the first copy is waited for
    key.zero_()
    gate = close_gate()
    key.copy_(five)
    drawn = uniform_(torch.empty(6, device=DEVICE), fold_in(key.view(torch.uint64), 1))
    gate.open()
    x, y, z, w = philox(5, 6)
    assert torch.equal(drawn.cpu(), uniforms(x | y << 32, z | w << 32, 6))


def test_the_generator_is_not_used():
    before = module.get_rng_state()
    normal_(torch.empty(4, device=DEVICE), keys((1, 2)))
    assert torch.equal(module.get_rng_state(), before)


REFUSED = {
    "key must have dtype uint64, got Long": lambda: split(torch.ones(2, device=DEVICE).long(), 1),
    r"_philox_key_fold_in: key must have shape \(\*batch, 2\), got shape \[3\]": lambda: fold_in(
        torch.ones(3, dtype=torch.uint64, device=DEVICE), 1
    ),
    "num_splits must be positive, got 0": lambda: split(keys((1, 2)), 0),
    "\"_philox_normal_\" not implemented for 'Int'": lambda: normal_(
        torch.ones(3, dtype=torch.int32, device=DEVICE), keys((1, 2))
    ),
    "batched key must have ndim == output ndim": lambda: uniform_(
        torch.ones(3, device=DEVICE), keys((1, 2), (3, 4)).view(1, 2, 2)
    ),
    r"key batch shape \[2\] is not broadcastable with output shape \[3\]": lambda: uniform_(
        torch.ones(3, device=DEVICE), keys((1, 2), (3, 4))
    ),
    "on the same device": lambda: uniform_(
        torch.ones(3, device=DEVICE), keys((1, 2), device="cpu")
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_wrong_arguments_are_refused(message):
    with pytest.raises(RuntimeError, match=message):
        REFUSED[message]()
