"""Dry runs have the figures of a GPU, as in test/fixtures/programs-*, which
tools/record_cuda_programs.py makes.

The small programs run here. The others need a library. The GPU of the older record ran 2.11 of
PyTorch, in which cuBLASLt has a workspace of its own; it has the programs without cuDNN, too.
"""

import gzip
import json
from pathlib import Path

import pytest
from modes import cuda_only
from torch_openreg._releases import RELEASE

pytestmark = [cuda_only("the programs are for cuda"), pytest.mark.own_processes]

ROOT = Path(__file__).resolve().parents[3]
RECORDS = sorted((ROOT / "test" / "fixtures").glob("programs-*.json.gz"))
# Convolutions without cuDNN take a workspace of cuBLAS on the GPU only.
WITHOUT_CUBLAS = ("small u-net",)
# On the GPU they used cuDNN.
OF_CUDNN = ("convolutions", "u-net", "lstm", "lstm with autocast", "gru")
MIB = 1 << 20

RUN = f"""
import gc, json, sys, torch, torch_openreg._C
sys.path.insert(0, {str(ROOT / "tools")!r})
import record_cuda_programs as tool
found = {{}}
for name in tool.PROGRAMS:
    if name.startswith("small"):
        torch.backends.cudnn.enabled = True
        found[name] = tool.run(name)["figures"]
        gc.collect()
        torch_openreg._C.clear_cublas_workspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
print(json.dumps(found))
"""


def compares(name):
    base = name.removesuffix(", without cuDNN")
    uses_cudnn = base == name and base.removeprefix("small ") in OF_CUDNN
    return name.startswith("small") and not uses_cudnn and base not in WITHOUT_CUBLAS


@pytest.mark.skipif(RELEASE < (2, 13), reason="some operators take other amounts")
@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_figures_of_each_step_are_those_of_the_gpu(path, python):
    with gzip.open(path, "rt") as file:
        record = json.load(file)
    recorded = record["programs"]
    settings = {
        "OPENREG_DRY_RUN": "1",
        "OPENREG_PROFILE": "h100",
        "OPENREG_MEMORY_PLANS": "builtin",
        "TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0" if record["torch"].startswith("2.11") else "1",
    }
    result = python(RUN, fresh=True, **settings)
    found = json.loads(result.stdout.splitlines()[0])
    names = [name for name in recorded if compares(name)]
    assert len(names) >= 10
    for name in names:
        for row, expected in zip(found[name], recorded[name]["figures"], strict=True):
            for key in ("allocated", "allocated_peak"):
                assert row[key] == expected[key], (name, key)
            # The order of two releases differs, and so where a block fits.
            for key in ("reserved", "reserved_peak"):
                assert abs(row[key] - expected[key]) <= 2 * MIB, (name, key)
