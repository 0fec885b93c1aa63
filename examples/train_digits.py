"""Train a classifier of handwritten digits on every simulated device at once, from one process.

Data-parallel training by hand: each device holds a replica of the network and computes the
gradients of its part of a batch. The program sums the gradients with copies from device to device,
and every replica takes the same step. Nothing in `train` is specific to simulated devices.

Three runs start from one seed. So they have the same weights, batches and schedule:

1. The replicas on the simulated devices, under autocast and with a gradient scaler.
2. The same number of replicas on the CPU, with the same parts of batches and the CPU's own
   autocast. These are nearly the same operators without openreg, so the ratio of the times is the
   cost of the simulation.
3. One network on the CPU, with whole batches in float32. Nothing is split, summed, cast or scaled,
   so this is the accuracy that the first run must reach.

The program ends with an error if the devices recognise less than 97 % of the test images, if they
differ from the third run by more than one point, or if the replicas end with different weights.
"""

import argparse
import copy
import os
import sys
import time
from typing import NamedTuple


def positive(text):
    if int(text) < 1:
        raise ValueError
    return int(text)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--devices", type=int, choices=range(1, 9), metavar="N", help="1 to 8 simulated devices"
    )
    parser.add_argument("--epochs", type=positive, default=15, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), default="float16")
    parser.add_argument(
        "--out", default="openreg-digits.png", metavar="FILE", help="file of the picture"
    )
    return parser.parse_args()


options = parse_arguments()
if options.devices is not None:
    # openreg reads the variable once, on first use. Nothing has used it yet.
    os.environ["OPENREG_DEVICE_COUNT"] = str(options.devices)

import matplotlib  # noqa: E402

matplotlib.use("Agg")

import torch  # noqa: E402
from digits import BATCH, batches, load_images, make_network  # noqa: E402
from matplotlib import pyplot  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from tqdm import tqdm  # noqa: E402

# The simulated devices: `openreg`, or `cuda` under `openreg run`.
accelerator = torch.accelerator.current_accelerator()
assert accelerator is not None, "openreg is not installed"
DEVICE_TYPE = accelerator.type
gpu = torch.get_device_module(DEVICE_TYPE)
LEARNING_RATE = 0.01  # the maximum of the schedule
REQUIRED_ACCURACY = 97.0  # percent
ALLOWED_DIFFERENCE = 1.0  # points; one of the 360 test images is 0.28
MIB = 2**20

# ---- data-parallel training ----------------------------------------------------------------------


def compute_losses(replicas, images, labels, dtype):
    """Return the loss of each replica for its part of a batch. Their sum is the batch average."""
    losses = []
    parts = images.tensor_split(len(replicas)), labels.tensor_split(len(replicas))
    for replica, part, answers in zip(replicas, *parts, strict=True):
        device = replica[0].weight.device
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            scores = replica(part.to(device))
            loss = F.cross_entropy(scores, answers.to(device), reduction="sum", label_smoothing=0.1)
        losses.append(loss / len(images))
    return losses


def sum_gradients(replicas):
    """Replace the gradients of every replica by the sum over all replicas."""
    for parameters in zip(*(replica.parameters() for replica in replicas), strict=True):
        total, *others = (parameter.grad for parameter in parameters)
        for gradient in others:
            total += gradient.to(total.device)  # to the first device
        for gradient in others:
            gradient.copy_(total)  # and back


def train(network, devices, dtype, images, labels, title, observe=lambda moment: None):
    """Train a copy of a network on each device; return the copies, all losses, and seconds.

    After each part of a step, `train` calls `observe` with the name of the part. The first step is
    not timed, because it includes one-time costs.
    """
    replicas = [copy.deepcopy(network).to(device) for device in devices]
    kind = torch.device(devices[0]).type
    # One optimizer and one scaler serve all devices. If a gradient overflows on one device, all
    # replicas skip the step and stay equal.
    optimizer = torch.optim.Adam([p for replica in replicas for p in replica.parameters()])
    scaler = torch.amp.GradScaler(kind, enabled=dtype == torch.float16)
    steps = options.epochs * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps + 1)

    history = []
    observe("weights")
    with tqdm(total=steps, desc=title, unit="step") as progress:
        for batch in batches(len(images), options.epochs, options.seed):
            losses = compute_losses(replicas, images[batch], labels[batch], dtype)
            observe("forward")
            torch.autograd.backward(scaler.scale(losses))  # a thread for each device
            observe("backward")
            sum_gradients(replicas)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            optimizer.zero_grad()
            observe("update")
            history.append(sum(loss.item() for loss in losses))
            if len(history) == 1:
                start = time.perf_counter()
            progress.set_postfix(loss=f"{history[-1]:.3f}", refresh=False)
            progress.update()
    return replicas, history, time.perf_counter() - start


def accuracy(replicas, images, labels):
    """Return the percentage of recognised images. Each replica classifies a part of them."""
    right = 0
    parts = images.tensor_split(len(replicas)), labels.tensor_split(len(replicas))
    for replica, part, answers in zip(replicas, *parts, strict=True):
        device = replica[0].weight.device
        with torch.no_grad():
            right += (replica(part.to(device)).argmax(dim=1) == answers.to(device)).sum().item()
    return 100 * right / len(images)


def are_equal(replicas):
    """Return whether all replicas have the same weights, bit for bit."""
    first, *others = ([p.cpu() for p in replica.parameters()] for replica in replicas)
    return all(torch.equal(p, q) for other in others for p, q in zip(first, other, strict=True))


# ---- what is shown -------------------------------------------------------------------------------


class Run(NamedTuple):
    title: str
    seconds: float
    history: list[float]  # the loss of each step
    accuracy: float  # percent
    replicas_are_equal: bool


