"""Tensors without memory: fake tensors of a device, the meta device, and tracing with them."""

import copy

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from device import DEVICE, module


def network(device=None):
    """Return a network on the device, or where the context says."""
    torch.manual_seed(0)
    layers = [
        torch.nn.Conv2d(1, 2, 3),
        torch.nn.BatchNorm2d(2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 3),
    ]
    layer = torch.nn.Sequential(*layers)
    return layer if device is None else layer.to(device)


def images(device=None):
    return torch.linspace(-1, 1, 72).view(2, 1, 6, 6).to(device)


@pytest.fixture(autouse=True)
def compile_from_scratch():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_fake_tensors_have_their_device():
    with FakeTensorMode() as mode:
        made = torch.randn(2, 3, device=f"{DEVICE}:1")
        real = mode.from_tensor(torch.ones(2, 3, device=f"{DEVICE}:0"))
        assert (made @ made.t()).device == torch.device(f"{DEVICE}:1")
        assert (real * 2).view(6).device == torch.device(f"{DEVICE}:0")
        assert made.to(f"{DEVICE}:0").device == torch.device(f"{DEVICE}:0")
        assert made.cpu().device == torch.device("cpu")
        with torch.device(f"{DEVICE}:1"):
            assert network()(images()).device == torch.device(f"{DEVICE}:1")


def test_fake_tensors_need_no_memory():
    before = module.memory_allocated()
    with FakeTensorMode():
        assert torch.empty(10**12, device=DEVICE).numel() == 10**12
    assert module.memory_allocated() == before


def test_fake_tensors_have_gradients():
    with FakeTensorMode():
        layer = torch.nn.Linear(3, 2, device=f"{DEVICE}:1")
        layer(torch.ones(1, 3, device=f"{DEVICE}:1")).sum().backward()
        assert layer.weight.grad.device == torch.device(f"{DEVICE}:1")
        assert layer.weight.grad.shape == (2, 3)


def test_fake_tensors_of_two_devices_are_refused():
    with (
        FakeTensorMode(),
        pytest.raises(RuntimeError, match="two different devices|at least two devices"),
    ):
        torch.ones(2, device=f"{DEVICE}:0") + torch.ones(2, device=f"{DEVICE}:1")


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_traced_graph_makes_its_constants_on_the_device(mode):
    def function(x):
        return x.sin() + torch.ones(2, device=x.device)

    x = torch.arange(2.0, device=f"{DEVICE}:1")
    graph = make_fx(function, tracing_mode=mode)(x)
    assert graph(x).device == torch.device(f"{DEVICE}:1")
    assert torch.equal(graph(x), function(x))


def test_module_moves_through_the_meta_device():
    expected = network()
    layer = copy.deepcopy(expected).to(DEVICE).to("meta")
    assert all(parameter.is_meta for parameter in layer.parameters())
    layer.to_empty(device=f"{DEVICE}:1").load_state_dict(expected.state_dict())
    torch.testing.assert_close(layer(images(f"{DEVICE}:1")).cpu(), expected(images()))


def test_meta_tensor_cannot_be_copied_to_a_device():
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data"):
        torch.ones(2, device=DEVICE).to("meta").to(DEVICE)


def test_module_made_on_the_meta_device_gets_memory_on_a_device():
    with torch.device("meta"):
        layer = torch.nn.Linear(2, 3)
    assert layer.to_empty(device=DEVICE).weight.device == torch.device(f"{DEVICE}:0")
    skipped = torch.nn.utils.skip_init(torch.nn.Linear, 2, 3, device=f"{DEVICE}:1")
    assert skipped.weight.device == torch.device(f"{DEVICE}:1")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_network_trains_as_on_the_cpu(backend):
    ours, theirs = network(DEVICE), network()
    compiled = torch.compile(ours, backend=backend)
    results = compiled(images(DEVICE)), theirs(images())
    for result in results:
        result.square().sum().backward()
    torch.testing.assert_close(results[0].cpu(), results[1], rtol=1e-4, atol=1e-4)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), other.grad, rtol=1e-3, atol=1e-4)


def test_compiled_function_accepts_any_number_of_rows():
    def function(x):
        return (x @ x.t()).relu().sum(1)

    compiled = torch.compile(function, backend="aot_eager", dynamic=True, fullgraph=True)
    for rows in (2, 3, 5):
        x = torch.linspace(-1, 1, rows * 4).view(rows, 4)
        torch.testing.assert_close(compiled(x.to(DEVICE)).cpu(), function(x))


def test_exported_program_runs_on_the_device():
    layer = network(DEVICE).eval()
    dimensions = ({0: torch.export.Dim("batch", min=2, max=65535)},)  # as with CUDA
    program = torch.export.export(layer, (images(DEVICE),), dynamic_shapes=dimensions)
    more = torch.cat([images(DEVICE), images(DEVICE) / 2])
    torch.testing.assert_close(program.module()(more), layer(more))
