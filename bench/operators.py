"""The cost of operators on 1 to 4 M elements, compared with CPU eager, one thread.

Prints one line per operator and mode, with the ratio for each size. The modes are:

- "forward": calls in a loop, and one synchronization after many calls;
- "synchronized": a synchronization after each call, as in a program that reads every result. The
CPU's
  calls are followed by the same synchronization;
- "backward" and "same thread": the operator's backward. For a device's tensors, PyTorch's engine
runs
  it on a thread of that device, as for CUDA, and for CPU tensors on the calling thread. "backward"
  includes the handoff between threads. "same thread" measures with
  ``torch.autograd.set_multithreading_enabled(False)``.

A ratio that misses its goal is measured again with more turns, and the second result counts.
Otherwise noise alone would always make some of so many ratios miss.

`python bench/operators.py add sum --modes synchronized --sizes 16384 65536` measures only these.
"""

import argparse
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from harness import Goal, Table, Work, geometric_mean, one_thread, run, time_ratio
from programs import convolutions, mlp
from torch import Tensor, nn

SMALL = 4096
SIZES = (1, 64, SMALL, 16384, 65536, 131072, 262144, 1 << 20, 1 << 22)
BACKWARD_SIZES = (1, 64, SMALL, 262144, 1 << 22)

Inputs = tuple[Any, ...]


def _values(size: int, low: float = -1, high: float = 1) -> Tensor:
    return torch.linspace(low, high, size)


def one(size: int) -> Inputs:
    """Return one vector between -1 and 1."""
    return (_values(size),)


def positive(size: int) -> Inputs:
    """Return one vector between 0.1 and 0.9."""
    return (_values(size, 0.1, 0.9),)


def two(size: int) -> Inputs:
    """Return two vectors, the second without zeros."""
    return _values(size), _values(size, 0.1, 0.9)


def three(size: int) -> Inputs:
    """Return three vectors, the third without zeros."""
    return (*two(size), _values(size, 0.5, 1.5))


def square(size: int) -> Inputs:
    """Return one matrix."""
    side = math.isqrt(size)
    return (_values(side * side).view(side, side),)


def squares(size: int) -> Inputs:
    """Return two matrices."""
    return square(size) * 2


