"""Capturing and replaying graphs, with the interface of `torch.cuda`."""

import threading

import pytest
import torch
from modes import openreg_only
from torch.utils._pytree import tree_leaves
from torch_openreg import _C

from device import DEVICE, module


def numbers(*shape):
    return torch.randn(*shape, device=DEVICE)


def capture(function, **options):
    """Return the graph and what the function returned."""
    graph = module.CUDAGraph()
    with module.graph(graph, **options):
        result = function()
    return graph, result


def test_only_a_replay_runs_the_work():
    x = torch.arange(8.0, device=DEVICE)
    before = x.clone()

    def work():
        x.add_(1)
        return x * 2

    graph, y = capture(work)
    assert torch.equal(x, before)
    graph.replay()
    assert torch.equal(x, before + 1)
    assert torch.equal(y, (before + 1) * 2)
    graph.replay()
    assert torch.equal(y, (before + 2) * 2)


def test_a_replay_reads_the_current_values_of_its_inputs():
    x = numbers(4, 8)
    graph, y = capture(lambda: x.softmax(1).cumsum(1))
    for _ in range(3):
        fresh = numbers(4, 8)
        x.copy_(fresh)
        graph.replay()
        assert torch.equal(y, fresh.softmax(1).cumsum(1))


@pytest.mark.parametrize("name", ["complex", "eye", "kthvalue"])
def test_operators_that_resize_results_are_captured_after_they_were_queued(everything_queued, name):
    x = numbers(20)
    work = {
        "complex": lambda: torch.complex(x, x),
        "eye": lambda: torch.eye(4, device=DEVICE) * x[:4],
        "kthvalue": lambda: x.kthvalue(3).values,
    }[name]
    for _ in range(2):
        work()
    graph, result = capture(work)
    x.mul_(2)
    graph.replay()
    assert torch.equal(result, work())


def test_results_keep_their_addresses():
    x = numbers(1000)
    graph, y = capture(lambda: x + 1)
    address = y.data_ptr()
    others = [numbers(1000) for _ in range(20)]
    graph.replay()
    assert y.data_ptr() == address
    assert all(each.data_ptr() != address for each in others)


def test_is_current_stream_capturing():
    assert not module.is_current_stream_capturing()
    with module.graph(module.CUDAGraph()):
        assert module.is_current_stream_capturing()
        numbers(1)
    assert not module.is_current_stream_capturing()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.ops.aten.std_mean(x),
        lambda x: x.sort(),
        lambda x: x.topk(2),
        lambda x: torch.nn.functional.max_pool2d(x[None, None], 2, return_indices=True),
        lambda x: torch.linalg.svd(x),
        lambda x: torch.cat([x, x], 1).chunk(2),
        lambda x: torch._foreach_add([x, x + 1], 2.0),
        lambda x: torch.linalg.qr(x).Q.reshape(2, -1)[:, ::2].t(),
        lambda x: torch.fft.rfft(x).abs(),
        lambda x: torch.add(x, 1, out=torch.empty(0, device=x.device)),
        lambda x: torch.nn.functional.embedding(x.abs().long().clamp(max=3), x),
    ],
)
def test_a_new_operator_is_captured(function):
    x = torch.zeros(4, 4, device=DEVICE)
    graph, result = capture(lambda: function(x))
    x.copy_(numbers(4, 4))
    graph.replay()
    for one, other in zip(tree_leaves(result), tree_leaves(function(x)), strict=True):
        assert torch.equal(one, other)


def test_lists_and_values_in_place_are_captured():
    parameters = [numbers(3), numbers(5)]
    before = [each.clone() for each in parameters]
    graph, _ = capture(lambda: torch._foreach_mul_(parameters, 3.0))
    graph.replay()
    for now, then in zip(parameters, before, strict=True):
        assert torch.equal(now, then * 3)


def test_a_captured_view_sees_the_writes_of_replays():
    x = numbers(4, 6)
    graph, y = capture(lambda: (x * 2).t()[1:])
    graph.replay()
    assert torch.equal(y, (x * 2).t()[1:])


def test_copies_between_pinned_memory_and_the_device_are_captured():
    host, back = torch.ones(100).pin_memory(), torch.zeros(100).pin_memory()
    x = torch.zeros(100, device=DEVICE)

    def work():
        x.copy_(host, non_blocking=True)
        back.copy_(x + 1, non_blocking=True)

    graph, _ = capture(work)
    host.fill_(5)
    graph.replay()
    module.synchronize()
    assert back.eq(6).all()


def test_a_copy_that_converts_is_captured():
    x = numbers(64)
    back = torch.zeros(64, dtype=torch.float64).pin_memory()
    graph, y = capture(lambda: (x.half(), back.copy_(x, non_blocking=True)))
    graph.replay()
    module.synchronize()
    assert torch.equal(y[0], x.half())
    assert torch.equal(back, x.cpu().double())


