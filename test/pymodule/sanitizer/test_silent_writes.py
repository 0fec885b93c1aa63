"""Operators only write to the arguments that their schemas name, except for those that it knows.

The test runs one sample of each operator of PyTorch's database forward and backward. For each
operator that this calls, it compares the contents of the arguments before and after the call.
"""

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from device import DEVICE

# From `writing_undeclared` and `writing_outputs` of pymodule/bridge/sanitizer/roles.cpp. These also
# list operators that only other devices call.
KNOWN = {"aten::native_batch_norm.running_mean", "aten::native_batch_norm.running_var"}

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.same_when_queued]


def is_written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def has_memory(value):
    return type(value) is torch.Tensor and value.layout is torch.strided and value.numel() > 0


def storages(value):
    """Return the storages of the tensors that are on a device, by address."""
    return {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage()
        for tensor in tree_leaves(value)
        if has_memory(tensor) and tensor.device.type == DEVICE
    }


class Effects(TorchDispatchMode):
    """Records the called operators, and the arguments that they write against their schema."""

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
    """Run a sample forward and backward. The conformance runner checks what devices reject."""
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


def test_operators_only_write_to_declared_arguments():
    with Effects() as effects:
        for operator in op_db:
            if torch.float32 in operator.dtypes and not operator.name.startswith("jiterator"):
                run(operator)
    assert len(effects.called) > 500
    assert effects.silent == KNOWN
