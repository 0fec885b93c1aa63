"""`openreg run --report`: what is printed and written when programs end, also with ranks."""

import subprocess
import textwrap

import pytest
from reported_programs import OPENREG, PRELUDE
from torch_openreg.dry.report.model import Report

from device import DEVICE

pytestmark = pytest.mark.own_processes


@pytest.fixture
def run(own_group, tmp_path):
    """Run a program with `openreg run` and options."""
    group = own_group()

    def run(program, *options, expect=0, **environment):
        file = tmp_path / "train.py"
        file.write_text(PRELUDE.replace("report.start()", "") + textwrap.dedent(program))
        result = subprocess.run(
            [*OPENREG, "run", *options, str(file)],
            env=group | {"OPENREG_DEVICE_TYPE": DEVICE} | environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert result.returncode == expect, result.stdout + result.stderr
        return result

    return run


TRAIN = """
model = Model().to(DEVICE)
train(model, torch.optim.AdamW(model.parameters()), 2)
"""


def test_both_files_are_written_and_the_text_is_printed(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the text has paths from the working folder
    result = run(TRAIN, "--report", "r.json", "--report", "r.html")
    assert result.stdout == ""
    assert result.stderr.startswith("openreg report: fits: device 0 needs ")
    report = Report.from_json((tmp_path / "r.json").read_text())
    assert report.device_type == DEVICE
    assert report.text() == result.stderr
    assert (tmp_path / "r.html").read_text() == report.to_html()


def test_a_model_that_is_local_to_a_function_has_parameters(run, tmp_path):
    program = """
    def main():
        model = Model().to(DEVICE)
        train(model, torch.optim.AdamW(model.parameters()), 2)

    main()
    """
    run(program, "--report", "r.json")
    (device,) = Report.from_json((tmp_path / "r.json").read_text()).ranks[0].devices
    found = {group.name: group.bytes for group in device.groups}
    assert found["parameters"] == 3 * (2 * 256 * 1024 * 4 + 1024 * 4 + 256 * 4)


@pytest.mark.parametrize("uses_cudnn", [True, False])
def test_estimates_of_cudnn_are_told(run, tmp_path, uses_cudnn):
    program = f"""
    torch.backends.cudnn.enabled = {uses_cudnn}
    torch.nn.Conv2d(8, 8, 3, device=DEVICE)(torch.zeros(1, 8, 64, 64, device=DEVICE))
    """
    run(program, "--dry", "--report", "r.json")
    notes = Report.from_json((tmp_path / "r.json").read_text()).ranks[0].notes
    assert ("The workspaces of cuDNN's convolutions are estimates." in notes) == uses_cudnn


def test_an_out_of_memory_error_is_reported_after_its_traceback(run, tmp_path):
    program = """
    model = Model().to(DEVICE)
    train(model, torch.optim.AdamW(model.parameters()), 1, batch=40_000)
    """
    result = run(program, "--memory", "256M", "--report", "r.json", expect=1)
    traceback, _, text = result.stderr.partition("openreg report: ")
    assert "OutOfMemoryError" in traceback
    assert text.startswith("does not fit: device 0 has 256.00 MiB and lacks at least ")
    assert "Allocated when memory ran out:" in text
    (rank,) = Report.from_json((tmp_path / "r.json").read_text()).ranks
    assert rank.is_out_of_memory
    (request,) = rank.devices[0].out_of_memory
    assert sum(group.bytes for group in request.groups) == request.allocated > 0


@pytest.mark.parametrize(
    ("end", "status", "first"),
    [
        ("raise ValueError('three')", 1, "stopped by an error; until then device 0 needs "),
        ("import sys; sys.exit(3)", 3, "fits: "),
    ],
)
def test_other_ends(run, end, status, first):
    result = run(TRAIN + end, "--report", "text", expect=status)
    assert f"openreg report: {first}" in result.stderr


def test_a_program_without_devices_has_no_report(run, tmp_path):
    assert run("print(1)", "--report", "r.json").stderr == ""
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize("file", ["r.txt", "r"])
def test_other_files_are_refused(run, file):
    result = run(TRAIN, "--report", file, expect=2)
    assert f"{file}: expected a file that ends in .json or .html" in result.stderr


RANKS = """
import os
rank = int(os.environ["RANK"])
backend = "nccl" if DEVICE == "cuda" else "occl"
module.set_device(rank)
torch.distributed.init_process_group(backend)
model = torch.nn.parallel.DistributedDataParallel(Model().to(DEVICE), device_ids=[rank])
train(model, torch.optim.AdamW(model.parameters()), 2, batch=512 * (1 + rank))
torch.distributed.destroy_process_group()
"""


def test_ranks_have_one_report(run, tmp_path):
    result = run(RANKS, "--ranks", "2", "--report", "r.json")
    assert result.stderr.count("openreg report: ") == 1
    assert "device 1 of rank 1 needs " in result.stderr  # it has the larger batch
    report = Report.from_json((tmp_path / "r.json").read_text())
    assert [rank.rank for rank in report.ranks] == [0, 1]
    for rank in report.ranks:
        (device,) = rank.devices
        assert device.index == rank.rank
        assert sum(group.bytes for group in device.groups) == device.peak_allocated.bytes
        assert "NCCL" in [each.name for each in device.estimates]


def test_the_rank_that_runs_out_of_memory_comes_first(run, tmp_path):
    program = RANKS.replace("(1 + rank)", "(1 + 200 * (rank == 0))")
    result = run(program, "--ranks", "2", "--memory", "512M", "--report", "r.json", expect=1)
    assert "openreg report: does not fit: device 0 of rank 0 has " in result.stderr
    report = Report.from_json((tmp_path / "r.json").read_text())
    assert report.world == 2
    assert next(rank.rank for rank in report.ranks if rank.is_out_of_memory) == 0


def test_ranks_of_another_launcher_write_a_file_each(run, tmp_path):
    program = "x = torch.ones(1024, device=DEVICE)"
    for rank in ("0", "1"):
        result = run(program, "--report", "r.json", RANK=rank, WORLD_SIZE="2")
        assert ("openreg report: " in result.stderr) == (rank == "0")
    for rank in (0, 1):
        report = Report.from_json((tmp_path / f"r.rank{rank}.json").read_text())
        assert [each.rank for each in report.ranks] == [rank]
