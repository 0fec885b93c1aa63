"""The gradient scaler takes the same steps as PyTorch's CPU scaler."""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from device import DEVICE, module


def models():
    """Return the same small model on the CPU and on a device, with optimizer and scaler."""
    torch.manual_seed(0)
    host = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    sides = []
    for device in ("cpu", DEVICE):
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


def test_unscaled_gradients_equal_those_without_scaling():
    (model, _, _), (on_device, optimizer, scaler) = models()
    batch = batches()[0]
    model(batch).square().mean().backward()
    scaler.scale(on_device(batch.to(DEVICE)).square().mean()).backward()
    scaler.unscale_(optimizer)
    for expected, actual in zip(model.parameters(), on_device.parameters(), strict=True):
        torch.testing.assert_close(actual.grad.cpu(), expected.grad)


def test_gradients_of_two_devices_are_unscaled_together():
    parameters = [torch.ones(3, device=f"{DEVICE}:{index}", requires_grad=True) for index in (0, 1)]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0)
    for parameter in parameters:
        scaler.scale((parameter * 2).sum()).backward()
    scaler.step(optimizer)
    assert [parameter.tolist() for parameter in parameters] == [[-1.0] * 3] * 2


def test_infinity_on_one_device_skips_the_step_on_both():
    parameters = [torch.ones(3, device=f"{DEVICE}:{index}", requires_grad=True) for index in (0, 1)]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0)
    scaler.scale(parameters[0].sum()).backward()
    scaler.scale((parameters[1] * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert [parameter.tolist() for parameter in parameters] == [[1.0] * 3] * 2
    assert scaler.get_scale() == 4.0


def test_disabled_scaler_changes_nothing():
    scaler = module.amp.GradScaler(enabled=False)
    loss = torch.ones(1, device=DEVICE)
    assert scaler.scale(loss) is loss
    assert scaler.get_scale() == 1.0


def test_own_scaler_is_for_this_device():
    scaler = module.amp.GradScaler(init_scale=16.0)
    assert scaler.scale(torch.ones(1, device=DEVICE)).item() == 16.0
    assert scaler._scale.device.type == DEVICE


def test_scaler_continues_from_a_loaded_state():
    _, device = models()
    for batch in batches()[:3]:
        step(device, batch)
    model, optimizer, scaler = device
    resumed = torch.amp.GradScaler(DEVICE)
    resumed.load_state_dict(scaler.state_dict())
    assert scaler.state_dict()["_growth_tracker"] == 1
    assert resumed.state_dict() == scaler.state_dict()
    step((model, optimizer, resumed), batches()[3])
    assert resumed.get_scale() == 4096.0  # the second finite step in a row; one came before saving
    assert resumed._get_growth_tracker() == 0


# ---- several optimizers --------------------------------------------------------------------------


def test_each_of_two_optimizers_skips_only_for_its_own_infinities():
    parameters = [torch.ones(3, device=DEVICE, requires_grad=True) for _ in range(2)]
    optimizers = [torch.optim.SGD([parameter], lr=1.0) for parameter in parameters]
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0)
    losses = parameters[0].sum(), (parameters[1] * float("inf")).sum()
    scaler.scale(losses[0]).backward()
    scaler.scale(losses[1]).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert [parameter.tolist() for parameter in parameters] == [[0.0] * 3, [1.0] * 3]
    assert scaler.get_scale() == 4.0


def test_losses_in_a_list_are_scaled_on_their_devices():
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0)
    losses = scaler.scale([torch.ones(1, device=f"{DEVICE}:{index}") for index in (0, 1)])
    assert [loss.device.index for loss in losses] == [0, 1]
    assert [loss.item() for loss in losses] == [8.0, 8.0]


# ---- what happens between unscale and step -------------------------------------------------------


def test_gradients_are_clipped_between_unscale_and_step():
    host, device = models()
    for model, optimizer, scaler in (host, device):
        batch = (batches()[0] * 100).to(next(model.parameters()).device)
        scaler.scale(model(batch).square().mean()).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)
        assert norm > 0.1
        scaler.step(optimizer)
        scaler.update()
    compare(host, device)


@pytest.mark.parametrize(
    "mistake", ["unscale twice", "unscale after step", "step twice", "no scale"]
)
def test_errors_are_those_of_the_cpu(mistake):
    words = []
    for model, optimizer, scaler in models():
        if mistake != "no scale":
            batch = batches()[0].to(next(model.parameters()).device)
            scaler.scale(model(batch).square().mean()).backward()
        with pytest.raises((RuntimeError, AssertionError)) as raised:
            if mistake != "unscale after step":
                scaler.unscale_(optimizer)
            if mistake != "unscale twice":
                scaler.step(optimizer)
            scaler.step(optimizer) if mistake == "step twice" else scaler.unscale_(optimizer)
        words.append(str(raised.value))
    assert words[0] == words[1]


def test_gradients_in_half_precision_are_refused():
    parameter = torch.ones(3, dtype=torch.float16, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0)
    scaler.scale(parameter.sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(optimizer)


def operators_of(work):
    names = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            names.append(operator.name())
            return operator(*args, **(kwargs or {}))

    with Watch():
        work()
    return names


READS = "aten::_local_scalar_dense"


def test_the_host_does_not_wait_before_the_step():
    _, (model, optimizer, scaler) = models()
    batch = batches()[0].to(DEVICE)
    loss = model(batch).square().mean()
    names = operators_of(lambda: scaler.scale(loss).backward())
    names += operators_of(lambda: scaler.unscale_(optimizer))
    assert READS not in names
    # One launch handles all gradients of the device.
    assert names.count("aten::_amp_foreach_non_finite_check_and_unscale_") == 1
    assert operators_of(lambda: scaler.step(optimizer)).count(READS) == 1
    assert READS not in operators_of(scaler.update)


# ---- optimizers that take the scale themselves ---------------------------------------------------


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
@pytest.mark.parametrize("how", [{"fused": True}, {"foreach": True}, {"foreach": False}])
def test_optimizers_of_every_kind_take_the_steps_of_the_cpu(kind, how):
    sides = [
        (model, kind(model.parameters(), lr=0.01, **how), scaler) for model, _, scaler in models()
    ]
    bad = batches()[0].clone()
    bad[0, 0] = float("inf")
    for batch in [*batches(), bad, *batches()]:
        for side in sides:
            step(side, batch)
        compare(*sides)
    assert sides[1][2].get_scale() == 1024.0 * 2**3 / 2 * 2**3


def test_fused_optimizer_gets_the_scale_and_found_inf():
    _, (model, _, scaler) = models()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    scaler.scale(model(batches()[0].to(DEVICE)).square().mean()).backward()
    names = operators_of(lambda: scaler.step(optimizer))
    assert "aten::_fused_adam_" in names
    assert READS not in names  # it skips by itself, without the host


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
@pytest.mark.parametrize("found", [0.0, 1.0])
def test_fused_step_unscales_or_skips(kind, found):
    results = []
    for device in ("cpu", DEVICE):
        parameter = torch.linspace(-1, 1, 40, device=device).requires_grad_()
        optimizer = kind([parameter], lr=0.1, fused=True)
        parameter.grad = torch.linspace(1, 3, 40, device=device) * 1024
        optimizer.grad_scale = torch.tensor(1024.0, device=device)
        optimizer.found_inf = torch.tensor(found, device=device)
        optimizer.step()
        results.append((parameter.detach().cpu(), parameter.grad.cpu()))
    for actual, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert torch.equal(results[1][0], torch.linspace(-1, 1, 40)) == bool(found)
