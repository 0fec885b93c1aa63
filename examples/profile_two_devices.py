"""Profile a small pipeline over two simulated devices, and draw what their streams did.

The first device computes the first half of a network, and the second device the second half.
Separate streams copy batches from one to the other while both compute. The program writes a trace
of PyTorch's profiler, which you can open in https://ui.perfetto.dev or chrome://tracing. If
matplotlib is installed, it also draws the trace.
"""

import argparse
import json
from pathlib import Path

import torch
from torch.profiler import profile, record_function

DEVICES = "openreg:0", "openreg:1"
COLOURS = {"kernel": "#4878cf", "gpu_memcpy": "#6acc65", "gpu_memset": "#956cb4"}
WAIT = "cuda_sync"


class Pipeline:
    """Two halves of a network, and streams that copy batches from the first to the second."""

    def __init__(self, width):
        def half():
            return torch.nn.Sequential(
                torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, width)
            )

        self.halves = [half().to(device) for device in DEVICES]
        self.carrier = torch.Stream(DEVICES[0])
        # A copy between devices waits for the current streams of both devices.
        self.receiver = torch.Stream(DEVICES[1])

    def step(self, batch):
        """Return the output of the network for a batch on the first device."""
        with record_function("first half"):
            sent = self.halves[0](batch)
        self.carrier.wait_stream(torch.accelerator.current_stream(torch.device(DEVICES[0])))
        with self.carrier, self.receiver, record_function("transfer"):
            received = sent.to(DEVICES[1], non_blocking=True)
        sent.record_stream(self.carrier)
        second = torch.accelerator.current_stream(torch.device(DEVICES[1]))
        second.wait_stream(self.receiver)
        received.record_stream(second)
        with record_function("second half"):
            return self.halves[1](received)


def tracks_of(trace):
    """Return the events of each stream, by device and stream, and the names of the streams."""
    tracks: dict[tuple, list] = {}
    names = {}
    for event in trace["traceEvents"]:
        track = event["pid"], event["tid"]
        if event.get("cat") in (*COLOURS, WAIT, "gpu_user_annotation"):
            tracks.setdefault(track, []).append(event)
        elif event["name"] == "thread_name":
            names[track] = event["args"]["name"]
    return dict(sorted(tracks.items())), names


def draw(trace, path):
    """Draw the work of each stream over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    tracks, names = tracks_of(trace)
    begin = min(event["ts"] for events in tracks.values() for event in events)
    figure, axes = pyplot.subplots(figsize=(12, 1.2 + 0.8 * len(tracks)), layout="constrained")
    for row, events in enumerate(tracks.values()):
        for event in events:
            span = [((event["ts"] - begin) / 1000, event["dur"] / 1000)]
            if event["cat"] == "gpu_user_annotation":
                axes.broken_barh(span, (row + 0.3, 0.12), facecolor="#d65f5f", alpha=0.5)
            elif event["cat"] == WAIT:
                axes.broken_barh(
                    span, (row - 0.3, 0.55), facecolor="none", edgecolor="#999999", hatch="//"
                )
            else:
                axes.broken_barh(
                    span,
                    (row - 0.3, 0.55),
                    facecolor=COLOURS[event["cat"]],
                    edgecolor="white",
                    linewidth=0.3,
                )
    axes.set_yticks(
        range(len(tracks)),
        [f"{DEVICES[device]}\n{names.get((device, stream), stream)}" for device, stream in tracks],
    )
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title("What the streams of two simulated devices did")
    figure.legend(
        handles=[
            Patch(facecolor=COLOURS["kernel"], label="kernel"),
            Patch(facecolor=COLOURS["gpu_memcpy"], label="copy"),
            Patch(
                facecolor="none", edgecolor="#999999", hatch="//", label="wait for another stream"
            ),
            Patch(facecolor="#d65f5f", alpha=0.5, label="record_function"),
        ],
        loc="outside lower center",
        ncols=4,
    )
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=4, metavar="N")
    parser.add_argument("--width", type=int, default=512, metavar="N")
    parser.add_argument(
        "--out",
        default="openreg-profile",
        metavar="NAME",
        help="name of the .json and .png files, without the ending",
    )
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    pipeline = Pipeline(options.width)
    batches = [
        torch.randn(options.width, options.width, device=DEVICES[0]) for _ in range(options.batches)
    ]
    with torch.no_grad():
        for batch in batches[:2]:  # the first launch of each kind is not queued
            pipeline.step(batch)
        for device in DEVICES:
            torch.accelerator.synchronize(torch.device(device))
        with profile() as profiler:
            for batch in batches:
                pipeline.step(batch)

    print(profiler.key_averages().table(sort_by="self_device_time_total", row_limit=8))
    trace = Path(f"{options.out}.json")
    profiler.export_chrome_trace(str(trace))
    print(f"trace: {trace}: open it in https://ui.perfetto.dev")
    try:
        draw(json.loads(trace.read_text()), f"{options.out}.png")
    except ImportError:
        print("picture: none, for matplotlib is not installed")
    else:
        print(f"picture: {options.out}.png")


if __name__ == "__main__":
    main()
