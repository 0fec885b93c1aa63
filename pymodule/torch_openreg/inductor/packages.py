"""AOTInductor: programs compiled ahead of time, in files that are loaded and run.

The file holds a program of the CPU, with a note of the device that it was exported on; loaded, it
is one kernel (`graph_kernel`). Its weights stay in the host's memory.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from . import graph_kernel

_NOTE = "openreg_device"  # the index


def compile_for_host(device_type: str, compile_fx: Any) -> None:
    """Have ``compile_fx_aot`` compile a device's program for the CPU."""
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
            note = {_NOTE: str(devices.pop().index)}
            patched = config_patches.get("aot_inductor.metadata", {})
            config_patches["aot_inductor.metadata"] = patched | note
            model = graph_kernel.on_host(model)
            inputs = pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, inputs)
        return compile_aot(model, inputs, *args, config_patches=config_patches, **kwargs)

    compile_fx.compile_fx_aot = compile_fx_aot


def _check(model: GraphModule, devices: set[torch.device]) -> None:
    """Refuse what a package would do otherwise than the program."""
    if len(devices) > 1:
        raise NotImplementedError(f"openreg: a package runs on one device, not on {devices}")
    for node in graph_kernel.nodes_of(model):
        if graph_kernel.draws(node):
            raise NotImplementedError(
                f"openreg: {node.target} draws random numbers, which in a package would be the "
                "host's"
            )


def load_onto_devices(device_type: str) -> None:
    """Have packages run on the device that they are for."""
    aoti: Any = torch._C._aoti
    theirs = aoti.AOTIModelPackageLoader

    class AOTIModelPackageLoader(theirs):  # type: ignore[valid-type, misc]
        """Loads a program; one that was exported on a device runs on that, or on another one."""

        def __init__(
            self, path: str, name: str, run_single_threaded: bool, num_runners: int, index: int
        ) -> None:
            note = theirs.load_metadata_from_package(path, name).get(_NOTE)
            super().__init__(path, name, run_single_threaded, num_runners, -1 if note else index)
            self._launched = None
            if note is not None:
                device = torch.device(device_type, int(note) if index < 0 else index)
                on_host = super().boxed_run
                self._launched = graph_kernel.Launched(lambda inputs, *_: on_host(inputs), device)

        def boxed_run(self, inputs: list[torch.Tensor], *stream: Any) -> list[torch.Tensor]:
            if self._launched is None:
                return super().boxed_run(inputs, *stream)
            for each in inputs:
                if each.device != self._launched.device:
                    raise ValueError(
                        f"openreg: the package was loaded for {self._launched.device}, and an "
                        f"input is on {each.device}"
                    )
            return self._launched(inputs)

        run = boxed_run

        def load_constants(
            self, constants_map: Mapping[str, torch.Tensor], *args: Any, **kwargs: Any
        ) -> None:
            if self._launched is not None:
                constants_map = {name: each.cpu() for name, each in constants_map.items()}
                self._constants = constants_map  # who loads them may leave it at addresses
            super().load_constants(constants_map, *args, **kwargs)

    aoti.AOTIModelPackageLoader = AOTIModelPackageLoader
