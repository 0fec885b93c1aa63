"""The cost of mixed precision: calls that need no cast, unscaling, and steps in float16."""

from collections.abc import Callable

import torch
from harness import Ratio, Table, Work, one_thread, run, time_ratio
from programs import batch, mlp
from torch.nn import functional as F

# Calls per autocast region, so that entering and leaving it does not count.
CALLS = 1000
ELEMENTS = 16 << 20

Call = Callable[[torch.Tensor], object]

# Operators of each policy and two without a policy, on arguments that need no cast. The operators
# in CPU_TOO have the same policy in CPU autocast.
CPU_TOO = {"mm", "matmul", "addmm", "linear", "mse_loss"}
CALLS_WITHOUT_CAST: dict[str, tuple[torch.dtype, Call]] = {
    "mm": (torch.float16, lambda a: torch.mm(a, a)),
    "matmul": (torch.float16, lambda a: torch.matmul(a, a)),
    "addmm": (torch.float16, lambda a: torch.addmm(a, a, a)),
    "linear": (torch.float16, lambda a: F.linear(a, a)),
    "log": (torch.float32, torch.log),
    "mse_loss": (torch.float32, lambda a: F.mse_loss(a, a)),
    "softmax": (torch.float32, lambda a: torch.softmax(a, 0)),
    "addcmul": (torch.float32, lambda a: torch.addcmul(a, a, a)),
    "add, no policy": (torch.float16, lambda a: a + a),
    "relu, no policy": (torch.float16, torch.relu),
}


def overhead(device: str, dtype: torch.dtype, call: Call) -> Ratio:
    """Measure calls with autocast against the same calls without."""
    a = torch.ones(8, 8, dtype=dtype, device=device)
    calls = range(CALLS)

    def calling(enabled: bool) -> Work:
        def work() -> None:
            with torch.autocast(device, dtype=torch.float16, enabled=enabled):
                for _ in calls:
                    call(a)

        return work

    return time_ratio(calling(True), calling(False), turns=101, seconds=0.005)


def print_overhead() -> None:
    """Print the overhead of autocast on calls that need no cast, on the device and on the CPU."""
    table = Table(
        "Autocast: time of calls that need no cast, with autocast / without", "1000 calls"
    )
    for name, (dtype, call) in CALLS_WITHOUT_CAST.items():
        table.row(name, overhead("openreg", dtype, call), at_most=1.05)
        if name in CPU_TOO:
            table.row(f"{name}, on the CPU", overhead("cpu", dtype, call))


def unscale(dtype: torch.dtype, parts: int) -> Work:
    """Unscale 16 M gradients in `parts` tensors. The scale is -1, so that values stay the same."""
    part = ELEMENTS // parts
    gradients = [torch.ones(part, dtype=dtype, device="openreg") for _ in range(parts)]
    found_inf, scale = torch.zeros(1, device="openreg"), torch.tensor(-1.0, device="openreg")
    return lambda: torch._amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, scale)


def print_unscale() -> None:
    """Print the rate of the scaler's kernel against reading and writing as many bytes."""
    table = Table("Unscale: rate / rate of inverting all bits in place", "gradients")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        words = torch.zeros(ELEMENTS * dtype.itemsize // 4, dtype=torch.int32)
        for parts in (1, 128):
            name = f"16 M {str(dtype).removeprefix('torch.')}"
            table.measure(
                f"{name}, {parts} tensors" if parts > 1 else name,
                unscale(dtype, parts),
                words.bitwise_not_,
                seconds=0.05,
                at_least=0.8,
            )


def training_step(device: str, dtype: torch.dtype) -> Work:
    """Forward, backward and SGD of an MLP 256-1024-1024-10, batch 64, loss scaled for float16."""
    model = mlp().to(device)
    x, y = batch(device, 64, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def print_steps() -> None:
    """Print the time of a training step against CPU autocast."""
    table = Table("Step: time on openreg / time under CPU autocast", "MLP step")
    for dtype, goal in ((torch.float16, 1.0), (torch.bfloat16, None)):
        table.measure(
            str(dtype).removeprefix("torch."),
            training_step("openreg", dtype),
            training_step("cpu", dtype),
            seconds=0.05,
            at_most=goal,
        )


def main() -> None:
    """Print the three tables."""
    one_thread()
    print_overhead()
    print_unscale()
    print_steps()


if __name__ == "__main__":
    run(main)
