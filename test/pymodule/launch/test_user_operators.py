"""Operators that a user registers for the CPU after the import run on devices unchanged."""

import numpy
import pytest
import torch

from device import DEVICE


@torch.library.custom_op("openreg_user::sine_and_cosine", mutates_args=(), device_types="cpu")
def sine_and_cosine(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    array = x.numpy()
    return torch.from_numpy(numpy.sin(array)), torch.from_numpy(numpy.cos(array))


@sine_and_cosine.register_fake
def _(x):
    return torch.empty_like(x), torch.empty_like(x)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _backward(ctx, of_sine, of_cosine):
    (x,) = ctx.saved_tensors
    return of_sine * x.cos() - of_cosine * x.sin()


sine_and_cosine.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("openreg_user::overwrite", mutates_args={"x"}, device_types="cpu")
def overwrite(x: torch.Tensor, value: float) -> None:
    x.numpy()[:] = value


@pytest.fixture
def library():
    with torch.library._scoped_library("openreg_user_scoped", "FRAGMENT") as library:
        yield library


def test_results_are_on_the_device():
    x = torch.arange(3.0)
    for ours, theirs in zip(sine_and_cosine(x.to(f"{DEVICE}:1")), sine_and_cosine(x), strict=True):
        assert ours.device == torch.device(f"{DEVICE}:1")
        assert torch.equal(ours.cpu(), theirs)


def test_gradients_agree_with_the_cpu():
    def gradient(device):
        x = torch.arange(3.0, device=device, requires_grad=True)
        sine, cosine = sine_and_cosine(x)
        (sine * 2 + cosine).sum().backward()
        return x.grad

    assert gradient(DEVICE).device == torch.device(f"{DEVICE}:0")
    torch.testing.assert_close(gradient(DEVICE).cpu(), gradient("cpu"))


def test_operator_that_writes_to_its_argument_writes_to_device_memory():
    tensor = torch.zeros(4, device=DEVICE)
    overwrite(tensor[1:3], 5.0)
    assert tensor.tolist() == [0.0, 5.0, 5.0, 0.0]
    assert tensor._version == 1


def test_operator_compiles():
    function = torch.compile(lambda x: sine_and_cosine(x)[0] * 2, backend="aot_eager")
    x = torch.arange(3.0)
    torch.testing.assert_close(function(x.to(DEVICE)).cpu(), 2 * x.sin())


def test_lists_and_tensors_that_may_be_missing(library):
    library.define("each(Tensor[] xs, Tensor? more=None, int factor=2) -> Tensor[]")

    def each(xs, more=None, factor=2):
        return [x * factor + (0 if more is None else more) for x in xs]

    library.impl("each", each, "CPU")
    operator = torch.ops.openreg_user_scoped.each
    ones = torch.ones(2, device=DEVICE)
    assert [r.tolist() for r in operator([ones, ones[:1]])] == [[2.0, 2.0], [2.0]]
    assert operator([ones], ones, 3)[0].tolist() == [4.0, 4.0]


def test_results_that_are_not_tensors(library):
    library.define("facts(Tensor x) -> (float, int, bool)")
    library.impl("facts", lambda x: (x.sum().item(), x.numel(), bool(x.any())), "CPU")
    facts = torch.ops.openreg_user_scoped.facts(torch.ones(3, device=DEVICE))
    assert facts == (3.0, 3, True)


def test_result_that_is_a_view_of_an_argument(library):
    library.define("tail(Tensor(a) x) -> Tensor(a)")
    library.impl("tail", lambda x: x[1:], "CPU")
    tensor = torch.zeros(3, device=DEVICE)
    torch.ops.openreg_user_scoped.tail(tensor).fill_(1)
    assert tensor.tolist() == [0.0, 1.0, 1.0]


def test_result_that_is_an_argument(library):
    library.define("same(Tensor(a!) x) -> Tensor(a!)")
    library.impl("same", lambda x: x.add_(1), "CPU")
    tensor = torch.zeros(2, device=DEVICE)
    assert torch.ops.openreg_user_scoped.same(tensor) is tensor
    assert tensor.tolist() == [1.0, 1.0]


def test_composite_operator_stays_on_the_device(library):
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
    assert (
        torch.ops.openreg_user_scoped.twice(torch.ones(2, device=f"{DEVICE}:1")).get_device() == 1
    )


def test_error_of_the_operator_reaches_the_caller(library):
    library.define("refuse(Tensor x) -> Tensor")

    def refuse(x):
        raise ValueError(f"not for {x.numel()} elements")

    library.impl("refuse", refuse, "CPU")
    with pytest.raises(ValueError, match="not for 2 elements"):
        torch.ops.openreg_user_scoped.refuse(torch.ones(2, device=DEVICE))
    assert torch.ones(2, device=DEVICE).device.type == DEVICE
