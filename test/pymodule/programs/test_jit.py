"""TorchScript: traced and scripted modules run on a device, and files keep the device.

TorchScript never frees what it has compiled, including constants on a device. So these tests
compile on the first device, because tests of memory use the second.
"""

import copy
import io

import pytest
import torch

from device import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


def network(device="cpu"):
    torch.manual_seed(0)
    layers = [
        torch.nn.Conv2d(1, 2, 3),
        torch.nn.BatchNorm2d(2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 3),
    ]
    return torch.nn.Sequential(*layers).to(device)


def images(device="cpu"):
    return torch.linspace(-1, 1, 72).view(2, 1, 6, 6).to(device)


def traced(device):
    return torch.jit.trace(network(device).eval(), images(device))


def scripted(device):
    module = network(device).eval()
    # TorchScript identifies functions by their `id`, including functions that other tests dropped.
    # So it would confuse an object at such an address with the function.
    functions = torch.jit._builtins._get_builtin_table()
    for each in module.modules():
        for value in vars(each).values():
            functions.pop(id(value), None)
    return torch.jit.script(module)


def frozen(device):
    return torch.jit.freeze(scripted(device))


FORMS = [traced, scripted, frozen]


@pytest.mark.parametrize("form", FORMS)
def test_module_agrees_with_the_cpu(form):
    module = form(f"{DEVICE}:0")
    for _ in range(3):  # the first runs are profiled, later ones are optimized
        actual = module(images(f"{DEVICE}:0"))
    assert actual.device == torch.device(f"{DEVICE}:0")
    torch.testing.assert_close(actual.cpu(), network().eval()(images()))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("location", "device"),
    [
        (None, f"{DEVICE}:0"),
        ("cpu", "cpu"),
        (f"{DEVICE}:1", f"{DEVICE}:1"),
        (torch.device(f"{DEVICE}:1"), f"{DEVICE}:1"),
    ],
)
def test_module_is_saved_and_loaded(form, location, device):
    buffer = io.BytesIO()
    torch.jit.save(form(f"{DEVICE}:0"), buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer, map_location=location)
    actual = loaded(images(device))
    assert actual.device == torch.device(device)
    torch.testing.assert_close(actual.cpu(), network().eval()(images()))


def test_trace_records_convolution_by_its_usual_name():
    for device in ("cpu", DEVICE):
        assert "aten::_convolution" in str(traced(device).inlined_graph)


def test_scripted_module_trains_as_on_the_cpu():
    def gradients(module, device):
        for _ in range(3):
            module.zero_grad()
            module(images(device)).square().sum().backward()
        return [parameter.grad.cpu() for parameter in module.parameters()]

    ours = gradients(torch.jit.script(network(DEVICE)), DEVICE)
    for actual, expected in zip(ours, gradients(network(), "cpu"), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)


def test_scripted_function_makes_tensors_on_the_device():
    @torch.jit.script
    def function(x: torch.Tensor, there: str) -> torch.Tensor:
        return x + torch.ones(2, device=x.device) + torch.ones(2, device=there)

    assert function(torch.ones(2, device=DEVICE), f"{DEVICE}:0").tolist() == [3.0, 3.0]


def test_scripted_branches_read_values_of_the_device():
    @torch.jit.script
    def function(x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x * 2
        return x - 1

    assert function(torch.ones(2, device=DEVICE)).tolist() == [2.0, 2.0]
    assert function(-torch.ones(2, device=DEVICE)).tolist() == [-2.0, -2.0]


def test_scripted_module_is_copied_and_moved():
    module = scripted(f"{DEVICE}:0")
    moved = copy.deepcopy(module).to(f"{DEVICE}:1")
    torch.testing.assert_close(
        moved(images(f"{DEVICE}:1")).cpu(), module(images(f"{DEVICE}:0")).cpu()
    )
