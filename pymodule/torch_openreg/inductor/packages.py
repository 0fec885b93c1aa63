"""AOTInductor: packages of programs that were compiled ahead of time.

The package contains a CPU program, and metadata with the device that it was exported for. A loaded
program is one kernel (`graph_kernel`). Its weights stay in host memory.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from . import graph_kernel

_DEVICE_KEY = "openreg_device"  # the metadata key of the device index


def compile_for_host(device_type: str, compile_fx: Any) -> None:
    """Make ``compile_fx_aot`` compile programs of a device for the CPU."""
    compile_aot: Callable[..., Any] = compile_fx.compile_fx_aot

    def compile_fx_aot(
        model: GraphModule,
        inputs: list[Any],
        *args: Any,
        config_patches: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        devices = {
            each.device
            for each in (*inputs, *model.parameters(), *model.buffers())
            if isinstance(each, torch.Tensor) and each.device.type == device_type
        }
        if devices:
            _check(model, devices)
            config_patches = dict(config_patches or {})
            note = {_DEVICE_KEY: str(devices.pop().index)}
            patched = config_patches.get("aot_inductor.metadata", {})
            config_patches["aot_inductor.metadata"] = patched | note
            model = graph_kernel.to_cpu(model)
            inputs = pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, inputs)
        return compile_aot(model, inputs, *args, config_patches=config_patches, **kwargs)

    compile_fx.compile_fx_aot = compile_fx_aot


def _check(model: GraphModule, devices: set[torch.device]) -> None:
    """Raise NotImplementedError if a package could not do the same as the program."""
    if len(devices) > 1:
        raise NotImplementedError(
            f"openreg: a package can only use one device, but the program uses "
            f"{', '.join(sorted(map(str, devices)))}"
        )
    for node in graph_kernel.nodes_of(model):
        if graph_kernel.uses_rng(node):
            raise NotImplementedError(
                f"openreg: a package cannot call {node.target}: it would use the random numbers of "
                "the CPU"
            )


def load_onto_devices(device_type: str) -> None:
    """Make packages run on the device that they were exported for."""
    aoti: Any = torch._C._aoti
    theirs = aoti.AOTIModelPackageLoader

    class AOTIModelPackageLoader(theirs):  # type: ignore[valid-type, misc]
        """Loads a package; a program of a device runs on that device, or on the one given."""

        def __init__(
            self, path: str, name: str, run_single_threaded: bool, num_runners: int, index: int
        ) -> None:
            exported_for = theirs.load_metadata_from_package(path, name).get(_DEVICE_KEY)
            super().__init__(
                path, name, run_single_threaded, num_runners, -1 if exported_for else index
            )
            self._kernel = None
            if exported_for is not None:
                device = torch.device(device_type, int(exported_for) if index < 0 else index)
                run_on_cpu = super().boxed_run
                self._kernel = graph_kernel.GraphKernel(
                    lambda inputs, *_: run_on_cpu(inputs), device
                )

        def boxed_run(self, inputs: list[torch.Tensor], *stream: Any) -> list[torch.Tensor]:
            if self._kernel is None:
                return super().boxed_run(inputs, *stream)
            for each in inputs:
                if each.device != self._kernel.device:
                    raise ValueError(
                        f"openreg: the package was loaded for {self._kernel.device}, but an "
                        f"input is on {each.device}"
                    )
            return self._kernel(inputs)

        run = boxed_run

        def load_constants(
            self, constants_map: Mapping[str, torch.Tensor], *args: Any, **kwargs: Any
        ) -> None:
            if self._kernel is not None:
                constants_map = {name: each.cpu() for name, each in constants_map.items()}
                self._constants = constants_map  # the loader may only keep their addresses
            super().load_constants(constants_map, *args, **kwargs)

    aoti.AOTIModelPackageLoader = AOTIModelPackageLoader
