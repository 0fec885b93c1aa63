"""Train a classifier of handwritten digits in float32, in float16 and in bfloat16, on one device.

The method is the usual one for CUDA. Under autocast, each operator runs in the precision that suits
it. The weights, their gradients and the optimizer stay in float32. In float16, small gradients
would become 0, so a gradient scaler multiplies the loss. It finds the scale by itself: it doubles
the scale after some good steps. When gradients overflow, it skips the step and halves the scale.
bfloat16 has the range of float32 and needs no scaler.

The three runs start from the same weights and see the same batches. The program ends with an error
if a run in lower precision recognises fewer test images than float32, by more than half a point.
"""

import argparse
import copy
import math
import sys
from typing import NamedTuple

import matplotlib
import torch
from digits import BATCH, batches, load_images, make_network
from torch.nn import functional as F
from tqdm import tqdm

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

LEARNING_RATE = 0.01  # the maximum of the schedule
GROWTH_INTERVAL = 25  # steps; the default, 2000, is longer than this training
ALLOWED_LOSS = 0.5  # points; one of the 360 test images is 0.28


class Run(NamedTuple):
    dtype: torch.dtype
    losses: list[float]  # of each step
    scales: list[float]  # during each step; empty without a scaler
    skipped: list[int]  # steps whose gradients overflowed
    accuracy: float  # percent

    @property
    def title(self):
        return str(self.dtype).removeprefix("torch.")


def positive(text):
    if int(text) < 1:
        raise ValueError
    return int(text)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=positive, default=15, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument(
        "--out", default="openreg-precision.png", metavar="FILE", help="file of the picture"
    )
    return parser.parse_args()


# ---- training ------------------------------------------------------------------------------------


def run(network, dtype, data, options):
    """Train and test a copy of a network in one precision; return the results."""
    images, labels, test_images, test_labels = (tensor.to("openreg") for tensor in data)
    network = copy.deepcopy(network).to("openreg")
    optimizer = torch.optim.Adam(network.parameters())
    scaler = torch.amp.GradScaler(
        "openreg", growth_interval=GROWTH_INTERVAL, enabled=dtype == torch.float16
    )
    autocast = torch.autocast("openreg", dtype, enabled=dtype != torch.float32)
    steps = options.epochs * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps + 1)

    result = Run(dtype, [], [], [], math.nan)
    order = batches(len(images), options.epochs, options.seed)
    for step, batch in enumerate(tqdm(order, desc=result.title, total=steps, unit="step")):
        batch = batch.to("openreg")
        with autocast:
            loss = F.cross_entropy(network(images[batch]), labels[batch], label_smoothing=0.1)
        scaler.scale(loss).backward()
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        optimizer.zero_grad()
        result.losses.append(loss.item())
        if scaler.is_enabled():
            result.scales.append(scale)
            if scaler.get_scale() < scale:
                result.skipped.append(step)
    with torch.no_grad(), autocast:
        right = (network(test_images).argmax(dim=1) == test_labels).sum().item()
    return result._replace(accuracy=100 * right / len(test_images))


def complaint(runs):
    """Return a message if a run is wrong, or None. The first run must be the one in float32."""
    expected = runs[0].accuracy - ALLOWED_LOSS
    for other in runs[1:]:
        if other.accuracy < expected:
            return (
                f"{other.accuracy:.2f} % of the test images were recognised in {other.title}; "
                f"expected at least {expected:.2f} %, half a point less than in float32"
            )
    return None


# ---- what is shown -------------------------------------------------------------------------------


def print_runs(runs):
    print(f"\n{'precision':<12}{'accuracy':>10}{'loss':>8}{'last scale':>12}{'skipped':>9}")
    for each in runs:
        scale = f"2^{math.log2(each.scales[-1]):.0f}" if each.scales else "-"
        skipped = len(each.skipped) if each.scales else "-"
        print(
            f"{each.title:<12}{each.accuracy:>8.2f} %{each.losses[-1]:>8.3f}{scale:>12}{skipped:>9}"
        )


def draw(runs, path):
    """Draw the losses and the scales of the runs, and save the picture."""
    pyplot.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 5), layout="constrained")
    styles = (
        {"color": "#7fc8bd", "linewidth": 5},
        {"color": "#264653", "linewidth": 1.5},
        {"color": "#e76f51", "linewidth": 1.5, "linestyle": (0, (4, 3))},
    )
    left.set_title("Training loss, and accuracy on the test images")
    for each, style in zip(runs, styles, strict=True):
        left.plot(each.losses, label=f"{each.title}: {each.accuracy:.1f} %", **style)
    left.set_xlabel("step")
    left.set_ylabel("cross entropy")
    left.set_ylim(bottom=0)
    left.legend(frameon=False)

    right.set_title("Scale of the loss in float16, and steps that were skipped")
    for each, style in zip(runs, styles, strict=True):
        if each.scales:
            right.step(range(len(each.scales)), each.scales, where="post", **style)
            heights = [each.scales[step] for step in each.skipped]
            right.plot(each.skipped, heights, "x", color="#e76f51", label="overflow: skipped")
    right.set_xlabel("step")
    right.set_yscale("log", base=2)
    right.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=144)


def main():
    options = parse_arguments()
    data = load_images(options.seed)
    torch.manual_seed(options.seed)
    network = make_network()
    dtypes = torch.float32, torch.float16, torch.bfloat16
    runs = [run(network, dtype, data, options) for dtype in dtypes]
    print_runs(runs)
    draw(runs, options.out)
    print(f"\nThe picture is {options.out}")
    wrong = complaint(runs)
    if wrong is not None:
        sys.exit(f"train_mixed_precision: {wrong}")


if __name__ == "__main__":
    main()
