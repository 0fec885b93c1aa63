"""A network whose training has no rounding, so that sums in any order have the same bits.

All numbers are multiples of a power of two, small enough that float64 holds them for some steps:
parameters are quarters, inputs and targets are whole numbers, and the loss is linear in the
outputs, so each step needs ten more bits. Splitting a batch, a parameter or a layer between devices
must give the same bits as one device.
"""

import torch
from torch import nn

WIDTH = 8
BATCH = 16
STEPS = 3
LEARNING_RATE = 1 / 16


class Network(nn.Module):
    """`layers` without biases; every second one is wider, and a ReLU follows each."""

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
    """A mean over the batch. It equals the mean over parts of the batch of equal size."""
    return (outputs * targets).sum() / len(outputs)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=0.5)


def train(network, device, index=0, count=1, optimizer=None, steps=STEPS):
    """Run some steps on a rank's part of each batch."""
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
    """The parameters after training on the CPU; checks that each is exact."""
    network = train(make("cpu", **options), "cpu", steps=steps)
    parameters = parameters_of(network)
    for parameter in parameters.values():
        assert torch.equal(parameter * 2**40, (parameter * 2**40).round())
        assert parameter.abs().max() < 2**8 and parameter.std() > 0
    return parameters


def differences(parameters, expected):
    """The names of the parameters that differ from the expected ones in any bit."""
    assert parameters.keys() == expected.keys()
    return [name for name in expected if not torch.equal(parameters[name], expected[name])]
