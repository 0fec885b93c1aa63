"""Small programs for the tests of the report. Each process prints its report as JSON."""

import sysconfig
from pathlib import Path

OPENREG = [str(Path(sysconfig.get_path("scripts"), "openreg"))]

PRELUDE = """
import torch
from torch_openreg.dry import report
from device import DEVICE, memory, module

report.start()

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))  # line of the block

class Model(torch.nn.Module):
    def __init__(self, width=256, layers=3):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def train(model, optimizer, steps, batch=512, width=256):
    for _ in range(steps):
        x = torch.ones(batch, width, device=DEVICE)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()  # line of the backward
        optimizer.step()
"""

FINISH = """
print(report.finish().to_json())
"""


def line_of(program, text):
    """Return the number of the first line of a program that contains a text."""
    return next(number for number, line in enumerate(program.splitlines(), 1) if text in line)
