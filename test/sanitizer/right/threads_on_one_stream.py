"""nothing: two threads submit to the default stream, which runs their work in order."""

import threading

import torch

from device import DEVICE

x = torch.zeros(100, device=DEVICE)


def add():
    for _ in range(10):
        x.add_(1)


threads = [threading.Thread(target=add) for _ in range(2)]
for thread in threads:
    thread.start()
x.mul_(1)
for thread in threads:
    thread.join()
assert x[0].item() == 20
