"""Graphs under the sanitizer: what a replay does is told of as often as it is replayed."""

import torch
import torch_openreg._C as C

from device import DEVICE, module


def test_a_right_program_with_graphs_is_silent():
    C.sanitizer_start(lambda finding: None, ["race", "uninitialised read", "use after free"], True)
    x = torch.ones(100, device=DEVICE)
    graph = module.CUDAGraph()
    with module.graph(graph):
        y = (x * 2 + torch.rand(100, device=DEVICE)).sum()
        host = torch.empty((), pin_memory=True).copy_(y, non_blocking=True)
    for _ in range(3):
        x.add_(1)
        graph.replay()
        assert (y * 2).item() > 0
    module.synchronize()
    assert torch.equal(host, y.cpu())
    findings = C.sanitizer_findings()
    C.sanitizer_stop()
    assert findings == []


def found_in_replays(begin):
    """Return what is found when a stream that does not wait reads what a graph writes."""
    C.sanitizer_start(lambda finding: None, ["race"], True)
    if begin != "before":
        C.sanitizer_stop()
    x = torch.ones(100, device=DEVICE)
    graph = module.CUDAGraph()
    with module.graph(graph):
        x.add_(1)
    if begin == "after":
        C.sanitizer_start(lambda finding: None, ["race"], True)
    graph.replay()
    with module.stream(module.Stream()):
        x.sum()
    module.synchronize()
    findings = C.sanitizer_findings()
    C.sanitizer_stop()
    return findings


def test_replays_are_told_of_if_their_capture_was():
    assert len(found_in_replays("before")) == 1
    assert found_in_replays("never") == []
    assert found_in_replays("after") == []


def test_replays_on_several_streams_come_one_after_another():
    C.sanitizer_start(lambda finding: None, ["race"], True)
    x = torch.ones(100, device=DEVICE)
    graph = module.CUDAGraph()
    with module.graph(graph):
        x.add_(1)
    for _ in range(3):
        with module.stream(module.Stream()):
            graph.replay()
    module.synchronize()
    findings = C.sanitizer_findings()
    C.sanitizer_stop()
    assert findings == []
    assert x.tolist() == [4] * 100
