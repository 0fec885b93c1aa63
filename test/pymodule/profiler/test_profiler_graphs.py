"""Replays of graphs in a profile: each node is a kernel, and one call launches all of them."""

import pytest
import torch
from recording import Trace, contains, recorded, square, track

from device import DEVICE, module

CALL = "cudaGraphLaunch" if DEVICE == "cuda" else "openregGraphLaunch"


@pytest.fixture
def step():
    """Capture a graph of two kernels. Return it and the tensor that it writes."""
    x = square()
    graph = module.CUDAGraph()
    with module.graph(graph):
        y = (x @ x).relu()
    return graph, y


def test_nodes_of_a_replay_are_kernels(tmp_path, step):
    graph, _ = step
    side = module.Stream()

    def work():
        graph.replay()
        module.synchronize()
        with module.stream(side):
            graph.replay()
        module.synchronize()

    trace = Trace(recorded(work), tmp_path)
    kernels = trace.work()
    assert [event["name"] for event in kernels] == ["mm_gemm_kernel", "relu_kernel"] * 2
    assert [track(event)[1] for event in kernels[2:]] == [side.stream_id] * 2
    calls = [event for event in trace.calls().values() if event["name"] == CALL]
    assert len(calls) == 2
    assert [event["args"]["correlation"] for event in kernels] == [
        call["args"]["correlation"]
        for call in sorted(calls, key=lambda call: call["ts"])
        for _ in range(2)
    ]


def test_nodes_of_a_queued_replay_have_the_time_of_its_execution(tmp_path, step, close_gate):
    graph, _ = step

    def work():
        gate = close_gate()
        graph.replay()
        gate.open()
        module.synchronize()

    trace = Trace(recorded(work), tmp_path)
    first, second = [
        event for event in trace.work() if event["name"] in ("mm_gemm_kernel", "relu_kernel")
    ]
    assert {event["args"]["done by"] for event in (first, second)} == {"worker"}
    assert first["ts"] + first["dur"] <= second["ts"] + 0.002


def test_range_of_the_program_spans_a_replay(tmp_path, step):
    graph, _ = step

    def work():
        with torch.profiler.record_function("step"):
            graph.replay()
        module.synchronize()

    trace = Trace(recorded(work), tmp_path)
    (span,) = [event for event in trace.of("gpu_user_annotation") if event["name"] == "step"]
    assert all(contains(span, event) for event in trace.work())


def test_table_has_the_time_of_nodes(step):
    graph, _ = step
    profiler = recorded(lambda: [graph.replay() for _ in range(5)])
    rows = {row.key: row for row in profiler.key_averages()}
    assert rows["mm_gemm_kernel"].count == 5
    assert rows["relu_kernel"].self_device_time_total > 0


def test_a_replay_in_another_graph_has_each_node_once(tmp_path, step):
    graph, y = step
    outer = module.CUDAGraph()
    with module.graph(outer):
        graph.replay()
        z = y.exp()
    kernels = Trace(recorded(outer.replay), tmp_path).work()
    assert [event["name"] for event in kernels] == ["mm_gemm_kernel", "relu_kernel", "exp_kernel"]
    assert z.isfinite().all()