def images(size: int) -> Inputs:
    """Return a batch of images with four channels, or fewer for fewer than 4 elements."""
    channels = min(4, size)
    side = math.isqrt(size // channels)
    return (_values(channels * side * side).view(1, channels, side, side),)


def rows(size: int) -> Inputs:
    """Return a matrix with rows of at most 64 elements."""
    width = min(64, size)
    return (_values(size).view(-1, width),)


def indices(size: int) -> Inputs:
    """Return a matrix, and an index for every row."""
    (matrix,) = rows(size)
    return matrix, torch.arange(len(matrix)).flip(0)


def placing(size: int) -> Inputs:
    """Return a matrix, an index for every row, and the rows to write."""
    return *indices(size), *rows(size)


def gathering(size: int) -> Inputs:
    """Return a vector, and an index for every element."""
    return _values(size), torch.arange(size).flip(0)


def scattering(size: int) -> Inputs:
    """Return a vector, an index for every element, and the elements to add."""
    return *gathering(size), _values(size)


def masked(size: int) -> Inputs:
    """Return a vector, and a mask of half of it."""
    return _values(size), torch.arange(size) % 2 == 0


def classes(size: int) -> Inputs:
    """Return logits and the class of each row."""
    (logits,) = rows(size)
    return logits, torch.arange(len(logits)) % logits.size(1)


def linear(size: int) -> Inputs:
    """Return rows of at most 64 elements, and weights."""
    side = max(1, min(64, size) // 2)
    return _values(size).view(-1, min(64, size)), _values(side * min(64, size)).view(side, -1)


def kernel(size: int) -> Inputs:
    """Return images, and the weights of a convolution with a 3 x 3 kernel."""
    (image,) = images(size)
    channels = image.size(1)
    return image, _values(4 * channels * 9).view(4, channels, 3, 3)


def normalised(size: int) -> Inputs:
    """Return rows, and their weights and biases."""
    (matrix,) = rows(size)
    return matrix, torch.ones(matrix.size(1)), torch.zeros(matrix.size(1))


def heads(size: int) -> Inputs:
    """Return queries, keys and values of four heads of size at most 16, over at most 256 steps."""
    width = min(16, size)
    steps = max(1, min(256, size // (4 * width)))
    batch = max(1, size // (4 * width * steps))
    return (_values(batch * 4 * steps * width).view(batch, 4, steps, width),) * 3


def _scatter_add(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return x.scatter_add(0, index, source)


def _batch_norm(x: Tensor) -> Tensor:
    channels = x.size(1)
    return F.batch_norm(
        x, torch.zeros(channels, device=x.device), torch.ones(channels, device=x.device)
    )


# name: the inputs, the operator, and whether backward is measured. It is if the operator has a
# derivative and is not in place.
OPERATORS: dict[str, tuple[Callable[[int], Inputs], Callable[..., Any], bool]] = {
    "add": (two, torch.add, True),
    "add_": (two, lambda a, b: a.add_(b), False),
    "add scalar": (one, lambda a: a + 1.5, True),
    "sub": (two, torch.sub, True),
    "mul": (two, torch.mul, True),
    "mul_ scalar": (one, lambda a: a.mul_(0.999), False),
    "div": (two, torch.div, True),
    "pow": (positive, lambda a: a**2, True),
    "addcmul": (three, torch.addcmul, True),
    "lerp": (two, lambda a, b: torch.lerp(a, b, 0.3), True),
    "maximum": (two, torch.maximum, True),
    "clamp": (one, lambda a: a.clamp(-0.5, 0.5), True),
    "neg": (one, torch.neg, True),
    "abs": (one, torch.abs, True),
    "exp": (one, torch.exp, True),
    "log": (positive, torch.log, True),
    "sqrt": (positive, torch.sqrt, True),
    "rsqrt": (positive, torch.rsqrt, True),
    "sin": (one, torch.sin, True),
    "tanh": (one, torch.tanh, True),
    "sigmoid": (one, torch.sigmoid, True),
    "erf": (one, torch.erf, True),
    "relu": (one, torch.relu, True),
    "gelu": (one, F.gelu, True),
    "silu": (one, F.silu, True),
    "leaky_relu": (one, F.leaky_relu, True),
    "softplus": (one, F.softplus, True),
    "hardswish": (one, F.hardswish, True),
    "eq": (two, torch.eq, False),
    "lt scalar": (one, lambda a: a < 0.5, False),
    "logical_not": (masked, lambda a, mask: mask.logical_not(), False),
    "where": (masked, lambda a, mask: torch.where(mask, a, 0.0), True),
    "masked_fill": (masked, lambda a, mask: a.masked_fill(mask, 0.0), True),
    "masked_select": (masked, torch.masked_select, False),
    "isnan": (one, torch.isnan, False),
    "sum": (one, torch.sum, True),
    "sum of rows": (rows, lambda a: a.sum(1), True),
    "mean": (one, torch.mean, True),
    "var": (rows, lambda a: a.var(1, correction=0), True),
    "norm": (one, torch.linalg.vector_norm, True),
    "amax": (rows, lambda a: a.amax(1), True),
    "max of rows": (rows, lambda a: a.max(1), False),
    "argmax": (rows, lambda a: a.argmax(1), False),
    "cumsum": (rows, lambda a: a.cumsum(1), True),
    "sort": (rows, lambda a: a.sort(1)[0], True),
    "topk": (rows, lambda a: a.topk(1)[0], True),
    "mm": (squares, torch.mm, True),
    "bmm": (squares, lambda a, b: torch.bmm(a[None], b[None]), True),
    "linear": (linear, F.linear, True),
    "conv2d": (kernel, lambda x, w: F.conv2d(x, w, padding=1), True),
    "max_pool2d": (images, lambda a: F.max_pool2d(a, 3, 1, 1), True),
    "avg_pool2d": (images, lambda a: F.avg_pool2d(a, 3, 1, 1), True),
    "interpolate": (images, lambda a: F.interpolate(a, scale_factor=2.0), True),
    "pad": (images, lambda a: F.pad(a, (1, 1, 1, 1)), True),
    "batch_norm": (images, _batch_norm, True),
    "layer_norm": (normalised, lambda x, w, b: F.layer_norm(x, w.shape, w, b), True),
    "softmax": (rows, lambda a: a.softmax(1), True),
    "log_softmax": (rows, lambda a: a.log_softmax(1), True),
    "cross_entropy": (classes, F.cross_entropy, True),
    "mse_loss": (two, F.mse_loss, True),
    "binary_cross_entropy": (
        lambda size: positive(size) * 2,
        lambda a, b: F.binary_cross_entropy_with_logits(a, b.detach()),
        True,
    ),
    "embedding": (indices, lambda w, i: F.embedding(i, w), True),
    "index": (indices, lambda a, i: a[i], True),
    "index_select": (indices, lambda a, i: a.index_select(0, i), True),
    "index_put_": (placing, lambda a, i, b: a.index_put_((i,), b), False),
    "gather": (gathering, lambda a, i: a.gather(0, i), True),
    "scatter_add": (scattering, _scatter_add, True),
    "cat": (two, lambda a, b: torch.cat((a, b)), True),
    "stack": (two, lambda a, b: torch.stack((a, b)), True),
    "chunk": (rows, lambda a: a.chunk(2)[0], False),
    "transpose and copy": (square, lambda a: a.t().contiguous(), True),
    "view": (one, lambda a: a.view(-1), False),
    "to float64": (one, lambda a: a.double(), True),
    "clone": (one, torch.clone, True),
    "zeros_like": (one, torch.zeros_like, False),
    "arange": (one, lambda a: torch.arange(len(a), device=a.device), False),
    "attention": (heads, F.scaled_dot_product_attention, True),
    "foreach add": (two, lambda a, b: torch._foreach_add([a, b], [b, a]), False),
    "fft": (one, lambda a: torch.fft.rfft(a), False),
}


# ---- measuring ----------------------------------------------------------------------------------


def _inputs(make: Callable[[int], Inputs], size: int, device: str, gradients: bool) -> list[Tensor]:
    return [
        x.to(device).clone().requires_grad_(gradients and x.is_floating_point()) for x in make(size)
    ]


def _forward(name: str, size: int, device: str) -> Work:
    make, function, _ = OPERATORS[name]
    inputs = _inputs(make, size, device, gradients=False)
    return lambda: function(*inputs)


def _synchronized(name: str, size: int, device: str) -> Work:
    call, synchronize = _forward(name, size, device), torch.openreg.synchronize

    def work() -> None:
        call()
        synchronize()

    return work


def _backward(name: str, size: int, device: str) -> Work:
    make, function, _ = OPERATORS[name]
    inputs = _inputs(make, size, device, gradients=True)
    output = function(*inputs)
    wanted = [x for x in inputs if x.requires_grad]
    gradient = torch.ones_like(output)
    return lambda: torch.autograd.grad(
        output, wanted, gradient, retain_graph=True, allow_unused=True
    )


class Mode(NamedTuple):
    """A way to measure an operator: the work, the sizes, and the goals.

    The goals are for each ratio, for the geometric mean of all ratios, and for that of sizes up to
    SMALL.
    """

    make: Callable[[str, int, str], Work]
    sizes: tuple[int, ...]
    each: Goal
    mean: Goal = Goal(at_most=1.0)
    small_mean: Goal = Goal(at_most=1.08)
    is_backward: bool = False
    with_engine_threads: bool = True


MODES = {
    "forward": Mode(_forward, SIZES, Goal(at_most=1.15)),
    "synchronized": Mode(_synchronized, SIZES, Goal(at_most=1.15), Goal(), Goal()),
    # PyTorch runs it on a thread of the device, as for CUDA. Shown without a goal.
    "backward": Mode(_backward, BACKWARD_SIZES, Goal(), Goal(), Goal(), is_backward=True),
    "same thread": Mode(
        _backward, BACKWARD_SIZES, Goal(at_most=1.3), is_backward=True, with_engine_threads=False
    ),
}


def _ratio(mode: Mode, name: str, size: int, options: argparse.Namespace) -> float:
    work, reference = mode.make(name, size, "openreg"), mode.make(name, size, "cpu")

    def measured(turns: int) -> float:
        enough = turns * options.seconds * 4
        return time_ratio(
            work, reference, turns=turns, seconds=options.seconds, enough_seconds=enough
        ).median

    ratio = measured(options.turns)
    return ratio if mode.each.is_met(ratio) else measured(3 * options.turns)


def _rows(options: argparse.Namespace) -> Iterator[tuple[str, str, dict[int, float]]]:
    """Yield operator, mode, and the ratio at each size."""
    for name in options.operators or OPERATORS:
        for key in options.modes:
            mode = MODES[key]
            if mode.is_backward and not OPERATORS[name][2]:
                continue
            with torch.autograd.set_multithreading_enabled(mode.with_engine_threads):
                sizes = [size for size in mode.sizes if size in options.sizes]
                yield name, key, {size: _ratio(mode, name, size, options) for size in sizes}


Ratios = dict[str, dict[int, list[float]]]


def _line(name: str, key: str, ratios: dict[int, float], sizes: tuple[int, ...]) -> str:
    cells = (f"{ratios[size]:9.3f}" if size in ratios else 9 * " " for size in sizes)
    return f"{name:<22} {key:<12}" + "".join(cells)


def _measure(options: argparse.Namespace) -> Ratios:
    """Print a line per operator and mode, and return the ratios by mode and size."""
    ratios: Ratios = defaultdict(lambda: defaultdict(list))
    print("Operators: time on openreg / time of CPU eager, one thread")
    print(f"{'operator':<22} {'':<12}" + "".join(f"{size:>9}" for size in options.sizes))
    for name, key, of_size in _rows(options):
        print(_line(name, key, of_size, options.sizes), flush=True)
        for size, ratio in of_size.items():
            ratios[key][size].append(ratio)
            if not MODES[key].is_backward:
                MODES[key].each.check(f"{name}, {size}, {key}", ratio)
    for key, of_sizes in ratios.items():
        means = {size: geometric_mean(values) for size, values in of_sizes.items()}
        print(_line("geometric mean", key, means, options.sizes))
    return ratios


def _summary(ratios: Ratios) -> None:
    """Print the summary of each mode and its goals."""
    for key, of_sizes in ratios.items():
        mode = MODES[key]
        every = list(itertools.chain.from_iterable(of_sizes.values()))
        small = list(itertools.chain.from_iterable(r for s, r in of_sizes.items() if s <= SMALL))
        above = sum(not mode.each.is_met(ratio) for ratio in every)
        figures = [("geometric mean", geometric_mean(every), mode.mean)]
        if small:
            words = f"geometric mean up to {SMALL} elements"
            figures.append((words, geometric_mean(small), mode.small_mean))
        if mode.is_backward:  # in forward modes, each row was checked
            figures.append(("the worst", max(every), mode.each))
        missed = f", {above} above {mode.each.at_most}" if str(mode.each) else ""
        print(f"\n{key}: {len(every)} ratios{missed}")
        for words, value, goal in figures:
            mark = goal.check(f"{key}, {words}", value)
            print(f"  {words}: {value:.3f} {f'goal {goal}' if str(goal) else ''}{mark}")


# ---- whole steps --------------------------------------------------------------------------------


class _Block(nn.Module):
    """A transformer block: attention with 4 heads and an MLP, each with a norm and a residual."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.norms[0](x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class _Last(nn.Module):
    """An LSTM and a linear classifier of its last output."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


STEPS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "MLP 256-1024-1024-10": (mlp, (64, 256)),
    "ConvNet, 2 convolutions": (convolutions, (32, 3, 32, 32)),
    "transformer block": (_Block, (8, 64, 128)),
    "LSTM, 20 steps": (_Last, (32, 20, 64)),
}


def _step(name: str, device: str) -> Work:
    make, shape = STEPS[name]
    torch.manual_seed(0)
    model, x = make().to(device), torch.randn(shape).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def _steps() -> None:
    table = Table("Whole steps: forward, backward and SGD; time on openreg / on the CPU", "model")
    for name in STEPS:
        table.measure(name, _step(name, "openreg"), _step(name, "cpu"), seconds=0.06, at_most=1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "operators",
        nargs="*",
        metavar="OPERATOR",
        help="operators to measure; without any, all operators and whole training steps",
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--sizes", nargs="+", type=int, choices=SIZES, default=SIZES)
    parser.add_argument("--turns", type=int, default=11, help="pairs of turns per ratio")
    parser.add_argument("--seconds", type=float, default=0.004, help="length of a turn")
    parser.add_argument(
        "--list", action="store_true", help="print the names of the operators and exit"
    )
    options = parser.parse_args()
    if unknown := set(options.operators) - set(OPERATORS):
        parser.error(f"unknown operators: {', '.join(sorted(unknown))}; see --list")
    return options


def main() -> None:
    """Print the table, its summary, and the training steps."""
    options = _options()
    if options.list:
        print("\n".join(OPERATORS))
        return
    one_thread()
    _summary(_measure(options))
    if not options.operators:
        _steps()


if __name__ == "__main__":
    run(main)
