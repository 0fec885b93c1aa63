"""Operators write to what their schemas say, but for those of which the sanitizer knows it.

One sample of each operator of PyTorch's database is run forward and backward, and of each operator
that this calls it is compared what its arguments held before and after it.
"""

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from device import DEVICE

# `writing_silently` and `filling` of pymodule/bridge/sanitizer/roles.cpp, which also have operators
# that only some kinds of devices call.
KNOWN = {"aten::native_batch_norm.running_mean", "aten::native_batch_norm.running_var"}

pytestmark = pytest.mark.filterwarnings("ignore")


def is_written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def has_memory(value):
    return type(value) is torch.Tensor and value.layout is torch.strided and value.numel() > 0


def storages(value):
    """Return the memory of tensors by where it is."""
    return {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage()
        for tensor in tree_leaves(value)
        if has_memory(tensor) and tensor.device.type == DEVICE
    }


class Effects(TorchDispatchMode):
    """Notes what is called, and which arguments it writes to though its schema does not say it."""

    def __init__(self):
        super().__init__()
        self.called, self.silent = set(), set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        arguments = function._schema.arguments
        values = dict(zip((argument.name for argument in arguments), args, strict=False)) | kwargs
        said = set()
        for argument in arguments:
            if is_written(argument):
                said |= storages(values.get(argument.name)).keys()
        others = [
            (argument.name, storage, storage.cpu())
            for argument in arguments
            for address, storage in storages(values.get(argument.name)).items()
            if address not in said
        ]
        result = function(*args, **kwargs)
        self.called.add(str(function))
        for name, storage, before in others:
            if bytes(storage.cpu()) != bytes(before):
                self.silent.add(f"{function._schema.name}.{name}")
        return result


def on_device(value):
    if isinstance(value, torch.Tensor):
        return value.detach().to(DEVICE).requires_grad_(value.requires_grad)
    return torch.device(DEVICE) if isinstance(value, torch.device) else value


def run(operator):
    """Run a sample forward and backward; what the devices refuse is for the conformance runner."""
    samples = operator.sample_inputs("cpu", torch.float32, requires_grad=operator.supports_autograd)
    sample = next(iter(samples)).transform(on_device)
    try:
        result = operator(sample.input, *sample.args, **sample.kwargs)
        differentiable = [
            tensor
            for tensor in tree_leaves(result)
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad
        ]
        if differentiable:
            torch.autograd.backward(differentiable, [torch.ones_like(t) for t in differentiable])
    except (RuntimeError, NotImplementedError):
        pass


def test_operators_write_to_what_they_say():
    with Effects() as effects:
        for operator in op_db:
            if torch.float32 in operator.dtypes and not operator.name.startswith("jiterator"):
                run(operator)
    assert len(effects.called) > 500
    assert effects.silent == KNOWN
