"""nothing: graphs with a shared pool are replayed, with all the waits that they need."""

import torch

from device import DEVICE, module

side = module.Stream()
pool = module.graph_pool_handle()
weights = torch.randn(64, 64, device=DEVICE, requires_grad=True)
x = torch.ones(8, 64, device=DEVICE)


def step():
    loss = torch.nn.functional.dropout(x @ weights, 0.1).tanh().square().mean()
    loss.backward()
    with torch.no_grad():
        weights.sub_(weights.grad)
    weights.grad.zero_()
    return loss.detach()


module.synchronize()
with module.stream(side):
    step()
module.current_stream().wait_stream(side)
module.synchronize()
training, measuring = module.CUDAGraph(), module.CUDAGraph()
with module.graph(training, pool=pool):
    loss = step()
with module.graph(measuring, pool=pool):
    total = loss * 2 + weights.sum()
for turn in range(3):
    side.wait_stream(module.current_stream())
    with module.stream(side):
        x.copy_(torch.full((8, 64), float(turn)).pin_memory(), non_blocking=True)
    module.current_stream().wait_stream(side)
    training.replay()
    measuring.replay()
    assert total.isfinite().item()

side.wait_stream(module.current_stream())
for stream in (module.current_stream(), side):  # replays of one graph come one after another
    with module.stream(stream):
        training.replay()
module.synchronize()
print(loss.item(), x.sum())
