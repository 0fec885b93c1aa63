"""The example with one process per device, run as a program."""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from device import DEVICE

ROOT = Path(__file__).parents[3]
EPOCHS = 6

pytestmark = pytest.mark.own_processes


@pytest.fixture(scope="module")
def plain_accuracy():
    """Return the accuracy of one network on the CPU with the same weights and batches."""
    sys.path.insert(0, str(ROOT / "examples"))
    from digits import BATCH, batches, load_images, make_network

    images, labels, test_images, test_labels = load_images(seed=0)
    torch.manual_seed(0)
    network = make_network()
    optimizer = torch.optim.Adam(network.parameters())
    steps = EPOCHS * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps + 1)
    for batch in batches(len(images), EPOCHS, seed=0):
        F.cross_entropy(network(images[batch]), labels[batch], label_smoothing=0.1).backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    right = (network(test_images).argmax(dim=1) == test_labels).sum().item()
    return 100 * right / len(test_images)


@pytest.mark.parametrize(
    ("words", "title"), [([], "DistributedDataParallel"), (["--fsdp"], "FSDP2")]
)
def test_ranks_train_what_one_network_learns(own_group, plain_accuracy, words, title):
    openreg = Path(sysconfig.get_path("scripts"), "openreg")
    program = ROOT / "examples" / "train_digits_ddp.py"
    result = subprocess.run(
        [openreg, "run", "--ranks", "3", program, "--epochs", str(EPOCHS), *words],
        env=own_group() | {"OPENREG_DEVICE_TYPE": DEVICE},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    first, _, *rows = result.stdout.splitlines()
    reached = re.fullmatch(rf"3 ranks, {title}: ([\d.]+) % of the test images, loss .*", first)
    assert abs(float(reached[1]) - plain_accuracy) <= 1
    parameters = []
    for rank, row in enumerate(rows[1:]):
        number, device, *_, held, peak, unit = row.split()
        assert (number, device, unit) == (str(rank), f"{DEVICE}:{rank}", "KiB")
        assert int(peak) > 0
        parameters.append(int(held))
    total = 18346
    assert len(parameters) == 3
    assert parameters == [total] * 3 if not words else sum(parameters) == total
