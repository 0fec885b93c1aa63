"""The gradient scaler takes the steps that PyTorch's CPU scaler takes."""

import copy

import pytest
import torch


def models():
    """Return the same small model on the CPU and on a device, with optimizer and scaler."""
    torch.manual_seed(0)
    host = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    sides = []
    for device in ("cpu", "openreg"):
        model = copy.deepcopy(host).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=2)
        sides.append((model, optimizer, scaler))
    return sides


def step(side, batch):
    model, optimizer, scaler = side
    device = next(model.parameters()).device
    optimizer.zero_grad()
    scaler.scale(model(batch.to(device)).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()


def batches():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(16, 4, generator=generator) for _ in range(6)]


def compare(host, device):
    assert host[2].get_scale() == device[2].get_scale()
    assert host[2]._get_growth_tracker() == device[2]._get_growth_tracker()
    for expected, actual in zip(host[0].parameters(), device[0].parameters(), strict=True):
        torch.testing.assert_close(actual.cpu(), expected)


def test_finite_steps_agree_with_the_cpu():
    host, device = models()
    for batch in batches():
        step(host, batch)
        step(device, batch)
        compare(host, device)
    assert device[2].get_scale() == 1024.0 * 2**3


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_step_with_a_gradient_that_is_not_finite_is_skipped(value):
    host, device = models()
    bad = batches()[0]
    bad[3, 2] = value
    before = [parameter.clone() for parameter in device[0].parameters()]
    for side in (host, device):
        step(side, bad)
    compare(host, device)
    assert device[2].get_scale() == 512.0
    assert all(map(torch.equal, before, device[0].parameters()))
    for batch in batches():
        step(host, batch)
        step(device, batch)
        compare(host, device)


def test_unscaled_gradients_are_those_of_no_scaling():
    (model, _, _), (on_device, optimizer, scaler) = models()
    batch = batches()[0]
    model(batch).square().mean().backward()
    scaler.scale(on_device(batch.openreg()).square().mean()).backward()
    scaler.unscale_(optimizer)
    for expected, actual in zip(model.parameters(), on_device.parameters(), strict=True):
        torch.testing.assert_close(actual.grad.cpu(), expected.grad)


def test_gradients_of_two_devices_are_unscaled_together():
    parameters = [torch.ones(3, device=f"openreg:{index}", requires_grad=True) for index in (0, 1)]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    scaler = torch.amp.GradScaler("openreg", init_scale=8.0)
    for parameter in parameters:
        scaler.scale((parameter * 2).sum()).backward()
    scaler.step(optimizer)
    assert [parameter.tolist() for parameter in parameters] == [[-1.0] * 3] * 2


def test_infinity_on_one_device_skips_the_step_on_both():
    parameters = [torch.ones(3, device=f"openreg:{index}", requires_grad=True) for index in (0, 1)]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    scaler = torch.amp.GradScaler("openreg", init_scale=8.0)
    scaler.scale(parameters[0].sum()).backward()
    scaler.scale((parameters[1] * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert [parameter.tolist() for parameter in parameters] == [[1.0] * 3] * 2
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_non_finite_check_agrees_with_the_cpu(dtype):
    for values in ([1.0, -2.0, 65504.0], [1.0, float("nan")], [float("-inf"), 0.0], []):
        results = []
        for device in ("cpu", "openreg"):
            gradient = torch.tensor(values, dtype=dtype, device=device)
            found = torch.zeros(1, device=device)
            torch._amp_foreach_non_finite_check_and_unscale_(
                [gradient], found, torch.tensor(0.25, device=device)
            )
            results.append((gradient.cpu(), found.cpu()))
        torch.testing.assert_close(results[1], results[0], equal_nan=True)


def test_scale_update_agrees_with_the_cpu():
    for found_inf in (0.0, 1.0):
        for tracker in (0, 1, 2):
            results = []
            for device in ("cpu", "openreg"):
                scale = torch.tensor(4.0, device=device)
                growth = torch.tensor(tracker, dtype=torch.int32, device=device)
                found = torch.tensor(found_inf, device=device)
                torch._amp_update_scale_(scale, growth, found, 2.0, 0.5, 3)
                results.append((scale.item(), growth.item()))
            assert results[0] == results[1]


def test_scaler_that_is_off_changes_nothing():
    scaler = torch.openreg.amp.GradScaler(enabled=False)
    loss = torch.ones(1, device="openreg")
    assert scaler.scale(loss) is loss
    assert scaler.get_scale() == 1.0


def test_our_own_scaler_is_for_this_device():
    scaler = torch.openreg.amp.GradScaler(init_scale=16.0)
    assert scaler.scale(torch.ones(1, device="openreg")).item() == 16.0
    assert scaler._scale.is_openreg


def test_state_of_the_scaler_can_be_loaded():
    scaler = torch.amp.GradScaler("openreg", init_scale=16.0)
    other = torch.amp.GradScaler("openreg")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 16.0
