"""Graphs under the sanitizer: it is told of no replay, and says nothing wrong of what one did."""

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
