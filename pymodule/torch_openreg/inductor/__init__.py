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
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_DYNAMO = "torch._dynamo.device_interface"
_INDUCTOR = "torch._inductor.compile_fx"
_TREES = "torch._inductor.cudagraph_trees"
_FLEX_ATTENTION = "torch.nn.attention.flex_attention"
_PACKAGES = "torch.export.pt2_archive._package"

# _Load executes a module. _Step is called instead of it, with the module and its _Load.
_Load = Callable[[ModuleType], None]
_Step = Callable[[ModuleType, _Load], None]


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

    steps: dict[str, _Step] = {
        _DYNAMO: _after_loading(lambda: _register.with_dynamo(device_type)),
        _INDUCTOR: _after_loading(lambda: _register.with_inductor(device_type)),
        _PACKAGES: _after_loading(lambda: _register.with_packages(device_type)),
    }
    if device_type != "cuda":  # PyTorch's own modules support cuda
        steps[_TREES] = lambda module, load: _register.with_trees(module, device_type)
        steps[_FLEX_ATTENTION] = _after_loading(lambda: _register.with_flex_attention(device_type))
    for name in [name for name in steps if name in sys.modules]:
        steps.pop(name)(sys.modules[name], lambda module: None)
    if steps:
        sys.meta_path.insert(0, _AtImport(steps))


def _after_loading(act: Callable[[], None]) -> _Step:
    def step(module: ModuleType, load: _Load) -> None:
        load(module)
        act()

    return step


class _AtImport:
    """An import hook that lets a step load each of some modules."""

    def __init__(self, steps: dict[str, _Step]) -> None:
        self._steps = steps

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        step = self._steps.pop(name, None)
        if step is None:
            return None
        if not self._steps:
            sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module
            spec.loader.exec_module = lambda module: step(module, load)  # type: ignore[method-assign]
        return spec
