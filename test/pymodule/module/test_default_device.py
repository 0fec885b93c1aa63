"""The device of factory functions without a device argument."""

import numpy
import pytest
import torch

from device import DEVICE, module


@pytest.fixture(params=[DEVICE, f"{DEVICE}:1"])
def default(request):
    torch.set_default_device(request.param)
    yield torch.device(DEVICE, torch.device(request.param).index or 0)
    torch.set_default_device(None)


def test_factories_make_tensors_there(default):
    made = [
        torch.ones(2),
        torch.empty(2),
        torch.tensor([1.0]),
        torch.arange(3),
        torch.linspace(0, 1, 3),
        torch.rand(2),
        torch.randperm(3),
        torch.eye(2),
        torch.full((2,), 3),
        torch.as_tensor([1.0]),
        torch.sparse_coo_tensor([[0], [1]], [1.0], (2, 2)),
    ]
    assert {tensor.device for tensor in made} == {default}


def test_modules_have_their_parameters_there(default):
    for layer in (torch.nn.Linear(2, 2), torch.nn.LSTM(2, 2), torch.nn.BatchNorm1d(3)):
        assert {tensor.device for tensor in layer.state_dict().values()} == {default}


def test_explicit_devices_override_the_default(default):
    assert torch.ones(2, device="cpu").is_cpu
    assert torch.ones_like(torch.ones(2, device="cpu")).is_cpu
    assert torch.from_numpy(numpy.ones(2)).is_cpu


def test_get_default_device(default):
    assert torch.get_default_device() == default


def test_default_device_changes_no_current_device(default):
    assert module.current_device() == 0


def test_contexts_nest():
    with torch.device(DEVICE):
        first = torch.zeros(2)
        with torch.device("cpu"):
            host = torch.zeros(2)
        with torch.device(f"{DEVICE}:1"):
            second = torch.zeros(2)
    assert [t.device.type for t in (first, host, torch.zeros(2))] == [DEVICE, "cpu", "cpu"]
    assert second.device == torch.device(f"{DEVICE}:1")


def test_default_without_index_is_the_current_device():
    module.set_device(1)
    with torch.device(DEVICE):
        assert torch.ones(1).device == torch.device(f"{DEVICE}:1")


def test_default_device_that_does_not_exist_is_refused_by_the_first_tensor():
    with torch.device(f"{DEVICE}:2"), pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(1)