def test_autocast_and_backward_are_captured():
    weight = numbers(8, 8).requires_grad_()
    x = numbers(4, 8)

    def work():
        with torch.autocast(DEVICE, torch.bfloat16, cache_enabled=False):
            loss = (x @ weight).float().pow(2).sum()
        (gradient,) = torch.autograd.grad(loss, weight)
        return loss.detach(), gradient

    graph, (loss, gradient) = capture(work)
    x.copy_(numbers(4, 8))
    graph.replay()
    expected_loss, expected_gradient = work()
    assert torch.equal(loss, expected_loss)
    assert torch.equal(gradient, expected_gradient)


# ---- streams -------------------------------------------------------------------------------------


def test_streams_fork_and_join_by_events():
    x = numbers(100)
    side = module.Stream()

    def work():
        y = x + 1
        side.wait_stream(module.current_stream())
        with module.stream(side):
            assert module.is_current_stream_capturing()
            z = y * 2
        module.current_stream().wait_stream(side)
        return z - x

    graph, result = capture(work)
    graph.replay()
    assert torch.equal(result, (x + 1) * 2 - x)


def test_a_replay_is_work_of_the_current_stream():
    stream = module.Stream()
    x = torch.zeros(10, device=DEVICE)
    graph, _ = capture(lambda: x.add_(1))
    event = module.Event()
    with module.stream(stream):
        for _ in range(10):
            graph.replay()
        event.record()
    module.current_stream().wait_event(event)
    assert x.eq(10).all()


def test_replays_of_a_thread_run_in_order():
    x = torch.zeros(10, device=DEVICE)
    graph, _ = capture(lambda: x.add_(1))

    def replay():
        with module.stream(module.Stream()):
            for _ in range(50):
                graph.replay()
            module.current_stream().synchronize()

    threads = [threading.Thread(target=replay) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    module.synchronize()
    assert x.eq(150).all()


def test_a_replay_on_a_busy_stream_does_not_wait():
    x = torch.zeros(10, device=DEVICE)
    graph, _ = capture(lambda: x.add_(1))
    stream = module.Stream()
    stream.wait_stream(module.current_stream())
    with module.stream(stream):
        stream.synchronize()
        gate = _C._Gate(0, stream.stream_id)
        graph.replay()
        assert not stream.query()
        gate.open()
        stream.synchronize()
    assert x.eq(1).all()


def test_a_replay_in_a_capture_is_a_node():
    x = torch.zeros(10, device=DEVICE)
    inner, _ = capture(lambda: x.add_(1))

    def work():
        inner.replay()
        x.mul_(2)

    outer, _ = capture(work)
    outer.replay()
    assert x.eq(2).all()
    outer.replay()
    assert x.eq(6).all()


# ---- life ----------------------------------------------------------------------------------------


def test_a_graph_that_was_reset_captures_again():
    x = numbers(5)
    graph, _ = capture(lambda: x + 1)
    with (
        module.stream(module.Stream()),
        pytest.raises(RuntimeError, match="already owns a captured graph"),
    ):
        graph.capture_begin()
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with module.graph(graph):
        y = x * 3
    graph.replay()
    assert torch.equal(y, x * 3)


def test_a_kept_graph_is_instantiated_by_the_first_call():
    x = numbers(5)
    graph = module.CUDAGraph(keep_graph=True)
    with pytest.raises(RuntimeError, match="capture_end"):
        graph.instantiate()
    with module.graph(graph):
        y = x + 1
    with pytest.raises(RuntimeError, match="raw cudaGraphExec_t"):
        graph.raw_cuda_graph_exec()
    assert graph.raw_cuda_graph() != 0
    graph.replay()
    assert graph.raw_cuda_graph_exec() != 0
    assert torch.equal(y, x + 1)


def test_debug_dump_writes_the_graph(tmp_path):
    x = numbers(5)
    graph = module.CUDAGraph()
    graph.enable_debug_mode()
    with module.graph(graph):
        (x + 1).relu()
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert text.startswith("digraph")
    assert "aten::add" in text and "aten::relu" in text and "n0 -> n1;" in text


def test_an_empty_graph_warns():
    with pytest.warns(UserWarning, match="Graph is empty"):
        graph, _ = capture(lambda: None)
    graph.replay()


def test_the_accelerator_has_the_same_graphs():
    x = numbers(10)
    graph = torch.accelerator.Graph()
    stream = torch.Stream(DEVICE)
    with stream, graph:
        y = x + 1
    graph.replay()
    assert torch.equal(y, x + 1)
    assert graph.pool()[1] != 0


@openreg_only("torch.cuda has the tracker in PyTorch")
def test_a_freed_input_raises():
    x = numbers(10)
    graph = module.CUDAGraph()
    with module.graph(graph, check_input_liveness=True):
        x + 1
    graph.replay()
    del x
    with pytest.raises(RuntimeError, match="dead tensor"):
        graph.replay()


def test_a_fill_by_a_mask_is_captured():
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    mask = torch.tensor([True, False], device=DEVICE)
    graph = module.CUDAGraph()
    with module.graph(graph):
        x[mask] = 9.0
    mask.copy_(torch.tensor([False, True]))
    graph.replay()
    assert x.tolist() == [[0, 1, 2], [9, 9, 9]]
