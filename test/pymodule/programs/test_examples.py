"""The examples: their functions, their output, and the parts that the documentation shows."""

import copy
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from modes import openreg_only

from device import DEVICE

pytestmark = openreg_only("the examples, which say openreg")

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def run(own_group):
    """Run an example as a program, in a folder."""

    def run(script, *arguments, folder):
        return subprocess.run(
            [sys.executable, EXAMPLES / script, *arguments],
            cwd=folder,
            env=own_group(),
            capture_output=True,
            text=True,
        )

    return run


# ---- train_digits.py, run ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo(run, tmp_path_factory):
    """Return the result of a short training on three devices, and the folder in which it ran."""
    folder = tmp_path_factory.mktemp("demo")
    return run("train_digits.py", "--devices", "3", "--epochs", "6", folder=folder), folder


def test_training_succeeds(demo):
    result, _ = demo
    assert result.returncode == 0, result.stderr


def test_training_reports_three_runs_that_agree(demo):
    result, _ = demo
    rows = re.findall(r"^(\S.*\S) +([\d.]+) % +([\d.]+) +([\d.]+)$", result.stdout, re.MULTILINE)
    assert [row[0] for row in rows] == [
        "3 simulated devices, float16",
        "3 replicas on the CPU, float16",
        "one network on the CPU, float32",
    ]
    accuracies = [float(row[1]) for row in rows]
    assert min(accuracies) >= 97
    assert abs(accuracies[0] - accuracies[2]) <= 1
    assert rows[1][3] == "1.00"  # the other times are relative to this one


def test_training_uses_every_device(demo):
    result, _ = demo
    row = r"^openreg:(\d) +NVIDIA .*? +([\d.]+) MiB +([\d.]+) MiB$"
    table = re.findall(row, result.stdout, re.MULTILINE)
    assert [index for index, _, _ in table] == ["0", "1", "2"]
    for _, peak, reserved in table:
        assert 0 < float(peak) <= float(reserved)


def test_training_shows_its_progress(demo):
    result, _ = demo
    assert re.search(r"3 simulated devices, float16: 100%", result.stderr)


def test_training_leaves_a_picture(demo):
    _, folder = demo
    picture = (folder / "openreg-digits.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(picture) > 10_000  # a blank page of this size takes less


def test_training_that_reaches_too_little_fails_with_a_sentence(run, tmp_path):
    arguments = ["--devices", "1", "--epochs", "1", "--dtype", "float32", "--out", "small.png"]
    result = run("train_digits.py", *arguments, folder=tmp_path)
    assert result.returncode == 1
    sentence = (
        r"train_digits: [\d.]+ % of the test images were recognised on the devices; "
        r"expected at least 97 %"
    )
    assert re.fullmatch(sentence, result.stderr.splitlines()[-1])
    assert (tmp_path / "small.png").exists()


@pytest.mark.parametrize("arguments", ["--devices 0", "--devices 9", "--epochs 0", "--dtype int8"])
def test_training_refuses_bad_arguments(run, tmp_path, arguments):
    result = run("train_digits.py", *arguments.split(), folder=tmp_path)
    assert result.returncode == 2
    assert f"error: argument {arguments.split()[0]}: " in result.stderr


# ---- train_digits.py, its functions --------------------------------------------------------------


@pytest.fixture
def example(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train_digits.py"])
    monkeypatch.syspath_prepend(EXAMPLES)
    return runpy.run_path(str(EXAMPLES / "train_digits.py"))


def test_summed_gradients_are_those_of_the_whole_batch_on_one_device(example):
    torch.manual_seed(0)
    network = example["make_network"]()
    images, labels = torch.rand(9, 1, 8, 8), torch.arange(9)
    replicas = [copy.deepcopy(network).to(device) for device in (f"{DEVICE}:0", f"{DEVICE}:1")]

    losses = example["compute_losses"](replicas, images, labels, torch.float32)
    torch.autograd.backward(losses)
    example["sum_gradients"](replicas)

    loss = torch.nn.functional.cross_entropy(network(images), labels, label_smoothing=0.1)
    loss.backward()
    assert sum(loss.item() for loss in losses) == pytest.approx(loss.item())
    for expected, *parameters in zip(
        network.parameters(), *(replica.parameters() for replica in replicas), strict=True
    ):
        for parameter in parameters:
            torch.testing.assert_close(parameter.grad.cpu(), expected.grad)


def test_replicas_are_equal_only_to_the_last_bit(example):
    network = example["make_network"]()
    replicas = [copy.deepcopy(network).to(device) for device in (f"{DEVICE}:0", f"{DEVICE}:1")]
    assert example["are_equal"](replicas)
    with torch.no_grad():
        bias = replicas[1][0].bias
        bias[0] = torch.nextafter(bias[0], bias.new_tensor(2.0))
    assert not example["are_equal"](replicas)


def test_accuracy_counts_every_image_once(example):
    class Echo(torch.nn.Sequential):
        """Returns the number with which an image is filled."""

        def forward(self, images):
            return torch.nn.functional.one_hot(images[:, 0, 0, 0].long(), 10)

    replicas = [Echo(torch.nn.Linear(1, 1)).to(device) for device in (f"{DEVICE}:0", f"{DEVICE}:1")]
    images = torch.arange(5.0).view(5, 1, 1, 1)
    assert example["accuracy"](replicas, images, torch.tensor([0, 1, 9, 3, 9])) == 60


@pytest.mark.parametrize(
    "accuracy, equal, sentence",
    [
        (98.0, True, None),
        (98.0, False, "the replicas on the devices are not equal"),
        (
            96.5,
            True,
            "96.50 % of the test images were recognised on the devices; expected at least 97 %",
        ),
        (99.5, True, "devices and CPU differ by 1.50 points; expected at most 1"),
    ],
)
def test_problems_are_reported(example, accuracy, equal, sentence):
    on_devices = example["Run"]("devices", 1.0, [0.5], accuracy, equal)
    on_cpu = example["Run"]("CPU", 1.0, [0.5], 98.0, True)
    assert example["complaint"](on_devices, on_cpu) == sentence


def test_seed_decides_the_order_of_batches(example):
    def order(seed):
        return torch.stack(list(example["batches"](150, 2, seed)))

    assert order(1).shape == (4, 64)
    assert torch.equal(order(1), order(1))
    assert not torch.equal(order(1), order(2))


# ---- the examples in the documentation -----------------------------------------------------------


def test_the_tour_page_shows_the_tour_and_what_it_prints(run, tmp_path):
    tour = run("tour.py", folder=tmp_path)
    assert tour.returncode == 0, tour.stderr
    page = (ROOT / "docs" / "tour.md").read_text()
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.M | re.S)
    assert blocks[0] == ("python", (EXAMPLES / "tour.py").read_text())
    assert blocks[1] == ("text", tour.stdout)


def test_the_page_on_development_names_every_target_of_the_makefile():
    targets = re.findall(r"^([\w-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    page = (ROOT / "docs" / "development.md").read_text()
    assert {"test", "conformance-part"} <= set(targets)
    assert [target for target in targets if f"make {target}" not in page] == []


def test_readme_is_one_screen():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
