"""uninitialised read: a number that nobody wrote decides which way the program goes."""

import torch

from device import DEVICE

is_ready = torch.empty((), dtype=torch.bool, device=DEVICE)  # allocated
if is_ready:  # second
    pass
