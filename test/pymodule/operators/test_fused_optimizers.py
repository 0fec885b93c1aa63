"""Fused optimizers with a state in bfloat16 and with the gradient scaler's tensors."""

import pytest
import torch

from device import DEVICE

STEPS = 3
OPTIMIZERS = [
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.AdamW, {}),
    (torch.optim.AdamW, {"amsgrad": True, "maximize": True}),
    (torch.optim.AdamW, {"lr": torch.tensor(0.1)}),
]


def round_state(optimizer, dtype):
    """Round the state, and leave it in `dtype`. The counter of steps stays as it is."""
    for state in optimizer.state.values():
        for key, value in state.items():
            if torch.is_tensor(value) and value.dim() > 0:
                state[key] = value.to(torch.bfloat16).to(dtype)


def train(optimizer_class, options, device, dtype_of_state, **scaling):
    """Return the parameter and its state after a few steps; the state is kept in bfloat16."""
    generator = torch.Generator().manual_seed(3)
    options = {"lr": 0.1, **options}
    parameter = torch.randn(1000, generator=generator).to(device).requires_grad_()
    optimizer = optimizer_class([parameter], fused=True, **options)
    for name, value in scaling.items():
        setattr(optimizer, name, torch.tensor(value, device=device))
    for _ in range(STEPS):
        parameter.grad = torch.randn(1000, generator=generator).to(device)
        optimizer.step()
        round_state(optimizer, dtype_of_state)
    state = optimizer.state[parameter]
    return [parameter.detach().cpu(), *(value.cpu().float() for value in state.values())]


@pytest.mark.parametrize(("optimizer_class", "options"), OPTIMIZERS)
@pytest.mark.parametrize("scaling", [{}, {"grad_scale": 4.0, "found_inf": 0.0}])
def test_state_in_bfloat16_is_computed_in_float32_and_rounded_once(
    optimizer_class, options, scaling
):
    found = train(optimizer_class, options, DEVICE, torch.bfloat16, **scaling)
    expected = train(optimizer_class, options, "cpu", torch.float32, **scaling)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("optimizer_class", [torch.optim.Adam, torch.optim.AdamW])
def test_an_infinite_gradient_changes_nothing(optimizer_class):
    parameter = torch.ones(4, device=DEVICE, requires_grad=True)
    optimizer = optimizer_class([parameter], lr=0.1, fused=True)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    round_state(optimizer, torch.bfloat16)
    state = optimizer.state[parameter]
    tensors = [parameter.detach(), *state.values()]
    before = [tensor.clone() for tensor in tensors]
    optimizer.grad_scale = torch.tensor(2.0, device=DEVICE)
    optimizer.found_inf = torch.tensor(1.0, device=DEVICE)
    parameter.grad = torch.full_like(parameter, float("inf"))
    optimizer.step()
    assert all(torch.equal(one, other) for one, other in zip(before, tensors, strict=True))
    assert state["exp_avg"].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("optimizer_class", "name"), [(torch.optim.Adam, "Adam"), (torch.optim.AdamW, "AdamW")]
)
def test_parameters_in_half_precision_with_another_state_are_refused(optimizer_class, name):
    parameter = torch.ones(4, dtype=torch.float16, device=DEVICE, requires_grad=True)
    optimizer = optimizer_class([parameter], lr=0.1, fused=True)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    round_state(optimizer, torch.bfloat16)
    message = f"Mixed-precision fused {name} requires float32 params, got Half"
    with pytest.raises(RuntimeError, match=message):
        optimizer.step()
