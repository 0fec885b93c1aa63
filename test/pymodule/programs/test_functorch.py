"""The transforms of torch.func on a device: the results equal the CPU's and stay on the device."""

import pytest
import torch
from torch import func
from torch.utils import _pytree

from device import DEVICE


def values(device):
    return torch.linspace(-1, 1, 6, dtype=torch.float64).view(2, 3).to(device)


def batch(device):
    return torch.stack([values(device) * factor for factor in (1, 2, 3, 4)])


def scalar(x):
    return (x.sin() * x).sum()


def vector(x):
    return (x.tanh() @ x.t()).sum(0)


def model(device):
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8, 2)]
    return torch.nn.Sequential(*layers).to(device, torch.float64)


def images(device):
    return torch.linspace(-1, 1, 48, dtype=torch.float64).view(3, 1, 4, 4).to(device)


def vjp(device):
    result, pull_back = func.vjp(vector, values(device))
    return result, pull_back(torch.ones_like(result))


def gradients_of_each_image(device):
    network = model(device)
    parameters = {name: weight.detach() for name, weight in network.named_parameters()}

    def loss(weights, image):
        return func.functional_call(network, weights, (image.unsqueeze(0),)).square().sum()

    return func.vmap(func.grad(loss), in_dims=(None, 0))(parameters, images(device))


def ensemble(device):
    networks = [model(device) for _ in range(2)]
    parameters, buffers = func.stack_module_state(networks)

    def call(weights, state):
        return func.functional_call(networks[0], (weights, state), (images(device),))

    return func.vmap(call)(parameters, buffers)


TRANSFORMS = {
    "grad": lambda d: func.grad(scalar)(values(d)),
    "grad_and_value": lambda d: func.grad_and_value(scalar)(values(d)),
    "grad of grad": lambda d: func.grad(lambda x: func.grad(scalar)(x).sum())(values(d)),
    "vjp": vjp,
    "jvp": lambda d: func.jvp(vector, (values(d),), (values(d),)),
    "jacrev": lambda d: func.jacrev(vector)(values(d)),
    "jacfwd": lambda d: func.jacfwd(vector)(values(d)),
    "hessian": lambda d: func.hessian(scalar)(values(d)),
    "linearize": lambda d: func.linearize(vector, values(d))[1](values(d)),
    "vmap": lambda d: func.vmap(vector)(batch(d)),
    "vmap of vmap": lambda d: func.vmap(func.vmap(torch.dot))(batch(d), batch(d)),
    "vmap of grad": lambda d: func.vmap(func.grad(scalar))(batch(d)),
    "vmap in chunks": lambda d: func.vmap(vector, chunk_size=3)(batch(d)),
    "vmap over a column": lambda d: func.vmap(torch.matmul, in_dims=(1, None))(
        values(d), values(d)
    ),
    "vmap in place": lambda d: func.vmap(lambda x: x.add_(1))(batch(d)),
    "vmap of indexing": lambda d: func.vmap(lambda x: x[torch.tensor([1, 0], device=d)])(batch(d)),
    "vmap of linalg": lambda d: func.vmap(torch.linalg.svdvals)(batch(d)),
    "functionalize": lambda d: func.functionalize(lambda x: x.clone().view(-1).mul_(2))(values(d)),
    "gradients of each image": gradients_of_each_image,
    "ensemble": ensemble,
    "jacobian": lambda d: torch.autograd.functional.jacobian(vector, values(d)),
    "jacobian in forward mode": lambda d: torch.autograd.functional.jacobian(
        vector, values(d), vectorize=True, strategy="forward-mode"
    ),
    "hvp": lambda d: torch.autograd.functional.hvp(scalar, values(d), values(d)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform_agrees_with_the_cpu(name):
    actual = _pytree.tree_leaves(TRANSFORMS[name](f"{DEVICE}:1"))
    expected = _pytree.tree_leaves(TRANSFORMS[name]("cpu"))
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.device == torch.device(f"{DEVICE}:1")
        torch.testing.assert_close(ours.cpu(), theirs)


def test_vmap_draws_different_numbers_for_each_element():
    torch.manual_seed(0)
    drawn = func.vmap(lambda x: x + torch.rand_like(x), randomness="different")(
        torch.zeros(3, 2, device=DEVICE)
    )
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(3, 2, device=DEVICE))


def test_vmap_draws_the_same_numbers_for_all_elements():
    drawn = func.vmap(lambda x: x + torch.rand_like(x), randomness="same")(
        torch.zeros(3, 2, device=DEVICE)
    )
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])


def test_vmap_refuses_random_numbers_by_default():
    with pytest.raises(
        RuntimeError, match="called random operation while in randomness error mode"
    ):
        func.vmap(lambda x: x + torch.rand_like(x))(torch.zeros(3, device=DEVICE))


def test_vmap_refuses_values_on_the_host():
    with pytest.raises(RuntimeError, match="calling .item\\(\\) on a Tensor"):
        func.vmap(lambda x: x.item())(torch.zeros(3, device=DEVICE))


def test_vmap_over_two_devices_is_refused():
    with pytest.raises(RuntimeError, match="same device"):
        func.vmap(torch.mul)(batch(f"{DEVICE}:0"), batch(f"{DEVICE}:1"))
