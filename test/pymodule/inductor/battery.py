"""Functions and networks, compiled for the CPU and for a device: same results, same gradients.

Compiling takes minutes, so this is not a test. Run it in both modes, and with
TORCHINDUCTOR_CPP_WRAPPER=1::

    python test/pymodule/inductor/battery.py [NAME ...]

Each case must launch generated kernels. The exit status is the number of cases that differ.
"""

import copy
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
import torch.nn.functional as F
import torch_openreg._C
from torch import nn
from torch_openreg.inductor import graph_kernel

from device import DEVICE

CASES: dict[str, Callable[[], tuple[Callable, Sequence[torch.Tensor]]]] = {}
OPTIONS: dict[str, dict] = {}


def case(**options):
    """Register a function that returns the function to compile, and its inputs on the CPU."""

    def register(make):
        CASES[make.__name__] = make
        OPTIONS[make.__name__] = options
        return make

    return register


def floats(*sizes, grad=True):
    return torch.randn(*sizes).requires_grad_(grad)


@case()
def pointwise():
    return lambda x, y: (x.sin() * y.exp() + x.abs().sqrt()).tanh(), [floats(33, 65), floats(65)]


@case()
def reductions():
    return lambda x: (x.sum(0), x.mean(1), x.amax(), x.var(1), x.logsumexp(0)), [floats(40, 50)]


@case()
def maxima():
    return lambda x: (x.argmax(), x.t().argmin(1), x.max(0).values), [floats(17, 23)]


@case()
def transposed_maximum():
    return lambda x: (x.t().argmax(), x.permute(1, 0).argmin()), [floats(17, 23, grad=False)]


@case()
def softmax():
    return lambda x: F.log_softmax(x, -1) + F.softmax(x, 0), [floats(16, 100)]


@case()
def layer_norm():
    return nn.LayerNorm(64), [floats(8, 10, 64)]


@case()
def batch_norm():
    return nn.BatchNorm2d(6), [floats(4, 6, 9, 9)]


@case()
def group_norm():
    return nn.GroupNorm(2, 6), [floats(4, 6, 9, 9)]


@case()
def mlp():
    return nn.Sequential(nn.Linear(20, 40), nn.GELU(), nn.Linear(40, 5)), [floats(12, 20)]


@case()
def tiny_products():
    return lambda x, y, z: (x @ y, z @ x.t(), (x[:, :1] @ y[:1])), [
        floats(1, 8),
        floats(8, 1),
        floats(5, 8),
    ]


@case()
def batched_products():
    return lambda x, y: torch.bmm(x, y).relu() + torch.baddbmm(x @ y, x, y), [
        floats(4, 5, 6),
        floats(4, 6, 7),
    ]


@case()
def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 3, stride=2),
        nn.AdaptiveAvgPool2d(1),
    ), [floats(2, 3, 16, 16)]


@case()
def channels_last():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU(), nn.Conv2d(8, 4, 1))
    return model.to(memory_format=torch.channels_last), [floats(2, 3, 12, 12)]


@case()
def transposed_convolution():
    return nn.Sequential(nn.ConvTranspose2d(4, 3, 3, stride=2), nn.Tanh()), [floats(2, 4, 5, 5)]


@case()
def transformer():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return layer, [floats(2, 10, 32)]


@case(dynamic=True)
def dynamic_transformer():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return layer, [floats(2, 11, 32)]


@case()
def attention():
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).sin()

    return attend, [floats(2, 4, 8, 16) for _ in range(3)]


class Recurrent(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x, hidden):
        for each in x:
            hidden = self.cell(each, hidden)
        return hidden.sin() if isinstance(hidden, torch.Tensor) else hidden[0].sin() + hidden[1]


@case()
def gru_cell():
    return Recurrent(nn.GRUCell(10, 12)), [floats(4, 3, 10), floats(3, 12)]


@case()
def lstm_cell():
    class Lstm(Recurrent):
        def forward(self, x, hidden):
            return super().forward(x, (hidden, hidden * 2))

    return Lstm(nn.LSTMCell(10, 12)), [floats(4, 3, 10), floats(3, 12)]


@case()
def embedding():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(50, 16)
            self.out = nn.Linear(16, 3)

        def forward(self, tokens):
            return self.out(self.table(tokens).mean(1))

    return Bag(), [torch.randint(50, (4, 7))]


@case()
def cross_entropy():
    return lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), [
        floats(12, 9),
        torch.randint(9, (12,)),
    ]


@case()
def indexing():
    def index(x, i):
        return x[i] * 2 + x[i.flip(0)], x.gather(1, i[:, None].expand(-1, 4)), x[:, ::2].cumsum(1)

    return index, [floats(9, 9), torch.randint(9, (5,))]


