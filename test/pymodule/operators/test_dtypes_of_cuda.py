"""Operators have the dtypes that PyTorch's database says CUDA has, no fewer and no more."""

import json
import pathlib
import subprocess
import sys

import pytest
from database import name_of
from torch.testing._internal.common_methods_invocations import op_db

from device import DEVICE

ALL = None
INTEGERS = ("int16", "int32", "int64", "int8", "uint8")
ATTENTION = "a kernel of CUDA's that saves what only its own backward understands"
SOURCE = "compiles a kernel for a GPU from source"

# What the database says CUDA has, and fails here: exactly these, with why.
MISSING = {
    "jiterator_2inputs_2outputs": (ALL, SOURCE),
    "jiterator_4inputs_with_extra_args": (ALL, SOURCE),
    "jiterator_binary": (ALL, SOURCE),
    "jiterator_binary_return_by_ref": (ALL, SOURCE),
    "jiterator_unary": (ALL, SOURCE),
    "torch.ops.aten._efficient_attention_forward": (ALL, ATTENTION),
    "torch.ops.aten._flash_attention_forward": (ALL, ATTENTION),
}
if DEVICE != "cuda":
    REAL = "torch.fft takes float16 where the device is CUDA's"
    MISSING |= {
        f"fft.{name}{dimensions}": (("float16",), REAL)
        for name in ("fft", "hfft", "rfft", "ifft", "ihfft", "irfft")
        for dimensions in ("", "2", "n")
    }

EIGHT_BITS = ("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
# What the database says CUDA lacks, and some sample runs here: exactly these, with why.
TOO_MANY = {
    "einsum": (INTEGERS, "samples without a matrix product, which run there, too"),
    "inner": (INTEGERS, "a number's product, which runs there, too"),
    "norm": (("complex32",), "the CPU's kernel has it"),
    "norm.inf": (("complex32",), "the largest absolute value, of which each step runs there"),
    "tensordot": (INTEGERS, "a sample of one element, multiplied without a matrix product"),
    "torch._scaled_mm": (EIGHT_BITS, "the CPU's kernel takes more 8-bit floats"),
    "torch._scaled_mm_v2": (EIGHT_BITS, "the CPU's kernel takes more 8-bit floats"),
}


def pairs_of(table):
    pairs = set()
    for info in op_db:
        if info.full_name in table:
            dtypes = table[info.full_name][0] or map(name_of, info.dtypesIfCUDA)
            pairs |= {f"{info.full_name} {dtype}" for dtype in dtypes}
    return pairs


@pytest.fixture(scope="module")
def walked(own_group):
    program = pathlib.Path(__file__).with_name("database.py")
    walk = subprocess.run(
        [sys.executable, str(program)], env=own_group(), stdout=subprocess.PIPE, check=True
    )
    return json.loads(walk.stdout)


def test_what_cuda_has_runs(walked):
    failing, expected = walked["failing"], pairs_of(MISSING)
    assert {pair: said for pair, said in failing.items() if pair not in expected} == {}
    assert expected - set(failing) == set(), "the table says that these fail"


def test_what_cuda_lacks_is_refused(walked):
    assert set(walked["running"]) == pairs_of(TOO_MANY)