class MemoryTrace:
    """The memory of each device's tensors, after each part of the first steps."""

    # The weights, then forward, backward and update of 4 steps. The optimizer allocates its state
    # in the first step. The other steps are alike.
    LENGTH = 1 + 4 * 3

    def __init__(self, devices):
        self.devices = devices
        self.moments = []
        self.allocated_bytes: list[list[int]] = [[] for _ in devices]

    def observe(self, moment):
        if len(self.moments) < self.LENGTH:
            self.moments.append(moment)
            for device, figures in zip(self.devices, self.allocated_bytes, strict=True):
                figures.append(gpu.memory_allocated(device))


def print_runs(runs):
    """Print accuracy, last loss and time of each run. Times are relative to the second run."""
    print(f"\n{'run':<40}{'accuracy':>10}{'loss':>8}{'time':>8}")
    for run in runs:
        ratio = run.seconds / runs[1].seconds
        print(f"{run.title:<40}{run.accuracy:>8.2f} %{run.history[-1]:>8.3f}{ratio:>8.2f}")


def print_memory(devices):
    print(f"\n{'device':<12}{'simulated GPU':<30}{'allocated, peak':>18}{'reserved':>14}")
    for device in devices:
        peak = gpu.max_memory_allocated(device) / MIB
        reserved = gpu.memory_reserved(device) / MIB
        name = gpu.get_device_name(device)
        print(f"{device:<12}{name:<30}{peak:>14.2f} MiB{reserved:>10.2f} MiB")


def draw(runs, trace, path):
    """Draw the loss of every run and the memory of every device, and save the picture."""
    pyplot.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    figure = pyplot.figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, wspace=0.04).flat
    draw_losses(left, runs)
    draw_memory(right, trace)
    figure.savefig(path, dpi=144)


def draw_losses(figure, runs):
    styles = (
        {"color": "#7fc8bd", "linewidth": 5},
        {"color": "#264653", "linewidth": 1.5},
        {"color": "#e76f51", "linewidth": 1.5, "linestyle": (0, (4, 3))},
    )
    figure.suptitle("Training loss, and accuracy on the test images")
    axes = figure.subplots()
    for run, style in zip(runs, styles, strict=True):
        axes.plot(run.history, label=f"{run.title}: {run.accuracy:.1f} %", **style)
    axes.set_xlabel("step")
    axes.set_ylabel("cross entropy")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def draw_memory(figure, trace):
    figure.suptitle("Memory of each device in the first steps, KiB")
    rows = figure.subplots(len(trace.devices), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    colors = pyplot.colormaps["viridis"]
    for index, (axes, device) in enumerate(zip(rows, trace.devices, strict=True)):
        figures = [value / 1024 for value in trace.allocated_bytes[index]]
        color = colors(0.15 + 0.6 * index / len(rows))
        axes.fill_between(range(len(figures)), figures, color=color, alpha=0.25)
        axes.plot(figures, color=color, marker="o", markersize=3)
        axes.text(0.015, 0.95, device, color=color, transform=axes.transAxes, va="top")
    rows[-1].set_xticks(range(len(trace.moments)), trace.moments, rotation=60, ha="right")
    rows[-1].set_ylim(0, 1.25 * max(map(max, trace.allocated_bytes)) / 1024)
    rows[-1].set_xlim(0, len(trace.moments) - 1)


# ---- the three runs ------------------------------------------------------------------------------


def run(title, network, devices, dtype, data, observe=lambda moment: None):
    """Train and test a network; return the results."""
    training_images, training_labels, test_images, test_labels = data
    replicas, history, seconds = train(
        network, devices, dtype, training_images, training_labels, title, observe
    )
    recognised = accuracy(replicas, test_images, test_labels)
    return Run(title, seconds, history, recognised, are_equal(replicas))


def complaint(on_devices, on_cpu):
    """Return a message if the run on the devices is wrong, or None."""
    if not on_devices.replicas_are_equal:
        return "the replicas on the devices are not equal"
    if on_devices.accuracy < REQUIRED_ACCURACY:
        return (
            f"{on_devices.accuracy:.2f} % of the test images were recognised on the devices; "
            f"expected at least {REQUIRED_ACCURACY:.0f} %"
        )
    difference = abs(on_devices.accuracy - on_cpu.accuracy)
    if difference > ALLOWED_DIFFERENCE:
        return (
            f"devices and CPU differ by {difference:.2f} points; "
            f"expected at most {ALLOWED_DIFFERENCE:.0f}"
        )
    return None


def main():
    dtype = getattr(torch, options.dtype)
    data = load_images(options.seed)
    torch.manual_seed(options.seed)
    network = make_network()

    count = gpu.device_count()
    devices = [f"{DEVICE_TYPE}:{index}" for index in range(count)]
    trace = MemoryTrace(devices)
    plural = "" if count == 1 else "s"
    title = f"{count} simulated device{plural}, {options.dtype}"
    on_devices = run(title, network, devices, dtype, data, trace.observe)
    title = f"{count} replica{plural} on the CPU, {options.dtype}"
    replicas_on_cpu = run(title, network, ["cpu"] * count, dtype, data)
    on_cpu = run("one network on the CPU, float32", network, ["cpu"], torch.float32, data)

    runs = on_devices, replicas_on_cpu, on_cpu
    print_runs(runs)
    print_memory(devices)
    draw(runs, trace, options.out)
    print(f"\nThe picture is {options.out}")

    wrong = complaint(on_devices, on_cpu)
    if wrong is not None:
        sys.exit(f"train_digits: {wrong}")


if __name__ == "__main__":
    main()
