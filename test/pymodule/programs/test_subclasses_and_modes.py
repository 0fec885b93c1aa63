"""Python tensor subclasses and modes see a device's operators like the CPU's."""

import copy

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from device import DEVICE


class Wrapper(torch.Tensor):
    """A tensor without memory that wraps a tensor with memory."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, strides=inner.stride()
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        args, kwargs = tree_map_only(Wrapper, lambda each: each.inner, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, Wrapper, operator(*args, **kwargs))


class Recorded(torch.Tensor):
    """A tensor that records the functions that are called with it."""

    names: list[str] = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.names.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})


class Operators(TorchDispatchMode):
    """Records every operator below autograd."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names.append(str(operator))
        return operator(*args, **(kwargs or {}))


def test_wrapper_computes_with_its_inner_tensor():
    wrapper = Wrapper(torch.arange(4.0, device=f"{DEVICE}:1"))
    result = (wrapper * 2 + 1).view(2, 2).t()
    assert type(result) is Wrapper and result.device == torch.device(f"{DEVICE}:1")
    assert result.inner.tolist() == [[1.0, 5.0], [3.0, 7.0]]
    wrapper.add_(1)
    assert wrapper.inner.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_wrapper_moves_and_is_copied():
    wrapper = Wrapper(torch.arange(4.0, device=f"{DEVICE}:1"))
    assert wrapper.cpu().inner.device == torch.device("cpu")
    assert wrapper.to(f"{DEVICE}:0").inner.device == torch.device(f"{DEVICE}:0")
    assert copy.deepcopy(wrapper).inner.device == torch.device(f"{DEVICE}:1")


def test_wrapper_has_gradients():
    leaf = Wrapper(torch.ones(3, device=DEVICE)).requires_grad_()
    (leaf * 3).sum().backward()
    assert type(leaf.grad) is Wrapper and leaf.grad.inner.tolist() == [3.0, 3.0, 3.0]


def test_plain_subclass_keeps_its_type():
    class Named(torch.Tensor):
        pass

    tensor = torch.ones(2, device=DEVICE).as_subclass(Named)
    for result in (
        tensor + 1,
        tensor[0],
        tensor.cpu(),
        tensor.to(f"{DEVICE}:1"),
        tensor.clone().add_(1),
    ):
        assert type(result) is Named
    made = torch.Tensor._make_subclass(Named, torch.ones(2, device=DEVICE))
    assert type(made) is Named and (made + 1).tolist() == [2.0, 2.0]


def test_subclass_sees_the_functions_called_with_it():
    Recorded.names.clear()
    tensor = torch.ones(2, device=DEVICE).as_subclass(Recorded)
    torch.nn.functional.relu(tensor).sum()
    assert Recorded.names == ["relu", "sum"]


def test_parameter_of_a_subclass():
    parameter = torch.nn.Parameter(torch.ones(2, device=DEVICE).as_subclass(Recorded))
    (parameter * 2).sum().backward()
    assert isinstance(parameter, Recorded) and parameter.grad.tolist() == [2.0, 2.0]


def test_dispatch_mode_sees_the_operators_of_the_cpu():
    def operators(device):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.LayerNorm(4)]
        network = torch.nn.Sequential(*layers).to(device)
        rows = torch.ones(2, 3, device=device)
        with Operators() as mode:
            network(rows).exp().square().mean().backward()
        return mode.names

    assert operators(DEVICE) == operators("cpu")
    assert "aten.native_layer_norm_backward.default" in operators(DEVICE)


def test_dispatch_mode_may_change_the_device():
    class Second(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if "device" in kwargs:
                kwargs["device"] = torch.device(f"{DEVICE}:1")
            return operator(*args, **kwargs)

    with Second():
        assert torch.ones(2, device=f"{DEVICE}:0").device == torch.device(f"{DEVICE}:1")


def test_function_mode_sees_the_methods_of_the_backend():
    class Functions(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.names.append(function.__name__)
            return function(*args, **(kwargs or {}))

    with Functions() as mode:
        getattr(torch.ones(2, device=DEVICE), DEVICE)(1).sum()
    assert mode.names == ["ones", DEVICE, "sum"]
