"""nothing: attention with a mask, forward and backward."""

import torch

from device import DEVICE

layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).to(DEVICE)
optimizer = torch.optim.Adam(layer.parameters())
x = torch.ones(2, 6, 16, device=DEVICE)
padding = torch.zeros(2, 6, dtype=torch.bool, device=DEVICE)
padding[1, 4:] = True
for _ in range(2):
    layer(x, src_key_padding_mask=padding).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
