"""Trains small models, and prints what that allocated and freed, as JSON.

Arguments: the programs, from `PROGRAMS` and `plans/steps.py`.
"""

import gc
import json
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "plans"))

import steps

from device import DEVICE, memory, module


def numbers(*sizes):
    return torch.rand(sizes, device=DEVICE)


def optimize(parameters, optimizer, loss_of, steps=3):
    optimizer = optimizer(list(parameters))
    for _ in range(steps):
        loss_of().backward()
        optimizer.step()
        optimizer.zero_grad()


def scaled_gradients():
    """Mixed precision with float16, as PyTorch's recipe has it."""
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(DEVICE)
    for _ in range(3):
        with torch.autocast(DEVICE, torch.float16):
            loss = F.cross_entropy(
                model(numbers(64, 256)), torch.zeros(64, dtype=torch.long, device=DEVICE)
            )
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def with_optimizer(make):
    def run():
        model = nn.Sequential(nn.Linear(300, 200), nn.Tanh(), nn.Linear(200, 50)).to(DEVICE)
        optimize(model.parameters(), make, lambda: model(numbers(40, 300)).square().mean())

    return run


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)),
            *(nn.ReLU(inplace=True), nn.Conv2d(channels, channels, 3, padding=1, bias=False)),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return F.relu(x + self.layers(x))


def residual():
    model = nn.Sequential(nn.Conv2d(3, 32, 3), Residual(32), Residual(32)).to(DEVICE)
    optimize(model.parameters(), torch.optim.Adam, lambda: model(numbers(4, 3, 32, 32)).mean())


def channels_last():
    model = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2), Residual(32)).to(DEVICE)
    model = model.to(memory_format=torch.channels_last)

    def loss():
        images = numbers(4, 3, 32, 32).to(memory_format=torch.channels_last)
        return model(images).mean()

    optimize(model.parameters(), torch.optim.AdamW, loss)


def embeddings():
    table, head = nn.Embedding(2000, 64).to(DEVICE), nn.Linear(64, 2000).to(DEVICE)
    tokens = torch.arange(600, device=DEVICE).remainder(2000).view(6, 100)
    parameters = [*table.parameters(), *head.parameters()]
    optimize(
        parameters,
        torch.optim.SGD,
        lambda: F.cross_entropy(head(table(tokens)).flatten(0, 1), tokens.flatten()),
    )


def generation():
    """Writes keys and values of one position at a time into a cache."""
    cache = torch.zeros(2, 4, 64, 32, device=DEVICE)
    query = nn.Linear(128, 128).to(DEVICE)
    x = numbers(2, 1, 128)
    with torch.no_grad():
        for position in range(16):
            heads = query(x).view(2, 1, 4, 32).transpose(1, 2)
            cache[:, :, position : position + 1] = heads
            seen = cache[:, :, : position + 1]
            x = F.scaled_dot_product_attention(heads, seen, seen).transpose(1, 2).reshape(2, 1, -1)
            torch.topk(x.softmax(-1), 5)


def views_and_indices():
    x = numbers(64, 64).requires_grad_()
    index = torch.arange(0, 32, 2, device=DEVICE)
    for _ in range(2):
        y = x[index].t().contiguous().roll(3, 0)
        y = torch.cat([y, y.flip(0)], 1).cumsum(0)
        z = y.gather(1, index.expand(y.shape[0], -1)).sort(-1).values
        w = torch.einsum("ij,kj->ik", z, y[:, :16]) + torch.where(z > 0.5, z, 0.0).sum()
        w.index_add(0, index, w[: len(index)]).logsumexp(-1).sum().backward()


def half_model():
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512)).to(DEVICE).half()
    optimize(
        model.parameters(), torch.optim.SGD, lambda: model(numbers(32, 256).half()).float().mean()
    )


def in_place():
    x = numbers(200, 200)
    x.mul_(2).add_(1).clamp_(0, 2).relu_()
    x.copy_(x.t().contiguous()).zero_().fill_(3).uniform_().normal_()
    y = torch.empty(0, device=DEVICE)
    torch.mm(x, x, out=y)
    y.resize_(300, 300).exponential_()
    x.masked_fill_(x > 0, 1).index_fill_(0, torch.tensor([1], device=DEVICE), 2)


PROGRAMS = {
    "scaled gradients": scaled_gradients,
    "sgd": with_optimizer(lambda p: torch.optim.SGD(p, lr=0.1)),
    "adam, one tensor at a time": with_optimizer(lambda p: torch.optim.Adam(p, foreach=False)),
    "adamw, fused": with_optimizer(lambda p: torch.optim.AdamW(p, fused=True)),
    "adamw, capturable": with_optimizer(lambda p: torch.optim.AdamW(p, capturable=True)),
    "adagrad": with_optimizer(torch.optim.Adagrad),
    "rmsprop": with_optimizer(lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True)),
    "adafactor": with_optimizer(torch.optim.Adafactor),
    "residual": residual,
    "channels last": channels_last,
    "embeddings": embeddings,
    "generation": generation,
    "views and indices": views_and_indices,
    "half model": half_model,
    "in place": in_place,
}
NAMES = [*PROGRAMS, *steps.PROGRAMS]


def run(name):
    """Run a program; return what was allocated and freed, in order, and the peaks.

    Blocks that are freed one after the other are sorted: autocast frees its copies of weights in
    the order of addresses.
    """
    gc.collect()
    module.synchronize()
    module.empty_cache()
    module.reset_peak_memory_stats()
    memory._record_memory_history(max_entries=10**6)
    PROGRAMS[name]() if name in PROGRAMS else steps.train(name, DEVICE)
    gc.collect()
    module.synchronize()
    (trace, *_) = memory._snapshot()["device_traces"]
    memory._record_memory_history(enabled=None)
    events, freed = [], []
    for each in trace:
        if each["action"] == "free_requested":
            freed.append(-each["size"])
        elif each["action"] in ("alloc", "segment_alloc", "segment_free"):
            events += [*sorted(freed), (each["action"], each["size"])]
            freed = []
    return {
        "events": [*events, *sorted(freed)],
        "peaks": [module.max_memory_allocated(), module.max_memory_reserved()],
    }


def main():
    torch.manual_seed(0)
    found = {}
    for name in sys.argv[1:] or NAMES:
        try:
            found[name] = run(name)
        except Exception as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
