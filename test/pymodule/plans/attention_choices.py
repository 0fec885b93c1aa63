"""Compare the choice of attention's kernel with that of PyTorch's CUDA build, on each device.

Prints how many calls were compared. test_attention_plans.py runs this program.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.attention import SDPBackend
from torch_openreg.plans.ask import plan

from device import DEVICE, module

FUSED = (SDPBackend.FLASH_ATTENTION.value, SDPBackend.EFFICIENT_ATTENTION.value)

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
HEADS = ((4, 4), (4, 2), (4, 3))  # of query and key
LENGTHS = ((6, 6), (6, 9), (6, 0))
SIZES = ((8, 8), (8, 16), (6, 6), (200, 200), (240, 240), (264, 264), (1, 1))  # of heads
LAYOUTS = ("heads first", "length first", "columns")


def tensor(heads: int, length: int, size: int, dtype: torch.dtype, layout: str) -> torch.Tensor:
    """Make a tensor of (batch, heads, length, size) with a layout of memory."""
    if layout == "length first":
        return torch.empty(1, length, heads, size, dtype=dtype, device=DEVICE).transpose(1, 2)
    if layout == "columns":
        return torch.empty(1, heads, size, length, dtype=dtype, device=DEVICE).transpose(2, 3)
    return torch.empty(1, heads, length, size, dtype=dtype, device=DEVICE)


def calls() -> Iterator[tuple[list[Any], bool]]:
    """Yield arguments of scaled_dot_product_attention, and whether heads may be shared."""
    for number, (dtype, heads, lengths, sizes, layout) in enumerate(
        itertools.product(DTYPES, HEADS, LENGTHS, SIZES, LAYOUTS)
    ):
        query = tensor(heads[0], lengths[0], sizes[0], dtype, layout)
        key = tensor(heads[1], lengths[1], sizes[0], dtype, layout)
        value = tensor(heads[1], lengths[1], sizes[1], dtype, layout)
        query.requires_grad_(number % 2 == 0)
        mask = torch.empty(lengths, dtype=dtype, device=DEVICE)
        masks = [None]
        if layout == "heads first":
            columns = torch.empty(lengths[::-1], dtype=dtype, device=DEVICE).t()
            masks += [None, mask, mask.expand(4, *lengths), columns, mask[:, :1].expand(lengths)]
        dropout, is_causal = 0.1 * (number % 5 == 0), number % 7 > 3
        for mask in masks:
            yield [query, key, value, mask, dropout, is_causal], number % 3 != 0


def main() -> None:
    compared = 0
    for device in range(module.device_count()):
        module.set_device(device)
        for arguments, shares_heads in calls():
            answer = plan("aten::_fused_sdp_choice", arguments, {"enable_gqa": shares_heads})
            assert answer is not None and answer.error is None
            (expected,) = answer.outputs
            if DEVICE != "cuda" and expected in FUSED:
                expected = SDPBackend.OVERRIDEABLE.value
            found = torch._fused_sdp_choice(*arguments, enable_gqa=shares_heads)
            assert found == expected, (module.get_device_name(), arguments, shares_heads)
            compared += 1
    print(compared)


main()
