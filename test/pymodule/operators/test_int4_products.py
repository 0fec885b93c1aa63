"""Weights of 4 bits: CUDA's packed layout, and products with them."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from device import DEVICE

GROUP = 32


def weight(n, k):
    """Return numbers from 0 to 15 and the bytes that hold two of them each, the first above."""
    numbers = torch.randint(16, (n, k), generator=torch.Generator().manual_seed(0))
    return numbers, (numbers[:, ::2] * 16 + numbers[:, 1::2]).to(torch.uint8)


def word_of(numbers, row, column, lane, tile):
    """Return a packed word as the lane of a warp makes it: two tiles of 16 columns."""
    word, place = 0, 0
    for second_of_pair in (0, 1):  # the first and the second column of each pair
        for base in (column, column + 16):
            for half in (0, 8):
                k = base + tile * 32 + half + 2 * (lane % 4) + second_of_pair
                n = row * 8 + lane // 4
                if n < len(numbers):
                    word |= int(numbers[n][k]) << place
                place += 4
    return word - (1 << 32) if word >= 1 << 31 else word


@pytest.mark.parametrize(("n", "k", "tiles"), [(8, 32, 2), (12, 128, 4), (24, 256, 8)])
def test_packed_words_are_those_of_a_lane(n, k, tiles):
    numbers, packed_bytes = weight(n, k)
    packed = torch._convert_weight_to_int4pack(packed_bytes.to(DEVICE), tiles)
    assert packed.dtype == torch.int32
    assert packed.shape == ((n + 7) // 8, k // (tiles * 16), 32, tiles // 2)
    words = packed.tolist()
    for row, column, lane, tile in itertools.product(*map(range, packed.shape)):
        first = column * tiles * 16
        assert words[row][column][lane][tile] == word_of(numbers, row, first, lane, tile)


@pytest.mark.parametrize("tiles", [2, 8])
def test_product_is_that_of_the_dequantized_weight(tiles):
    m, n, k = 5, 24, 256
    numbers, packed_bytes = weight(n, k)
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(m, k, generator=generator).bfloat16()
    scales = torch.rand(k // GROUP, n, 2, generator=generator).bfloat16()
    packed = torch._convert_weight_to_int4pack(packed_bytes.to(DEVICE), tiles)
    actual = torch._weight_int4pack_mm(x.to(DEVICE), packed, GROUP, scales.to(DEVICE))
    scale, zero = scales.double().repeat_interleave(GROUP, 0).unbind(2)
    dequantized = ((numbers - 8) * scale.t() + zero.t()).bfloat16()
    assert (actual.dtype, actual.device.type) == (torch.bfloat16, DEVICE)
    assert_close(actual.cpu(), (x.double() @ dequantized.double().t()).bfloat16())


def test_wrong_operands_are_refused():
    _, packed_bytes = weight(8, 64)
    packed_bytes = packed_bytes.to(DEVICE)
    with pytest.raises(RuntimeError, match="innerKTiles must be 2, 4 or 8, but is 3"):
        torch._convert_weight_to_int4pack(packed_bytes, 3)
    with pytest.raises(RuntimeError, match="64 columns are no multiple of 128"):
        torch._convert_weight_to_int4pack(packed_bytes, 8)
    with pytest.raises(RuntimeError, match="a contiguous matrix of uint8"):
        torch._convert_weight_to_int4pack(packed_bytes.int(), 2)
    packed = torch._convert_weight_to_int4pack(packed_bytes, 2)
    x = torch.ones(2, 64, dtype=torch.bfloat16, device=DEVICE)
    scales = torch.ones(2, 8, 2, dtype=torch.bfloat16, device=DEVICE)
    with pytest.raises(RuntimeError, match="self must be a contiguous matrix of bfloat16"):
        torch._weight_int4pack_mm(x.float(), packed, 32, scales)
    with pytest.raises(RuntimeError, match="with 32 columns"):
        torch._weight_int4pack_mm(x[:, :32].contiguous(), packed, 32, scales)
    with pytest.raises(RuntimeError, match="must be 32, 64, 128 or 256 .* but is 16"):
        torch._weight_int4pack_mm(x, packed, 16, scales)
    with pytest.raises(RuntimeError, match="a scale and a zero for each of 1 groups and 8 rows"):
        torch._weight_int4pack_mm(x, packed, 64, scales)
