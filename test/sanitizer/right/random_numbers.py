"""nothing: random kernels write their outputs and shuffle."""

import torch

from device import DEVICE, module

side = module.Stream()
x = torch.empty(100, device=DEVICE).exponential_()
with module.stream(side):
    y = torch.rand(100, device=DEVICE).bernoulli_(0.5)
module.current_stream().wait_stream(side)
drawn = torch.multinomial(x, 5) + torch.randint(0, 5, (5,), device=DEVICE)
z = torch.nn.functional.dropout(y + torch.randn_like(x), 0.3) * torch.normal(x, y + 1)
