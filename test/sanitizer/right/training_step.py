"""nothing: a network with normalization and dropout, mixed precision and a gradient scaler."""

import torch

from device import DEVICE

network = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Flatten(),
    torch.nn.Dropout(0.1),
    torch.nn.Linear(8 * 16, 10),
).to(DEVICE)
optimizer = torch.optim.AdamW(network.parameters(), foreach=True)
scaler = torch.amp.GradScaler(DEVICE)
images = torch.rand(4, 3, 8, 8, device=DEVICE)
labels = torch.arange(4, device=DEVICE)
for _ in range(2):
    with torch.autocast(DEVICE, torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(network(images), labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
network.eval()
with torch.no_grad():
    assert network(images).isfinite().all()
