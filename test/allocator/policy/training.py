"""Traces of training steps: the requests of real programs, taken from the memory history.

    python training.py --output DIR

Makes two traces of each program: at a capacity that easily holds it, and at one that is less than
it reserves, so that the cache must be released and some requests fail. record.py adds the answers.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from pathlib import Path

import torch
from compare import write_trace
from policy_device import GapPlacement
from policy_session import Session
from policy_stats import NAMES
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential
from traces import Trace

MIB = 1 << 20
AMPLE = 16 << 30
STEPS = 2
TIGHT = 0.85  # of the peak of reserved memory


def train(model: nn.Module, shape: tuple[int, ...], parts: int = 1, segments: int = 0) -> None:
    """Train for some steps; batches have two sizes, because real ones vary.

    Parameters
    ----------
    parts : int
        How many backward passes add up to the gradient of a step.
    segments : int
        How many segments of the model are recomputed in the backward pass; 0 for none.
    """
    model.to("openreg").train()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        for _ in range(parts):
            count = shape[0] - step * shape[0] // 4
            inputs = torch.randn(count, *shape[1:]).to("openreg").requires_grad_(segments > 0)
            targets = torch.randint(0, 10, (count,)).to("openreg")
            if segments:
                outputs = checkpoint_sequential(model, segments, inputs, use_reentrant=False)
            else:
                outputs = model(inputs)
            (nn.functional.cross_entropy(outputs, targets) / parts).backward()
        optimizer.step()
    torch.accelerator.synchronize()


def mlp() -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in ((256, 1024), (1024, 1024), (1024, 1024)):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


def convolutions() -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4, 10))


def transformer() -> nn.Sequential:
    layers = [nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True) for _ in range(3)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 256, 10))


PROGRAMS: dict[str, Callable[[], None]] = {
    "mlp": lambda: train(mlp(), (512, 256)),
    "mlp-accumulated": lambda: train(mlp(), (512, 256), parts=3),
    "convolutions": lambda: train(convolutions(), (64, 3, 32, 32)),
    "transformer": lambda: train(transformer(), (16, 64, 256)),
    "transformer-checkpointed": lambda: train(transformer(), (16, 64, 256), segments=3),
}


def commands_of(program: Callable[[], None]) -> list[str]:
    """Return a program's requests to the allocator."""
    memory = torch.openreg.memory
    memory._record_memory_history(context=None, max_entries=1 << 20, clear_history=True)
    torch.manual_seed(0)
    program()
    gc.collect()
    identities: dict[int, int] = {}  # of the current block at an address
    commands: list[str] = []
    count = 0
    for event in memory._snapshot()["device_traces"][0]:
        if event["action"] == "alloc":
            count += 1
            identities[event["addr"]] = count
            commands.append(f"alloc {count} {event['size']} {event['stream']}")
        elif event["action"] == "free_requested" and event["addr"] in identities:
            commands.append(f"free {identities.pop(event['addr'])}")
    memory._record_memory_history(enabled=None)
    return [*commands, "snapshot"]


def peak_of(trace: Trace) -> int:
    """Return the most bytes that are reserved."""
    session = Session(trace.capacity, trace.settings, GapPlacement())
    answers = [session.answer(command) for command in trace.commands]
    return int(answers[-1].split(";")[2].split()[NAMES.index("reserved_bytes.all.peak")])


def training_traces() -> dict[str, Trace]:
    traces: dict[str, Trace] = {}
    for name, program in PROGRAMS.items():
        ample = Trace(AMPLE, "", commands_of(program))
        tight = int(TIGHT * peak_of(ample)) // (2 * MIB) * 2 * MIB
        traces[f"training-{name}"] = ample
        traces[f"training-{name}-tight"] = Trace(tight, "", ample.commands)
        traces[f"training-{name}-expandable"] = Trace(
            tight, "expandable_segments:True", ample.commands
        )
    return traces


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True, help="folder of the traces")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, trace in training_traces().items():
        write_trace(arguments.output / f"{name}.trace", trace)
        print(f"{name}: {len(trace.commands)} commands, capacity {trace.capacity / MIB:.0f} MiB")


if __name__ == "__main__":
    main()
