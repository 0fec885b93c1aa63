"""Operations that a capture refuses, with CUDA's errors, and that work continues afterwards."""

import threading

import pytest
import torch

from device import DEVICE, module

UNSUPPORTED = "operation not permitted when stream is capturing"
PAGEABLE = "unless the CPU tensor is pinned"


@pytest.fixture
def x():
    return torch.ones(8, device=DEVICE)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda x: module.synchronize(), UNSUPPORTED),
        (lambda x: module.current_stream().synchronize(), UNSUPPORTED),
        (lambda x: module.current_stream().query(), UNSUPPORTED),
        (lambda x: x.sum().item(), UNSUPPORTED),
        (lambda x: bool(x.any()), UNSUPPORTED),
        (lambda x: x.nonzero(), UNSUPPORTED),
        (lambda x: x[x > 0], UNSUPPORTED),
    ],
)
def test_operations_that_need_the_host_are_refused(x, work, words):
    graph = module.CUDAGraph()
    with (
        pytest.raises(torch.AcceleratorError, match="previous error during capture") as caught,
        module.graph(graph),
    ):
        x.add_(1)
        work(x)
    assert words in str(caught.value.__context__)
    assert x.eq(1).all()  # nothing has run
    module.synchronize()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with module.graph(graph):
        y = x + 1
    graph.replay()
    assert y.eq(2).all()


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x.cpu(),
        lambda x: x.copy_(torch.ones(8)),
        lambda x: x.copy_(torch.ones(8), non_blocking=True),
        lambda x: torch.ones(8).copy_(x, non_blocking=True),
        lambda x: torch.tensor([1.0], device=x.device),
    ],
)
def test_copies_of_pageable_memory_are_refused_and_the_capture_goes_on(x, work):
    graph = module.CUDAGraph()
    with module.graph(graph):
        x.add_(1)
        with pytest.raises(RuntimeError, match=PAGEABLE):
            work(x)
        x.add_(1)
    assert x.eq(1).all()
    graph.replay()
    assert x.eq(3).all()


def test_a_copy_of_pageable_memory_is_the_error_of_its_capture(x):
    graph = module.CUDAGraph()
    with pytest.raises(RuntimeError, match=PAGEABLE), module.graph(graph):
        x.cpu()


def test_the_default_stream_cannot_be_captured():
    with (
        module.stream(module.default_stream()),
        pytest.raises(RuntimeError, match="must be captured on a non-default stream"),
    ):
        module.CUDAGraph().capture_begin()


def test_an_event_of_a_capture_cannot_be_queried():
    event = module.Event()
    with (
        pytest.raises(torch.AcceleratorError) as caught,
        module.graph(module.CUDAGraph(), capture_error_mode="relaxed"),
    ):
        event.record()
        event.query()
    assert "last recorded in a capturing stream" in str(caught.value.__context__)


# A program has 32 streams: the 33rd is the first again. So the stream of `module.graph` may be the
# one that a test makes; these two tests name both.


def test_a_capture_cannot_wait_for_work_outside_it(x):
    other, capturing = module.Stream(), module.Stream()
    event = other.record_event()
    with (
        pytest.raises(torch.AcceleratorError) as caught,
        module.graph(module.CUDAGraph(), stream=capturing),
    ):
        capturing.wait_event(event)
    assert "uncaptured work in another stream" in str(caught.value.__context__)


def test_a_stream_that_does_not_join_again_is_refused(x):
    side, capturing = module.Stream(), module.Stream()
    with (
        pytest.raises(torch.AcceleratorError, match="unjoined work"),
        module.graph(module.CUDAGraph(), stream=capturing),
    ):
        side.wait_stream(capturing)
        with module.stream(side):
            x + 1
    side.synchronize()


def test_a_capture_must_end_on_its_stream(x):
    graph = module.CUDAGraph()
    first, second = module.Stream(), module.Stream()
    with module.stream(first):
        graph.capture_begin()
        x.add_(1)
        with (
            module.stream(second),
            pytest.raises(RuntimeError, match="must end on the same stream"),
        ):
            graph.capture_end()
        graph.capture_end()
    graph.replay()
    module.synchronize()
    assert x.eq(2).all()


def test_an_unknown_mode_is_refused():
    with (
        module.stream(module.Stream()),
        pytest.raises(RuntimeError, match="Unknown capture error mode"),
    ):
        module.CUDAGraph().capture_begin(capture_error_mode="strict")


@pytest.mark.parametrize(
    ("mode", "is_disturbed"), [("global", True), ("thread_local", False), ("relaxed", False)]
)
def test_the_mode_decides_whether_other_threads_may_allocate(x, mode, is_disturbed):
    errors = []

    def allocate():
        try:
            with module.stream(module.Stream()):
                torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE)
        except RuntimeError as error:
            errors.append(str(error))

    graph = module.CUDAGraph()
    stream = module.Stream()
    with module.stream(stream):
        graph.capture_begin(capture_error_mode=mode)
        x.add_(1)
        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
        if is_disturbed:
            with pytest.raises(torch.AcceleratorError, match="previous error during capture"):
                graph.capture_end()
        else:
            graph.capture_end()
    assert bool(errors) == is_disturbed
    assert all(UNSUPPORTED in error for error in errors)


def test_deleting_a_graph_ends_its_capture(x):
    stream = module.Stream()
    with module.stream(stream):
        graph = module.CUDAGraph()
        graph.capture_begin()
        x.add_(1)
        del graph
        assert not module.is_current_stream_capturing()
        stream.synchronize()
    assert x.eq(1).all()
