"""`openreg fit`: the requests of a recorded run, made again with the memory of other GPUs."""

import json
import subprocess

import pytest
from reported_programs import FINISH, OPENREG, PRELUDE
from torch_openreg.dry.report import output, recording
from torch_openreg.dry.report.model import Report

pytestmark = pytest.mark.own_processes

# Memory in pieces, an emptied cache, and a second stream. Then more than an A100 with 40 GB has.
PROGRAM = (
    PRELUDE
    + """
pieces = [torch.empty(n << 20, dtype=torch.uint8, device=DEVICE) for n in (3, 30, 300, 7, 70)]
del pieces[1:4:2]
memory.empty_cache()
other = module.Stream()
with module.stream(other):
    pieces.append(torch.empty(50 << 20, dtype=torch.uint8, device=DEVICE))
pieces += [torch.empty(9 << 20, dtype=torch.uint8, device=DEVICE) for _ in range(3)]
large = torch.empty(45 << 30, dtype=torch.uint8, device=DEVICE)
"""
    + FINISH
)


@pytest.fixture
def recorded(python):
    """Return the report of the program."""
    printed = python(PROGRAM, OPENREG_DEVICE_MEMORY="100G").stdout
    return Report.from_json(printed.splitlines()[-1])


def fit(own_group, file, *words, expect=0):
    result = subprocess.run(
        [*OPENREG, "fit", str(file), *words], env=own_group(), capture_output=True, text=True
    )
    assert result.returncode == expect, result.stdout + result.stderr
    return result


def test_the_recorded_requests_reserve_the_same_memory(own_group, recorded, tmp_path):
    file = tmp_path / "r.json"
    file.write_text(recorded.to_json())
    (device,) = recorded.ranks[0].devices
    gpus = json.loads(fit(own_group, file, "--gpus", "h100,a100", "--json").stdout)["gpus"]
    assert gpus["h100"]["peak_reserved"] == device.peak_reserved.bytes
    assert gpus["a100"]["peak_reserved"] is None
    # The cache is released before a request fails.
    least = gpus["h100"]["smallest"]
    assert device.peak_allocated.bytes <= least <= device.peak_reserved.bytes


def test_the_table_says_what_fits(own_group, recorded, tmp_path):
    file = tmp_path / "r.json"
    file.write_text(recorded.to_json())
    lines = fit(own_group, file, "--gpus", "a100,h100").stdout.splitlines()
    assert lines[1].split()[0] == "a100" and lines[1].endswith("does not fit")
    assert lines[2].split()[0] == "h100" and " fits " in lines[2]
    assert fit(own_group, file, "--gpus", "a100", expect=1).stderr == ""
    assert "expected" in fit(own_group, file, "--gpus", "abacus", expect=1).stderr
    assert "no GPU" in fit(own_group, file, "--gpus", "24x1536", expect=1).stderr


def test_many_requests_are_in_a_side_file(own_group, recorded, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "_MOST_IN_REPORT", 0)
    file = tmp_path / "r.json"
    output._write_json(str(file), recorded)
    assert Report.from_json(file.read_text()).ranks[0].devices[0].requests == ""
    assert " fits " in fit(own_group, file, "--gpus", "h100").stdout
    (tmp_path / "r.requests.zip").unlink()
    assert "No such file" in fit(own_group, file, expect=2).stderr


@pytest.mark.parametrize("text", ["{}", "no json"])
def test_other_files_are_refused(own_group, tmp_path, text):
    file = tmp_path / "r.json"
    file.write_text(text)
    assert "openreg: " in fit(own_group, file, expect=2).stderr


def test_requests_are_unpacked_as_they_were():
    requests = [recording.Request(0, 3, 1 << 40), recording.Request(1, 0, 0)]
    assert list(recording.unpack(recording.pack(requests))) == requests
