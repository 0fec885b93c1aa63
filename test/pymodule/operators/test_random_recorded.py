"""Compares random numbers with records of GPUs, made by tools/record_cuda_random.py, and tests that
program.

The first test compares with a GPU. The others test the program with the CPU and with openreg's
devices.
"""

import copy
import gzip
import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch_openreg._version import TORCH_VERSION

from device import DEVICE

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / "tools"
TOOL = TOOLS / "record_cuda_random.py"
RECORDS = sorted((ROOT / "test" / "fixtures").glob("random-*.json.gz"))

SMALL = 16  # elements of the largest tensor


@pytest.fixture(scope="module")
def tool():
    sys.path.insert(0, str(TOOLS))
    yield SimpleNamespace(**runpy.run_path(str(TOOL)))
    sys.path.remove(str(TOOLS))


@pytest.fixture(scope="module")
def one_answer_a_call(tool):
    recorded = tool.record(DEVICE, SMALL)
    by_call = {case["call"]: case for case in recorded["answers"] if case["n"] >= 8}
    return recorded | {"answers": list(by_call.values())}


@pytest.fixture
def record(one_answer_a_call):
    """Return a record of a simulated device, for tests that change it."""
    return copy.deepcopy(one_answer_a_call)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_numbers_are_those_of_the_recorded_gpu(path, python):
    with gzip.open(path, "rt") as file:
        gpu = json.load(file)
    arguments = ["record_cuda_random.py", "--device", DEVICE, "--compare", str(path)]
    python(
        f"""
        import runpy, sys
        sys.path.insert(0, {str(TOOLS)!r})
        sys.argv = {arguments!r}
        runpy.run_path({str(TOOL)!r}, run_name="__main__")
        """,
        OPENREG_PROFILE=f"{gpu['multiprocessors']}x{gpu['threads']}",
    )


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_a_record_of_a_device_matches_the_device(tool, device, tmp_path):
    path = tmp_path / "record.json.gz"
    arguments = ["--device", device, "--largest", str(SMALL), "--output", str(path)]
    assert tool.main(arguments) == 0
    assert tool.main(["--device", device, "--compare", str(path)]) == 0
    calls = {case["call"] for case in tool.load(path)["answers"]}
    assert calls == set(tool.CALLS)


def test_a_record_is_the_same_file_every_time(tool, record, tmp_path):
    paths = [tmp_path / "first.json.gz", tmp_path / "second.json.gz"]
    for path in paths:
        tool.save(record, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert tool.load(paths[0]) == record


def test_a_record_names_the_device_and_the_versions(record):
    assert record["device"] == DEVICE and "H100" in record["name"]
    assert (record["multiprocessors"], record["threads"]) == (132, 2048)
    assert record["torch"].startswith(TORCH_VERSION)


@pytest.mark.parametrize("call", ["uniform_()", "normal_()", "poisson(small)", "randperm"])
def test_other_elements_are_a_difference(tool, record, call):
    case = next(case for case in record["answers"] if case["call"] == call)
    case["values"][:2] = [value + 1 for value in case["values"][:2]]
    case["digest"] = "0" * len(case["digest"])
    assert [other["call"] for other in tool.differences(record, DEVICE)] == [call]


def test_another_offset_is_a_difference(tool, record):
    record["answers"][3]["offset"] += 4
    assert len(list(tool.differences(record, DEVICE))) == 1


def test_a_missing_operator_is_a_difference(tool, record):
    case = next(case for case in record["answers"] if case["call"] == "uniform_()")
    case["dtype"] = "int64"
    (other,) = tool.differences(record, DEVICE)
    assert "not implemented for" in other["got"]


def test_recording_a_gpu_without_one_fails(tool, capsys, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("here is a GPU")
    with pytest.raises(SystemExit):
        tool.main(["--output", str(tmp_path / "record.json.gz")])
    assert "PyTorch sees no GPU here" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_sizes_surround_every_boundary_of_the_layout(tool):
    sizes = tool.sizes_of({"multiprocessors": 132, "threads": 2048}, 1 << 24)
    wave = 132 * 2048
    for boundary in (1, 256, wave, 2 * wave, 4 * wave):
        assert {boundary, boundary + 1} <= set(sizes)
    assert max(sizes) == 1 << 24
