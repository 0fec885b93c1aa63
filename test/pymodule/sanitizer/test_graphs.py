"""Graphs under the sanitizer: each replay reports the captured launches."""

import torch
import torch_openreg._C as C

from device import DEVICE, module


def test_a_correct_program_with_graphs_has_no_findings():
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
    """Return the findings if a stream reads what a graph writes, without waiting for it."""
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


def test_replays_are_reported_if_the_capture_was():
    assert len(found_in_replays("before")) == 1
    assert found_in_replays("never") == []
    assert found_in_replays("after") == []


def test_replays_on_several_streams_are_ordered():
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
