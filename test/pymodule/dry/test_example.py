"""examples/train_language_model.py, which docs/dry-run.md shows: with kernels and in dry runs."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from dry_run import OPENREG, own_devices

from device import DEVICE

pytestmark = pytest.mark.own_processes

EXAMPLE = Path(__file__).parents[3] / "examples" / "train_language_model.py"
SMALL = ("--layers=2", "--width=64", "--heads=4", "--inner=128", "--words=100", "--length=32")
MEDIUM = ("--layers=8", "--width=1024", "--heads=8", "--inner=4096", "--words=32000", "--batch=2")


def train(folder, *options, sizes, **variables):
    """Run the example on two ranks; return its report and the result."""
    file = folder / "report.json"
    result = subprocess.run(
        [*OPENREG, "run", "--ranks=2", f"--report={file}", *options, EXAMPLE, *sizes],
        env={
            **os.environ,
            "OPENREG_DEVICE_TYPE": DEVICE,
            "OPENREG_MEMORY_PLANS": "builtin",
            "OPENREG_GPU_OVERHEAD": "1",
            **own_devices(),
            **variables,
        },
        capture_output=True,
        text=True,
    )
    return json.loads(file.read_text()), result


def peaks_of(report):
    device = report["ranks"][0]["devices"][0]
    return [device[name]["bytes"] for name in ("peak_allocated", "peak_reserved")]


def test_dry_runs_have_the_peaks_of_a_run(tmp_path):
    real, result = train(tmp_path, sizes=SMALL)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("step 1: loss 4.")
    for options in (["--dry"], ["--dry", "--represent=0"]):
        dry, result = train(tmp_path, *options, sizes=SMALL, OPENREG_DRY_KNOWN_BYTES="0")
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith("step 1: loss 0.000")
        assert peaks_of(dry) == peaks_of(real)


def test_a_job_that_does_not_fit_fits_with_checkpoints(tmp_path):
    options = ("--dry", "--represent=0", "--memory=12G")
    report, result = train(tmp_path, *options, sizes=MEDIUM)
    assert result.returncode == 1
    assert report["ranks"][0]["is_out_of_memory"]
    groups = report["ranks"][0]["devices"][0]["out_of_memory"][-1]["groups"]
    assert max(groups, key=lambda group: group["bytes"])["name"] == "activations"
    report, result = train(tmp_path, *options, sizes=(*MEDIUM, "--checkpoint"))
    assert result.returncode == 0, result.stderr
    assert not report["ranks"][0]["is_out_of_memory"]
