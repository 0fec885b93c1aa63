"""nothing: a stream that is found by its number is the same stream."""

import torch

from device import DEVICE, module

side = module.Stream()
number = side.cuda_stream if DEVICE == "cuda" else side.stream_id
side.wait_stream(module.current_stream())
with module.stream(side):
    x = torch.ones(100, device=DEVICE)
with module.stream(module.ExternalStream(number)):
    x.add_(1)
