"""PyTorch's reports on profiles: schedules, handlers, memory, stacks, and the legacy profilers."""

import json
import pathlib

import pytest
import torch
from recording import DEVICE_ACTIVITY, Trace, recorded, square
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
from torch.utils.benchmark import Timer

from device import DEVICE, module

BOTH = [ProfilerActivity.CPU, DEVICE_ACTIVITY]


def test_schedule_records_the_active_steps():
    x = square()
    handed_over = []

    def keep(profiler):
        kernels = [e.name for e in profiler.events() if e.name.endswith("_kernel")]
        handed_over.append(kernels)

    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(activities=BOTH, schedule=plan, on_trace_ready=keep) as profiler:
        for act in (x.sin, x.cos, x.exp, x.relu) * 2:
            act()
            module.synchronize()
            profiler.step()
    assert handed_over == [["exp_kernel", "relu_kernel"]] * 2


def test_tensorboard_handler_writes_a_trace(tmp_path):
    x = square()
    handler = tensorboard_trace_handler(str(tmp_path), worker_name="worker")
    recorded(lambda: x @ x, on_trace_ready=handler)
    (file,) = tmp_path.glob("worker.*.pt.trace.json")
    names = {event["name"] for event in json.loads(file.read_text())["traceEvents"]}
    assert "mm_gemm_kernel" in names


def test_memory_of_the_device_is_in_the_table():
    def work():
        return torch.empty(1 << 20, dtype=torch.uint8, device=DEVICE)

    profiler = recorded(work, profile_memory=True)
    by_key = {event.key: event for event in profiler.key_averages()}
    assert by_key["aten::empty"].self_device_memory_usage == 1 << 20


def test_memory_timeline_is_written(tmp_path):
    x = square().requires_grad_()
    profiler = recorded(
        lambda: (x @ x).sum().backward(), profile_memory=True, record_shapes=True, with_stack=True
    )
    path = tmp_path / "memory.json"
    profiler.export_memory_timeline(str(path), device=f"{DEVICE}:0")
    times, sizes = json.loads(path.read_text())
    assert len(times) == len(sizes) > 0


def test_floating_point_operations_are_counted():
    x = square(size=16)
    profiler = recorded(lambda: x @ x, with_flops=True)
    by_key = {event.key: event for event in profiler.key_averages()}
    assert by_key["aten::mm"].flops == 2 * 16**3


def test_stacks_are_written_with_device_time(tmp_path):
    x = square()

    def multiply_in_a_function():
        x @ x

    config = torch._C._profiler._ExperimentalConfig(verbose=True)
    profiler = recorded(multiply_in_a_function, with_stack=True, experimental_config=config)
    path = tmp_path / "stacks"
    profiler.export_stacks(
        str(path), f"self_{'cuda' if DEVICE == 'cuda' else 'privateuse1'}_time_total"
    )
    lines = [line for line in path.read_text().splitlines() if "multiply_in_a_function" in line]
    assert lines
    assert all(int(line.split()[-1]) > 0 for line in lines)


@pytest.mark.parametrize("use_kineto", [False, True])
def test_legacy_profiler_has_device_times(use_kineto):
    x = square()
    with torch.autograd.profiler.profile(use_device=DEVICE, use_kineto=use_kineto) as profiler:
        x @ x
    by_key = {event.key: event for event in profiler.key_averages()}
    assert by_key["aten::mm"].device_time_total > 0


@pytest.mark.skipif(DEVICE != "cuda", reason="PyTorch has it for CUDA")
def test_ranges_for_other_tools_change_nothing():
    x = square()
    with torch.autograd.profiler.emit_nvtx():
        result = x @ x
    assert torch.equal(result.cpu(), torch.full((8, 8), 8.0))


def test_benchmark_timer_waits_for_the_device(everything_queued):
    x = square(size=512)
    Timer("x @ x", globals={"x": x}).timeit(20)  # executes slowly, but is queued quickly
    assert module.current_stream().query()


def test_module_hierarchy_and_shapes_go_with_kernels(tmp_path):
    layer = torch.nn.Linear(8, 4, device=DEVICE)
    x = square()
    profiler = recorded(lambda: layer(x), record_shapes=True, with_modules=True)
    trace = Trace(profiler, pathlib.Path(tmp_path))
    assert trace.one("aten::addmm")["args"]["Input Dims"][1] == [8, 8]
    assert trace.one("addmm_gemm_kernel")["args"]["device"] == 0


def test_forked_child_profiles_its_host(python):
    code = """
        import os, torch
        from device import DEVICE
        x = torch.ones(8, 8, device=DEVICE)
        with torch.profiler.profile() as profiler:
            x @ x
        child = os.fork()
        if child == 0:
            host = [torch.profiler.ProfilerActivity.CPU]
            with torch.profiler.profile(activities=host) as profiler:
                torch.ones(8) + 1
            assert "aten::add" in {event.key for event in profiler.key_averages()}
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    python(code)
