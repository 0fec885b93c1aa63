"""Support for ``torch.compile`` with its default backend, Inductor.

Inductor generates C++ for the CPU. With kernel addresses as arguments, this code runs on device
memory unchanged. So the devices use Inductor's CPU backend, except for three parts:

- `launches`: launches a generated kernel on the stream of its tensors' device.
- `codegen`: generates Python that calls such kernels and allocates on the right device.
- `cpu_patches`: where Inductor asks whether a device is "cpu" only to choose between C++ and
  Triton, makes a device answer yes.

The other modules:

- `device`: what Inductor and Dynamo ask about a device.
- `fake`: the results of convolutions during tracing.
- `cudagraph_trees`: captures compiled code once and replays it.
- `graph_kernel`: runs a graph as one kernel. `packages` uses it for programs that were compiled
  ahead of time, `cpp_wrapper` for graphs that run without Python.

Nothing of this is imported before a program compiles something: `when_compiling` waits until Dynamo
and Inductor are imported.
"""

import functools

from torch_openreg._at_import import Step, after_loading, at_import

_DYNAMO = "torch._dynamo.device_interface"
_INDUCTOR = "torch._inductor.compile_fx"
_TREES = "torch._inductor.cudagraph_trees"
_FLEX_ATTENTION = "torch.nn.attention.flex_attention"
_PACKAGES = "torch.export.pt2_archive._package"


@functools.cache
def when_compiling(device_type: str) -> None:
    """Register with Dynamo and Inductor as soon as a program imports them.

    A second call does nothing.

    Parameters
    ----------
    device_type : str
        The device type of the devices.
    """
    from torch_openreg.inductor import _register

    steps: dict[str, Step] = {
        _DYNAMO: after_loading(lambda: _register.with_dynamo(device_type)),
        _INDUCTOR: after_loading(lambda: _register.with_inductor(device_type)),
        _PACKAGES: after_loading(lambda: _register.with_packages(device_type)),
    }
    if device_type != "cuda":  # PyTorch's own modules support cuda
        steps[_TREES] = lambda module, load: _register.with_trees(module, device_type)
        steps[_FLEX_ATTENTION] = after_loading(lambda: _register.with_flex_attention(device_type))
    at_import(steps)
