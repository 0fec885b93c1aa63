"""Operators support exactly the dtypes that PyTorch's database lists for CUDA."""

import json
import pathlib
import subprocess
import sys

import pytest
from database import name_of
from torch.testing._internal.common_methods_invocations import op_db
from torch_openreg._releases import RELEASE

from device import DEVICE

ALL = None
INTEGERS = ("int16", "int32", "int64", "int8", "uint8")

# Pairs that the database lists for CUDA but that fail here: exactly these, with the reason.
MISSING = {}
if DEVICE == "cuda":
    BLOCKS = "the CPU's kernel has no scales for blocks of 128 elements, which need CUDA 12.9"
    MISSING["torch._scaled_mm_v2"] = (("float8_e4m3fn",), BLOCKS)
else:
    REAL = "torch.fft supports float16 on CUDA devices only"
    MISSING |= {
        f"fft.{name}{dimensions}": (("float16",), REAL)
        for name in ("fft", "hfft", "rfft", "ifft", "ihfft", "irfft")
        for dimensions in ("", "2", "n")
    }

# The same for gradients.
MISSING_GRADIENTS = set()
if RELEASE >= (2, 14):
    OF_CPU = "an operator of the CPU"
    MISSING["torch.ops.aten._scaled_dot_product_flash_attention_for_cpu"] = (ALL, OF_CPU)

if RELEASE < (2, 13):
    ZERO = "its samples divide integers by zero, which the CPU refuses"
    MISSING["__rmod__"] = (INTEGERS, ZERO)

EIGHT_BITS = ("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
# Pairs that the database does not list for CUDA but that run here with some sample: exactly these.
TOO_MANY = {
    "einsum": (INTEGERS, "samples without a matrix product, which run on CUDA, too"),
    "inner": (INTEGERS, "a product of numbers, which runs on CUDA, too"),
    "norm": (("complex32",), "the CPU's kernel supports it"),
    "norm.inf": (("complex32",), "the largest absolute value; each step of it runs on CUDA"),
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


def test_pairs_supported_by_cuda_run(walked):
    failing, expected = walked["failing"], pairs_of(MISSING)
    expected |= {f"gradient of {pair}" for pair in MISSING_GRADIENTS}
    assert {pair: said for pair, said in failing.items() if pair not in expected} == {}
    assert expected - set(failing) == set(), "the table says that these fail"


def test_pairs_not_supported_by_cuda_are_refused(walked):
    assert set(walked["running"]) == pairs_of(TOO_MANY)


def test_launches_know_which_memory_becomes_results(walked):
    """Temporary memory of a CPU kernel never counts as device memory."""
    assert walked["misplaced"] == []
