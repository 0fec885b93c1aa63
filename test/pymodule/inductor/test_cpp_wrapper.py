"""Wrappers in C++: a graph that can be compiled for the CPU as a whole runs as one launch."""

import copy
import gc

import pytest
import torch
import torch._inductor.config
from torch import nn
from torch_openreg.inductor import graph_kernel

from device import DEVICE, module


@pytest.fixture(autouse=True)
def in_cpp():
    torch._dynamo.reset()
    with torch._inductor.config.patch(cpp_wrapper=True):
        yield
    torch._dynamo.reset()


def launches(act):
    """Return the names of the kernels that ``act`` launches."""
    module.synchronize()
    with torch.profiler.profile() as profiler:
        act()
        module.synchronize()
    events = profiler.events()
    return [each.name for each in events if each.device_type.name == DEVICE.upper()]


def train(model, device, *inputs, steps=3, **options):
    """Return the losses, the results and the weights of a few compiled steps."""
    model = copy.deepcopy(model).to(device)
    inputs = [each.to(device) for each in inputs]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    compiled = torch.compile(model, **options)
    seen = []
    for _ in range(steps):
        result = compiled(*inputs)
        loss = result.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += [loss.detach().cpu(), result.detach().cpu()]
    return seen + [each.cpu() for each in model.state_dict().values()]


MODELS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), (4, 8)),
    "convolutions": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        (2, 3, 10, 10),
    ),
    "transformer": lambda: (
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
        (2, 5, 16),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_training_equals_that_of_the_cpu(name):
    torch.manual_seed(0)
    model, shape = MODELS[name]()
    x = torch.randn(shape)
    for mine, expected in zip(train(model, DEVICE, x), train(model, "cpu", x), strict=True):
        torch.testing.assert_close(mine, expected)


def test_graph_is_one_launch():
    compiled = torch.compile(lambda x, y: ((x @ y).relu() @ y).sum(0))
    x, y = torch.randn(8, 8, device=DEVICE), torch.randn(8, 8, device=DEVICE)
    compiled(x, y)
    assert launches(lambda: compiled(x, y)) == ["openreg::run_whole_kernel"]


def test_results_are_memory_of_the_device():
    compiled = torch.compile(lambda x: x * 2 + 1)
    x = torch.randn(1024, device=DEVICE)
    compiled(x)
    before = module.memory_allocated()
    result = compiled(x)
    assert result.device == x.device
    assert module.memory_allocated() - before == 4096
    assert torch.equal(result, x * 2 + 1)


def test_sizes_that_change_are_passed_on():
    def work(x, factor):
        return (x * factor).reshape(-1), x.shape[0] + 1, x.transpose(0, 1), None

    compiled = torch.compile(work, dynamic=True)
    for rows in (3, 5, 9):
        x = torch.randn(rows, 4, device=DEVICE)
        scaled, count, turned, nothing = compiled(x, rows)
        assert torch.equal(scaled, (x * rows).reshape(-1))
        assert (count, nothing) == (rows + 1, None)
        assert turned.shape == (4, rows)
        assert turned.data_ptr() == x.data_ptr()


def test_training_with_sizes_that_change():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    compiled, twin = torch.compile(copy.deepcopy(model).to(DEVICE), dynamic=True), model
    for rows in (3, 5, 9):
        x = torch.randn(rows, 8)
        compiled(x.to(DEVICE)).sum().backward()
        twin(x).sum().backward()
    for mine, expected in zip(compiled.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), expected.grad)


def test_arguments_are_written_to():
    @torch.compile
    def work(x, y):
        x.add_(y)
        y[1:].mul_(2)
        return x.sum()

    x, y = torch.ones(4, device=DEVICE), torch.ones(4, device=DEVICE)
    assert work(x, y).item() == 8
    assert x.tolist() == [2, 2, 2, 2]
    assert y.tolist() == [1, 2, 2, 2]


def test_random_numbers_are_the_devices():
    def noise(x):
        return x + torch.rand_like(x)

    x = torch.zeros(64, device=DEVICE)
    numbers = []
    for in_cpp in (True, False):
        torch._dynamo.reset()
        with torch._inductor.config.patch(cpp_wrapper=in_cpp):
            module.manual_seed(3)
            numbers.append(torch.compile(noise)(x))
    assert torch.equal(*numbers)
    assert numbers[0].unique().numel() > 60


def test_dropout_and_its_gradient_agree():
    dropped = torch.compile(lambda x: nn.functional.dropout(x, 0.5))
    x = torch.ones(256, device=DEVICE, requires_grad=True)
    result = dropped(x)
    result.sum().backward()
    assert torch.equal(x.grad, result.detach())


def test_work_of_several_devices_and_of_the_host():
    @torch.compile
    def work(x, y, z):
        return x * 2, y * 3, (x.cpu() + z).to(f"{DEVICE}:1") + y

    x, y, z = torch.ones(4, device=DEVICE), torch.ones(4, device=f"{DEVICE}:1"), torch.ones(4)
    doubled, tripled, total = work(x, y, z)
    assert (doubled.device.index, tripled.device.index, total.device.index) == (0, 1, 1)
    assert (doubled.sum(), tripled.sum(), total.sum()) == (8, 12, 12)


def test_each_device_runs_its_own():
    compiled = torch.compile(lambda x: (x * 2).sum(0))
    for index in range(2):
        x = torch.full((4, 4), index + 1.0, device=f"{DEVICE}:{index}")
        assert compiled(x).device == x.device
        assert compiled(x)[0].item() == 8 * (index + 1)


def test_custom_operators_have_their_kernels():
    @torch.library.custom_op("openreg_test::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.device.type == DEVICE else x * 100

    doubled.register_fake(torch.empty_like)
    x = torch.ones(4, device=DEVICE)
    assert torch.compile(lambda x: torch.ops.openreg_test.doubled(x) + 1)(x).tolist() == [3] * 4


def test_data_dependent_sizes():
    compiled = torch.compile(lambda x: x.nonzero() * 2, fullgraph=False)
    x = torch.tensor([0.0, 1.0, 0.0, 2.0], device=DEVICE)
    assert compiled(x).tolist() == [[2], [6]]


def test_inputs_without_elements():
    compiled = torch.compile(lambda x: (x * 2).sum(1))
    assert compiled(torch.ones(0, 4, device=DEVICE)).shape == (0,)


def test_a_capture_refuses_it_and_the_device_goes_on():
    compiled = torch.compile(lambda x: x.relu() + 1)
    x = torch.ones(4, device=DEVICE)
    compiled(x)
    with pytest.raises(RuntimeError, match="capture"), module.graph(module.CUDAGraph()):
        compiled(x)
    assert compiled(x).tolist() == [2] * 4


def test_compiled_code_is_freed_with_its_program():
    def compile_and_count():
        compiled = torch.compile(lambda x: (x @ x).relu())
        compiled(torch.ones(4, 4, device=DEVICE))
        return len(graph_kernel._programs)

    def forget():
        torch._dynamo.reset()
        gc.collect()
        return len(graph_kernel._programs)

    before = forget()
    assert compile_and_count() == before + 1
    assert forget() == before


def test_code_of_the_host_is_as_before():
    compiled = torch.compile(lambda x: x.relu() + 1)
    assert compiled(torch.ones(4)).tolist() == [2] * 4
