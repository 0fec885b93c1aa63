"""A network whose training has no rounding, so that sums in any order have the same bits.

All numbers are multiples of a power of two, small enough that float64 holds them for some steps:
parameters are quarters, inputs and targets whole numbers, and the loss is linear in the outputs, by
which each step makes the multiples finer by ten bits. Whoever splits a batch, a parameter or a
layer between devices must have what one device has, bit for bit.
"""

import torch
from torch import nn

WIDTH = 8
BATCH = 16
STEPS = 3
LEARNING_RATE = 1 / 16


class Network(nn.Module):
    """`layers` without biases, of which each second one is wider, with a ReLU behind each."""

    def __init__(self, layers=2, hidden=16):
        super().__init__()
        widths = [WIDTH, hidden] * (layers // 2 + 1)
        self.layers = nn.ModuleList(
            nn.Linear(*widths[index : index + 2], bias=False, dtype=torch.float64)
            for index in range(layers)
        )
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randint(-2, 3, parameter.shape) / 4)

    def forward(self, batch):
        for layer in self.layers:
            batch = torch.relu(layer(batch))
        return batch


def make(device, seed=0, **options):
    torch.manual_seed(seed)
    return Network(**options).to(device)


def batches(device="cpu", steps=STEPS):
    generator = torch.Generator().manual_seed(7)
    for _ in range(steps):
        inputs, targets = torch.randint(-2, 3, (2, BATCH, WIDTH), generator=generator).double()
        yield inputs.to(device), targets.to(device)


def part(tensor, index, count):
    """A rank's part of a batch."""
    return tensor.chunk(count)[index]


def loss_of(outputs, targets):
    """A mean over the batch, of which the mean over parts of one size is the same."""
    return (outputs * targets).sum() / len(outputs)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=0.5)


def train(network, device, index=0, count=1, optimizer=None, steps=STEPS):
    """Some steps on a rank's part of each batch."""
    optimizer = optimizer or sgd(network.parameters())
    for inputs, targets in batches(device, steps):
        outputs = network(part(inputs, index, count))
        loss_of(outputs, part(targets, index, count)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return network


def parameters_of(network):
    return {name: value.detach().cpu() for name, value in network.named_parameters()}


def trained_alone(steps=STEPS, **options):
    """The parameters that training on the CPU leaves, each seen to be exact."""
    network = train(make("cpu", **options), "cpu", steps=steps)
    parameters = parameters_of(network)
    for parameter in parameters.values():
        assert torch.equal(parameter * 2**40, (parameter * 2**40).round())
        assert parameter.abs().max() < 2**8 and parameter.std() > 0
    return parameters


def differences(parameters, expected):
    """The names of parameters that are not, bit for bit, what was expected."""
    assert parameters.keys() == expected.keys()
    return [name for name in expected if not torch.equal(parameters[name], expected[name])]
