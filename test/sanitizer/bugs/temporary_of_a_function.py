"""use after free: a function gives its temporary to a side stream, and returns."""

import torch

from device import DEVICE, module

side = module.Stream()


def checksum(values):
    scaled = values * 2
    side.wait_stream(module.current_stream())
    with module.stream(side):
        return scaled.sum(), scaled.data_ptr()  # first


x = torch.ones(3 << 20, device=DEVICE)
total, place = checksum(x)
y = x + 1  # second
assert y.data_ptr() == place
