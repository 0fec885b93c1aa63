"""The parts that continuous integration runs (tools/choose-part) leave no test file out."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools" / "choose-part"
FOLDER = ROOT / "test" / "pymodule"

pytestmark = pytest.mark.skipif(
    not TOOL.exists(), reason="a wheel's tests have no tools beside them"
)


def part(*words):
    result = subprocess.run(
        [sys.executable, TOOL, *words], capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def test_each_file_runs_in_one_mode():
    files = sorted(str(path.relative_to(ROOT)) for path in FOLDER.rglob("test_*.py"))
    in_cuda_mode, in_openreg_mode = part("tests", "cuda"), part("tests", "openreg")
    assert sorted([*in_cuda_mode, *in_openreg_mode]) == files
    assert min(len(in_cuda_mode), len(in_openreg_mode)) > len(files) / 4


def test_the_cuda_build_runs_what_the_cpu_build_does_not_run_in_cuda_mode():
    (chosen,) = part("cuda-build")
    on_the_cpu_build = set(part("tests", "cuda"))
    for folder in ("cuda", "launch"):
        for path in (FOLDER / folder).glob("test_*.py"):
            is_chosen = str(path.relative_to(FOLDER)) in chosen.split(",")
            assert is_chosen != (str(path.relative_to(ROOT)) in on_the_cpu_build), path
