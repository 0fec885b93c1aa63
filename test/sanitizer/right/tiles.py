"""nothing: four streams write the four quadrants of a matrix."""

import torch

from device import DEVICE, module

streams = [module.Stream() for _ in range(4)]
matrix = torch.zeros(64, 64, device=DEVICE)
for position, stream in enumerate(streams):
    row, column = position // 2 * 32, position % 2 * 32
    stream.wait_stream(module.current_stream())
    with module.stream(stream):
        matrix[row : row + 32, column : column + 32].mul_(2).add_(position)
