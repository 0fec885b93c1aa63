"""uninitialised read: an unwritten number decides which branch the program takes."""

import torch

from device import DEVICE

is_ready = torch.empty((), dtype=torch.bool, device=DEVICE)  # allocated
if is_ready:  # second
    pass
