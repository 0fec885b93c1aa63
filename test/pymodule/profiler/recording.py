"""Helpers that profile work on devices and read the traces that PyTorch writes."""

import json

import torch
from torch.profiler import ProfilerActivity, profile

from device import DEVICE, module

DEVICE_ACTIVITY = ProfilerActivity.CUDA if DEVICE == "cuda" else ProfilerActivity.PrivateUse1
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "privateuse1_runtime")


def recorded(act, *, behind_all=True, **options):
    """Call ``act`` within a profile of host and devices, and return the profile.

    If ``behind_all``, the devices are idle when the profile begins.
    """
    for index in range(module.device_count()) if behind_all else ():
        module.synchronize(index)
    options = {"activities": [ProfilerActivity.CPU, DEVICE_ACTIVITY]} | options
    with profile(**options) as profiler:
        act()
    return profiler


class Trace:
    """The trace file of a profile."""

    def __init__(self, profiler, folder):
        path = folder / "trace.json"
        profiler.export_chrome_trace(str(path))
        self.file = json.loads(path.read_text())
        self.all = self.file["traceEvents"]

    def of(self, *categories):
        """Return the events of some categories, ordered by their start."""
        found = [event for event in self.all if event.get("cat") in categories]
        return sorted(found, key=lambda event: event["ts"])

    def work(self, name=None):
        return [event for event in self.of(*WORK) if name in (None, event["name"])]

    def one(self, name):
        (event,) = [event for event in self.all if event["name"] == name and event["ph"] == "X"]
        return event

    def calls(self):
        return {event["args"]["correlation"]: event for event in self.of(*CALLS)}

    def counts(self, name, device=0):
        found = [e for e in self.all if (e["ph"], e["name"], e["pid"]) == ("C", name, device)]
        (values,) = {tuple(event["args"]) for event in found}
        return [event["args"][values[0]] for event in sorted(found, key=lambda e: e["ts"])]


def end(event):
    return event["ts"] + event["dur"]


def contains(outer, inner):
    """Return whether one event contains another. Times are rounded to nanoseconds."""
    return outer["ts"] <= inner["ts"] + 0.002 and end(inner) <= end(outer) + 0.002


def track(event):
    """Return the device and the stream of an event."""
    return event["pid"], event["tid"]


def square(index=0, size=8):
    return torch.ones(size, size, device=f"{DEVICE}:{index}")