@case()
def scattering():
    def scatter(x, i, values):
        added = x.index_add(0, i, values)
        return added.scatter_reduce(0, i[:, None].expand(-1, 6), values, "sum"), x.index_put(
            (i,), values, accumulate=True
        )

    return scatter, [floats(8, 6), torch.randint(8, (5,)), floats(5, 6)]


@case()
def concatenation():
    return lambda x, y: (torch.cat([x, y * 2], 1), F.pad(x, (1, 2)), torch.stack([x, x + 1])), [
        floats(6, 5),
        floats(6, 3),
    ]


@case()
def views():
    def view(x):
        y = x.view(4, 6, 5).transpose(0, 1).reshape(6, 20)
        return y.unfold(1, 4, 2).sum(-1), y.roll(3, 1), x.flip(0)

    return view, [floats(24, 5)]


@case()
def in_place():
    def update(x, y):
        z = x.clone()
        z[1:] += y[:-1]
        z.mul_(2).clamp_(-1, 1)
        return z

    return update, [floats(10, 4), floats(10, 4)]


@case()
def integers():
    def count(x, y):
        return x // 3, x % 5, (x << 1) ^ y, (x > y).sum(), torch.where(x > y, x, y)

    return count, [torch.randint(-50, 50, (13, 7)), torch.randint(1, 9, (13, 7))]


@case()
def doubles_and_halves():
    return lambda x: (x.double().sin().sum(1), x.bfloat16() * 3, x.half().exp()), [floats(9, 30)]


@case()
def autocast():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def run(x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return model.to(x.device)(x).float().softmax(-1)

    return run, [floats(8, 16, grad=False)]


@case(dynamic=True)
def dynamic_pointwise():
    return lambda x: (x * x.shape[0]).sin().sum(-1) / x.shape[1], [floats(11, 13)]


@case()
def fake_quantization():
    return lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127) / 3, [floats(30)]


@case()
def interpolation():
    return lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [floats(1, 2, 5, 5)]


@case()
def sorting():
    return lambda x: (x.sort(-1).values, x.topk(3).values.exp()), [floats(6, 20)]


@case()
def constants():
    return lambda x: x + torch.arange(5, device=x.device) * torch.ones(5, device=x.device), [
        floats(3, 5)
    ]


@case()
def host_numbers():
    scale = torch.tensor(2.5)
    return lambda x: (x * scale).cos() + torch.tensor(3.0), [floats(7, 3)]


@case()
def subgraphs():
    def branch(x):
        return torch.cond(x.sum() > 0, lambda t: t.sin() + 1, lambda t: t.cos() * 2, (x,))

    return branch, [floats(6, 6, grad=False)]


def tensors_of(results):
    return [results] if isinstance(results, torch.Tensor) else list(results)


def compute(function, inputs, options):
    """Return the results and gradients of the compiled function."""
    torch._dynamo.reset()
    results = tensors_of(torch.compile(function, **options)(*inputs))
    floating = [each for each in results if each.requires_grad]
    if floating:
        torch.manual_seed(1)
        weights = [torch.randn(each.shape, dtype=torch.float64) for each in floating]
        loss = sum(
            (r.double() * w.to(r.device)).sum() for r, w in zip(floating, weights, strict=True)
        )
        loss.backward()
    parameters = list(function.parameters()) if isinstance(function, nn.Module) else []
    gradients = [each.grad for each in [*inputs, *parameters] if each.grad is not None]
    return [each.detach().cpu() for each in [*results, *gradients]]


def difference(name):
    """Return the error of a case or None, and whether all bits are equal."""
    torch.manual_seed(0)
    function, inputs = CASES[name]()
    theirs = copy.deepcopy(function)
    moved = [x.detach().to(DEVICE).requires_grad_(x.requires_grad) for x in inputs]
    expected = compute(function, inputs, OPTIONS[name])
    if isinstance(theirs, nn.Module):
        theirs = theirs.to(DEVICE)
    generated = count_generated()
    results = compute(theirs, moved, OPTIONS[name])
    if count_generated() == generated:
        return "no generated kernel was launched", False
    torch.testing.assert_close(results, expected)
    return None, all(map(torch.equal, results, expected))


def count_generated():
    return torch_openreg._C.compiled_launches() + max(graph_kernel._programs, default=0)


def main(names):
    failed = 0
    for name in names or CASES:
        try:
            wrong, same = difference(name)
        except Exception:
            wrong, same = traceback.format_exc(), False
        failed += wrong is not None
        print(f"{name:<28}{wrong or ('same bits' if same else 'close')}", flush=True)
    print(f"{failed} of {len(names or CASES)} cases differ")
    return failed


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1:]))
