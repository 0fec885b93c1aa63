"""PyTorch's legacy profiler: host times, and device times from events."""

import pytest
import torch
from torch.autograd.profiler import profile

from device import DEVICE, module


def work(device=DEVICE):
    x = torch.ones(256, 256, device=device, requires_grad=True)
    (x @ x).sum().backward()


def names(profiler):
    return {event.key for event in profiler.key_averages()}


def test_device_times_come_from_events():
    with profile(use_device=DEVICE, use_kineto=False) as profiler:
        work()
    times = {event.key: event.device_time_total for event in profiler.key_averages()}
    assert {"aten::matmul", "aten::mm", "MmBackward0"} <= times.keys()
    assert times["aten::mm"] > 0


def test_device_times_of_the_second_device():
    module.set_device(1)
    with profile(use_device=DEVICE, use_kineto=False) as profiler:
        work(f"{DEVICE}:1")
    assert any(event.device_time_total > 0 for event in profiler.key_averages())


@pytest.mark.parametrize("kineto", [False, True])
def test_nothing_is_printed_while_profiling(capfd, kineto):
    with profile(use_device=DEVICE, use_kineto=kineto):
        work()
    assert "Exception in RecordFunction callback" not in "".join(capfd.readouterr())


def test_host_profiler_sees_operators_on_a_device():
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        work()
    assert {"aten::mm", "aten::sum"} <= names(profiler)
    shapes = [event.input_shapes for event in profiler.events() if event.key == "aten::mm"]
    assert [[256, 256], [256, 256]] in shapes
