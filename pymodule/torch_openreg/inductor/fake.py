"""The results of convolutions on fake tensors, while a program is traced.

PyTorch chooses the layout by the convolution backend of the device type, and expects contiguous
results from out-of-tree backends. The kernels here are the CPU's, whose results may be in the
channels-last format.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_OPERATORS = (
    torch.ops.aten.convolution.default,
    torch.ops.aten._convolution.default,
    torch.ops.aten.convolution_backward.default,
)


def install(device_type: str) -> None:
    """Give convolutions on a device the layouts of the CPU."""
    for operator in _OPERATORS:
        # PyTorch 2.12 has no implementation of its own for `_convolution`.
        if theirs := fake_impls.op_implementations_dict.get(operator):
            fake_impls.op_implementations_dict[operator] = _as_cpu(device_type, theirs)


def _as_cpu(device_type: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    def implementation(fake_mode: FakeTensorMode, func: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, FakeTensor)]
        devices = {each.fake_device for each in tensors}
        device = devices.pop() if len(devices) == 1 else None
        if device is None or device.type != device_type:
            return theirs(fake_mode, func, *args, **kwargs)

        def moved(value: Any, to: torch.device) -> Any:
            return value.to(to) if isinstance(value, FakeTensor) else value

        host = torch.device("cpu")
        with fake_mode:
            on_host = [moved(each, host) for each in args]
            named = {name: moved(each, host) for name, each in kwargs.items()}
        results = theirs(fake_mode, func, *on_host, **named)
        with fake_mode:
            if isinstance(results, tuple):
                return tuple(moved(each, device) for each in results)
            return moved(results, device)

    return implementation
