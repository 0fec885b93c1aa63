"""Training steps as graphs: a hundred replays train like a hundred eager steps."""

import copy

import pytest
import torch
from torch import nn

from device import DEVICE, module

REPLAYS = 100


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))


def convolution():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 4),
    )


def transformer():
    return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


SHAPES = {mlp: (4, 8), convolution: (3, 2, 8, 8), transformer: (2, 5, 16), Lstm: (5, 3, 8)}


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.001, capturable=True)


def fused_adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.001, fused=True, capturable=True)


class Training:
    """A model, its optimizer, and the tensor from which each step reads its input."""

    def __init__(self, model, optimizer, shape):
        self.model = model
        self.optimizer = optimizer(model.parameters())
        self.x = torch.zeros(shape, device=DEVICE)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(self.x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss


@pytest.mark.parametrize("optimizer", [sgd, adam, fused_adamw])
@pytest.mark.parametrize("make", list(SHAPES))
def test_replays_train_as_eager_steps(make, optimizer):
    torch.manual_seed(0)
    model = make().to(DEVICE)
    stream = module.Stream()
    stream.wait_stream(module.current_stream())
    with module.stream(stream):
        eager = Training(copy.deepcopy(model), optimizer, SHAPES[make])
        graphed = Training(model, optimizer, SHAPES[make])
        for each in (eager, graphed):
            torch.manual_seed(1)
            for _ in range(2):
                each.step()
    module.synchronize()
    graph = module.CUDAGraph()
    with module.graph(graph, stream=stream):
        loss = graphed.step()
    inputs = [torch.randn(SHAPES[make], device=DEVICE) for _ in range(REPLAYS)]
    torch.manual_seed(2)
    for x in inputs:
        graphed.x.copy_(x)
        graph.replay()
    module.synchronize()
    torch.manual_seed(2)
    with module.stream(stream):
        for x in inputs:
            eager.x.copy_(x)
            expected = eager.step()
    module.synchronize()
    assert torch.equal(loss, expected)
    for one, other in zip(graphed.model.parameters(), eager.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_graphed_modules_train_like_eager_ones():
    torch.manual_seed(0)
    model = mlp().to(DEVICE)
    twin = copy.deepcopy(model)
    graphed = module.make_graphed_callables(model, (torch.zeros(4, 8, device=DEVICE),))
    losses = {}
    for name, each in (("graphed", graphed), ("eager", twin)):
        optimizer = sgd(each.parameters())
        torch.manual_seed(3)
        for _ in range(10):
            x = torch.randn(4, 8, device=DEVICE)
            optimizer.zero_grad()
            loss = each(x).pow(2).mean()
            loss.backward()
            optimizer.step()
        losses[name] = loss.detach()
    assert torch.equal(losses["graphed"], losses["eager"])
    model.eval()
    twin.eval()
    x = torch.randn(4, 8, device=DEVICE)
    assert torch.equal(graphed(x), twin(x))


def test_several_functions_share_a_pool():
    def first(x):
        return {"y": x.sin()}

    def second(x):
        return (x * 2).cos()

    samples = [torch.randn(5, device=DEVICE, requires_grad=True) for _ in range(2)]
    graphed = module.make_graphed_callables((first, second), tuple((each,) for each in samples))
    given = torch.randn(5, device=DEVICE, requires_grad=True)
    result = graphed[1](graphed[0](given)["y"])
    result.sum().backward()
    gradient = given.grad.clone()
    given.grad = None
    expected = second(first(given)["y"])
    expected.sum().backward()
    assert torch.equal(result, expected)
    assert torch.equal(gradient, given.grad)


def test_a_module_with_hooks_is_not_graphed():
    model = mlp().to(DEVICE)
    model.register_forward_hook(lambda *args: None)
    with pytest.raises((RuntimeError, AssertionError), match="must not have hooks"):
        module.make_graphed_callables(model, (torch.zeros(4, 8, device=DEVICE),))
