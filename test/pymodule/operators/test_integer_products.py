"""torch._int_mm, a product of matrices of 8-bit integers, has the conditions of CUDA's library."""

import pytest
import torch

from device import DEVICE

A = {"rows": 17, "inner": 8, "columns": 32, "dtype": torch.int8}


def operands(device, rows, inner, columns, dtype):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randint(-100, 100, shape, generator=generator).to(dtype).to(device)
        for shape in ((rows, inner), (inner, columns))
    ]


def test_product_is_exact():
    expected = torch.mm(*operands("cpu", 33, 24, 16, torch.int64))
    actual = torch._int_mm(*operands(DEVICE, 33, 24, 16, torch.int8))
    assert actual.dtype == torch.int32
    assert torch.equal(actual.cpu().long(), expected)
    out = torch.empty(33, 16, dtype=torch.int32, device=DEVICE)
    assert torch._int_mm(*operands(DEVICE, 33, 24, 16, torch.int8), out=out) is out
    assert torch.equal(out, actual)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rows": 16}, r"self.size\(0\) needs to be greater than 16, but got 16"),
        ({"inner": 7}, r"self.size\(1\) needs to be greater than 0 and a multiple of 8, but got 7"),
        ({"columns": 31}, r"mat2.size\(1\) needs to be greater than 0 and a multiple of 8"),
        ({"dtype": torch.float32}, "expected scalar type Char but found Float"),
    ],
)
def test_what_cuda_cannot_multiply_is_refused(changes, sentence):
    with pytest.raises(RuntimeError, match=sentence):
        torch._int_mm(*operands(DEVICE, **{**A, **changes}))


def test_operands_and_result_must_fit():
    one, other = operands(DEVICE, **A)
    with pytest.raises(RuntimeError, match=r"needs to match mat2.size\(0\) but got 8 and 16"):
        torch._int_mm(one, torch.cat([other, other]))
    with pytest.raises(RuntimeError, match="Expected mat2 to be of dimension 2 but got 1"):
        torch._int_mm(one, other[0])
    for shape, dtype, sentence in (
        ((17, 32), torch.float32, "Expected result dtype to be of type kInt but got float"),
        ((15, 32), torch.int32, r"Expected result.size\(0\) to be 17 but got 15"),
        ((17, 31), torch.int32, r"Expected result.size\(1\) to be 32 but got 31"),
    ):
        with pytest.raises(RuntimeError, match=sentence):
            torch._int_mm(one, other, out=torch.empty(shape, dtype=dtype, device=DEVICE))
