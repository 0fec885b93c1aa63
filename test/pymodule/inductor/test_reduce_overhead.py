"""``torch.compile(mode="reduce-overhead")``: compiled code is captured and replayed."""

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch_openreg._C import compiled_launches

from device import DEVICE, module

pytestmark = pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")


@pytest.fixture(autouse=True)
def same_numbers():
    """Use the random numbers of eager mode."""
    counters.clear()
    with torch._inductor.config.patch(fallback_random=True):
        yield


def replayed(model):
    return torch.compile(model, mode="reduce-overhead")


def train(model, optimizer, batches, targets):
    module.manual_seed(5)
    losses = []
    for inputs in batches:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.layer(x).mean(1))


MODELS = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 4)),
        (4, 8),
    ),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)
        ),
        (2, 3, 8, 8),
    ),
    "transformer": (Transformer, (2, 8, 16)),
}


@pytest.mark.parametrize("name", MODELS)
def test_training_is_that_without_graphs(name):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().to(DEVICE)
    other = copy.deepcopy(model)
    batches = [torch.randn(shape, device=DEVICE) for _ in range(6)]
    targets = torch.randint(0, 4, shape[:1], device=DEVICE)

    def losses_of(model, compiled):
        optimizer = torch.optim.Adam(model.parameters(), capturable=True)
        return train(compiled, optimizer, batches, targets)

    assert losses_of(model, replayed(model)) == losses_of(other, torch.compile(other))
    assert counters["inductor"]["cudagraph_skips"] == 0
    for mine, its in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(mine, its)


def test_replays_launch_nothing_and_take_no_memory():
    compiled = replayed(lambda x: torch.nn.functional.gelu(x * 2 + 1))
    inputs = torch.randn(64, 64, device=DEVICE)
    for _ in range(3):
        compiled(inputs)
    launches, memory = compiled_launches(), module.memory_allocated()
    for _ in range(20):
        inputs = torch.randn(64, 64, device=DEVICE)
        result = compiled(inputs)
        assert torch.equal(result, torch.compile(torch.nn.functional.gelu)(inputs * 2 + 1))
        del result
    assert launches > 0
    assert compiled_launches() == launches + 20  # those of the other function
    assert module.memory_allocated() <= memory


def test_result_that_was_overwritten_says_so():
    compiled = replayed(lambda x: (x * 2, x.sum()))
    first, total = compiled(torch.randn(4, 8, device=DEVICE))
    view = first[0]
    compiled(torch.randn(4, 8, device=DEVICE))
    for use in (
        lambda: first + 1,
        lambda: first.add_(1),
        lambda: first.cpu(),
        lambda: first @ first.T,
        lambda: view * 2,
        lambda: total.item(),
        lambda: first.data_ptr(),
    ):
        with pytest.raises(RuntimeError, match="overwritten by a subsequent run"):
            use()


def test_result_that_is_looked_at_is_kept_until_the_next_step():
    double = replayed(lambda x: x * 2)
    for number in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        first = double(torch.full((4,), float(number), device=DEVICE))
        second = double(first)  # in the same step
        assert second.tolist() == [4.0 * number] * 4
        assert first.tolist() == [2.0 * number] * 4


def test_work_of_the_host_is_left_out_of_the_graph():
    def with_host(x):
        x = x * 2
        middle = x.cpu() + 1
        return middle.to(DEVICE).sin()

    compiled = replayed(with_host)
    for _ in range(4):
        x = torch.randn(8, device=DEVICE)
        torch.testing.assert_close(compiled(x), ((x * 2).cpu() + 1).to(DEVICE).sin())


def test_two_devices_are_compiled_without_a_graph():
    def on_both(x, y):
        return x * 2 + (y * 3).to(x.device)

    compiled = replayed(on_both)
    for _ in range(4):
        x, y = (torch.randn(8, device=f"{DEVICE}:{index}") for index in (0, 1))
        torch.testing.assert_close(compiled(x, y), x * 2 + (y * 3).to(x.device))


def test_shapes_have_graphs_of_their_own():
    compiled = torch.compile(lambda x: (x * 2).relu(), mode="reduce-overhead", dynamic=True)
    for _ in range(3):
        for size in (3, 5, 8):
            x = torch.randn(size, device=DEVICE)
            assert torch.equal(compiled(x), (x * 2).relu())
