"""The first call of everything, as test suites make it: 100 small tests on openreg / on the CPU.

Each test makes small tensors, runs an operator that no test before has run, computes gradients and
reads a result. The first row is the time of all tests in one new process, without the import. The
second is the time of a process with one test, from the start of Python to its end.
"""

import os
import subprocess
import sys

from harness import Table, Work, quartiles, run

SUITE = """
import sys, time
import torch
import torch.nn.functional as F

device, step = sys.argv[1], int(sys.argv[2])
PLAIN = (
    "abs acos amax amin asin asinh atan atanh ceil clone cos cosh diag div erf erfc exp exp2 "
    "expm1 floor frac lgamma log log10 log1p log2 mean median neg norm prod reciprocal relu round "
    "rsqrt sigmoid sin sinc sinh sqrt square std sum tan tanh trace tril triu trunc var rot90"
)
TESTS = {name: getattr(torch, name) for name in PLAIN.split()} | {
    "acosh": lambda x: torch.acosh(x + 1),
    "addmm": lambda x: torch.addmm(x, x, x), "atan2": lambda x: torch.atan2(x, x),
    "baddbmm": lambda x: torch.baddbmm(x[None], x[None], x[None]),
    "bmm": lambda x: torch.bmm(x[None], x[None]), "cat": lambda x: torch.cat([x, x]),
    "clamp": lambda x: x.clamp(0.2, 0.8), "cumprod": lambda x: x.cumprod(0),
    "cumsum": lambda x: x.cumsum(0), "div": lambda x: x / x, "dot": lambda x: x[0].dot(x[1]),
    "elu": F.elu, "flip": lambda x: x.flip(0), "fmod": lambda x: x.fmod(0.3), "gelu": F.gelu,
    "hardtanh": F.hardtanh, "inner": lambda x: torch.inner(x, x),
    "kron": lambda x: torch.kron(x, x),
    "leaky_relu": F.leaky_relu, "lerp": lambda x: torch.lerp(x, x, 0.5),
    "log_softmax": lambda x: x.log_softmax(0), "logaddexp": lambda x: torch.logaddexp(x, x),
    "logcumsumexp": lambda x: x.logcumsumexp(0), "logsigmoid": F.logsigmoid,
    "logsumexp": lambda x: x.logsumexp(0), "matmul": lambda x: x @ x[0],
    "maximum": lambda x: torch.maximum(x, x), "minimum": lambda x: torch.minimum(x, x),
    "mish": F.mish, "mm": lambda x: x.mm(x), "mul": lambda x: x * x, "mv": lambda x: x.mv(x[0]),
    "outer": lambda x: torch.outer(x[0], x[1]), "permute": lambda x: x.permute(1, 0) * 2,
    "pow": lambda x: x.pow(3), "prelu": lambda x: F.prelu(x, x[0, :1]),
    "remainder": lambda x: x.remainder(0.3), "repeat": lambda x: x.repeat(2, 2),
    "roll": lambda x: x.roll(1), "silu": F.silu, "softmax": lambda x: x.softmax(0),
    "selu": F.selu, "softplus": F.softplus, "softsign": F.softsign, "sort": lambda x: x.sort()[0],
    "split": lambda x: x.split(2)[0], "stack": lambda x: torch.stack([x, x]),
    "sub": lambda x: x - x, "transpose": lambda x: x.transpose(0, 1),
    "where": lambda x: torch.where(x > 0.5, x, 0),
}


def check(name):
    torch.manual_seed(0)
    x = (torch.rand(4, 4, device=device) / 2 + 0.25).requires_grad_()
    TESTS[name](x).sum().backward()
    assert x.grad.isfinite().all().item()


start = time.perf_counter()
for name in list(TESTS)[::step]:
    check(name)
print(time.perf_counter() - start)
"""


def suite(device: str, step: int = 1) -> float:
    """Run every ``step``-th test in a new process. Return the seconds that the tests took."""
    words = [sys.executable, "-c", SUITE, device, str(step)]
    return float(subprocess.check_output(words, env=os.environ | {"OMP_NUM_THREADS": "1"}))


def process(device: str) -> Work:
    """Return work that runs a process with one test."""
    return lambda: suite(device, sys.maxsize)


def main() -> None:
    """Print the table."""
    table = Table("First calls: time on openreg / on the CPU", "suite")
    pairs = [(suite("openreg"), suite("cpu")) for _ in range(9)]
    ratio = quartiles([mine / other for mine, other in pairs], pairs)
    table.row("100 tests in one process", ratio, "s", at_most=1.05)
    on_openreg, on_the_cpu = map(process, ("openreg", "cpu"))
    table.measure("a process with one test", on_openreg, on_the_cpu, turns=9, at_most=1.15)


if __name__ == "__main__":
    run(main)
