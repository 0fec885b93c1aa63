"""Errors of unsupported dtypes name the kernel of CUDA, as a GPU did: test/fixtures/errors-*, which
tools/record_cuda_errors.py makes.

A part of the operators is enough, because one table has the names.
"""

import gzip
import json
import re
import sys
from pathlib import Path

import pytest
from modes import cuda_only
from torch_openreg._releases import RELEASE

pytestmark = [
    cuda_only("the errors are those of cuda"),
    pytest.mark.own_processes,
    pytest.mark.skipif(RELEASE != (2, 13), reason="the GPU ran 2.13"),
]

ROOT = Path(__file__).resolve().parents[3]
RECORDS = sorted((ROOT / "test" / "fixtures").glob("errors-*.json.gz"))
KERNEL = re.compile(r"""NotImplementedError: "(.*)" not implemented for '\w+'""")
# On CUDA another kernel comes first, or the name depends on what else it does.
OTHERS = {
    *(
        "min_elementwise_cuda",
        "sum_cuda",
        "max_all_cuda",
        "ufunc_add_CUDA",
        "mul_cuda",
        "addmm_cuda",
    ),
    *("lu_factor_magma_batched", "host_softmax", "avg_pool2d_out_cuda_frame", "sort"),
    "upsample_linear1d_out_frame",
}


@pytest.fixture(scope="module")
def errors_of():
    sys.path.insert(0, str(ROOT / "tools"))
    import record_cuda_errors

    yield record_cuda_errors.run_database
    sys.path.remove(str(ROOT / "tools"))


@pytest.mark.parametrize("first", [0, 200, 400])
@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_kernels_have_the_names_of_the_gpu(errors_of, path, first):
    with gzip.open(path, "rt") as file:
        recorded = json.load(file)["database"]
    compared, different = 0, {}
    for call, text in errors_of(first).items():
        on_gpu, here = (KERNEL.fullmatch(each or "") for each in (recorded[call], text))
        if on_gpu and here and here[1] not in OTHERS:
            compared += 1
            if on_gpu[1] != here[1]:
                different[call] = (on_gpu[1], here[1])
    assert not different
    assert compared >= 15
