"""The cost of device memory: allocations, traces of training steps, sending, and importing.

The C side is bench/memory_c.c. Traces are recorded in the same run, by training a model on a device
with the memory history enabled. A replay allocates and frees without writing to the memory, on both
sides. "Touched" means that one byte of every page from malloc is written, because the allocator's
memory already has its pages.
"""

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.multiprocessing as multiprocessing
from harness import Ratio, Table, built, quartiles, run
from torch import nn

MIB = 1 << 20


# ---- the C side ----------------------------------------------------------------------------------


def run_program(program: Path, *trace: Path) -> dict[str, Ratio]:
    """Run the C program and return its measurements by key: of pairs, or of a trace."""
    output = subprocess.run(
        [program, *trace], env=environment(), check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    lines = (line.split() for line in output.splitlines())
    return {key: Ratio(*map(float, numbers)) for key, *numbers in lines}


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment with `variables` and its own device group."""
    return {**os.environ, "OPENREG_GROUP": f"bench-{os.getpid()}", **variables}


# ---- traces of training steps --------------------------------------------------------------------


def make_model(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """Return a model and the shape of its batches."""
    if name == "mlp":
        layers = [nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(1024, 10)), (256, 256)
    if name == "convolutions":
        layers = []
        for inputs, outputs in ((3, 32), (32, 64), (64, 64), (64, 128)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)]
            layers += [nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4, 10)), (128, 3, 32, 32)
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    encoder = nn.TransformerEncoder(layer, num_layers=4)
    return nn.Sequential(encoder, nn.Flatten(), nn.Linear(64 * 512, 10)), (16, 64, 512)


def train(name: str, steps: int) -> None:
    """Make a model on the device, train it and free everything."""
    torch.manual_seed(0)
    model, shape = make_model(name)
    model.to("openreg")
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        # Batches of two sizes, because real batches vary.
        inputs = torch.randn(shape[0] - step % 2 * shape[0] // 4, *shape[1:]).to("openreg")
        targets = torch.randint(0, 10, (len(inputs),)).to("openreg")
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    torch.accelerator.synchronize()


def record(name: str, path: Path) -> None:
    """Write the trace of a training run, which begins and ends with no memory allocated."""
    memory = torch.openreg.memory
    memory._record_memory_history(context=None, max_entries=1 << 20)
    train(name, steps=4)
    gc.collect()
    events = memory._snapshot()["device_traces"][0]
    identities: dict[int, int] = {}  # address: the present allocation there
    count = 0
    with path.open("w") as file:
        for event in events:
            if event["action"] == "alloc" and event["size"] > 0:
                identities[event["addr"]] = count
                file.write(f"+{count} {event['size']}\n")
                count += 1
            elif event["action"] == "free_completed" and event["addr"] in identities:
                file.write(f"-{identities.pop(event['addr'])}\n")
        for identity in identities.values():
            file.write(f"-{identity}\n")


TRACES = ("mlp", "convolutions", "transformer")


def record_all(folder: Path) -> list[Path]:
    """Record each trace in its own process."""
    paths = [folder / name for name in TRACES]
    for path in paths:
        command = [sys.executable, __file__, "--record", path.name, str(path)]
        subprocess.run(command, env=environment(), check=True)
    return paths


def memory_rows(table: Table, program: Path) -> None:
    """Print the rows of the allocator alone."""
    with tempfile.TemporaryDirectory() as folder:
        rows = run_program(program)
        for trace in record_all(Path(folder)):
            rows |= run_program(program, trace)
    for size, key in (("512 B", "pair-512"), ("4 KiB", "pair-4K")):
        table.row(f"allocate and free {size} / malloc and free", rows[key], at_most=1.5)
    table.row("allocate and free 4 MiB / malloc, touch, free", rows["pair-4M"], at_most=1 / 50)
    table.row("rate of two threads on two devices / of one", rows["threads"], at_least=1.9)
    for name in TRACES:
        table.row(f"{name}, replay / malloc", rows[f"replay-malloc-{name}"])
        table.row(f"{name}, replay / malloc, touched", rows[f"replay-touched-{name}"])


# ---- sending to another process ------------------------------------------------------------------


def receive(tensors, arrivals) -> None:  # noqa: ANN001
    """Run in the receiver: report when the first and the last element could be read."""
    while (tensor := tensors.recv()) is not None:
        total = tensor[0].item() + tensor[-1].item()
        arrivals.send((time.clock_gettime_ns(time.CLOCK_MONOTONIC), total))
        del tensor


def sending_rows(table: Table, turns: int = 31) -> None:
    """Print the rows of sending a tensor to another process, until that can read it."""
    context = multiprocessing.get_context("spawn")
    receiver, tensors = context.Pipe(duplex=False)
    arrivals, sender = context.Pipe(duplex=False)
    process = context.Process(target=receive, args=(receiver, sender), daemon=True)
    process.start()

    # Make the tensors first, so that making them does not affect the caches.
    made = {size: torch.ones(size * MIB // 4, device="openreg") for size in (1, 256)}
    torch.accelerator.synchronize()

    def send(mebibytes: int) -> float:
        tensor = made[mebibytes]
        start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        tensors.send(tensor)
        end, total = arrivals.recv()
        assert total == 2
        return (end - start) / 1e6

    for mebibytes in (1, 256):
        for _ in range(3):
            send(mebibytes)
    times = [(send(256), send(1)) for _ in range(turns)]
    tensors.send(None)
    process.join()
    table.row("send 256 MiB / 2 ms", quartiles([a / 2 for a, _ in times], times), "ms", at_most=1)
    table.row(
        "send 256 MiB / send 1 MiB", quartiles([a / b for a, b in times], times), "ms", at_most=1.25
    )


# ---- importing -----------------------------------------------------------------------------------


def import_seconds(**variables: str) -> float:
    """Return how long a fresh interpreter takes to import torch and to exit."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], env=environment(**variables), check=True)
    return time.perf_counter() - start


def import_rows(table: Table, turns: int) -> None:
    """Print the rows of importing torch with the package, against torch alone."""
    sides = [
        {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        {"OPENREG_DEVICE_COUNT": "2"},
        {"OPENREG_DEVICE_COUNT": "64"},
    ]
    for side in sides:
        import_seconds(**side)
    times: list[list[float]] = [[], [], []]
    for turn in range(turns):
        for index in sorted(range(3), key=lambda index, turn=turn: (index + turn) % 3):
            times[index].append(import_seconds(**sides[index]))
    for devices, mine, goal in ((2, times[1], 1.05), (64, times[2], 1.08)):
        pairs = list(zip(mine, times[0], strict=True))
        row = quartiles([a / b for a, b in pairs], pairs)
        table.row(f"import torch with {devices} devices / alone", row, "s", at_most=goal)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--program", type=Path, help="path of bench_memory, already built for release"
    )
    parser.add_argument(
        "--imports", type=int, default=31, help="number of fresh processes of each kind"
    )
    parser.add_argument(
        "--only", choices=("memory", "sending", "imports"), help="measure these rows only"
    )
    parser.add_argument("--record", nargs=2, metavar=("MODEL", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        record(options.record[0], Path(options.record[1]))
        return
    table = Table("Memory: time / time of a reference", "work")
    if options.only in (None, "memory"):
        memory_rows(table, options.program or built("bench_memory"))
    if options.only in (None, "sending"):
        sending_rows(table)
    if options.only in (None, "imports"):
        import_rows(table, options.imports)


if __name__ == "__main__":
    run(main)
