"""nothing: two branches on two streams are joined, and autograd goes back along both."""

import torch

from device import DEVICE, module

side = module.Stream()
left, right = (torch.nn.Linear(8, 8, device=DEVICE) for _ in range(2))
optimizer = torch.optim.Adam([*left.parameters(), *right.parameters()])
for _ in range(2):
    x = torch.ones(4, 8, device=DEVICE)
    side.wait_stream(module.current_stream())
    with module.stream(side):
        a = left(x)
    b = right(x)
    module.current_stream().wait_stream(side)
    (a * b).sum().backward()
    a.record_stream(module.current_stream())
    x.record_stream(side)
    optimizer.step()
    optimizer.zero_grad()
