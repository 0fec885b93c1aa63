"""AOTInductor: programs compiled ahead of time, in files that are loaded and run.

The file holds a program of the CPU. It is compiled for the CPU, with a note of the device that it
was exported on; loaded, it is one kernel: a call of it is a launch, like that of any other CPU
kernel, and what it allocates lies on the device. Its weights stay in the host's memory.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

_NOTE = "openreg_device"  # the index

_operators = torch.library.Library("openreg", "FRAGMENT")
_operators.define("run_package(int number, Tensor place, Tensor[] inputs) -> Tensor[]")

_loaders: list[Any] = []  # by number; a process keeps what it loads, for work may be queued


@torch.library.impl(_operators, "run_package", "CPU")
def _run(number: int, place: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return _loaders[number].boxed_run(list(inputs))


# ---- to compile ----------------------------------------------------------------------------------


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
            model = _on_host(model)
            inputs = pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, inputs)
        return compile_aot(model, inputs, *args, config_patches=config_patches, **kwargs)

    compile_fx.compile_fx_aot = compile_fx_aot


def _check(model: GraphModule, devices: set[torch.device]) -> None:
    """Refuse what a package would do otherwise than the program."""
    if len(devices) > 1:
        raise NotImplementedError(f"openreg: a package runs on one device, not on {devices}")
    for node in _nodes(model):
        if _draws(node):
            raise NotImplementedError(
                f"openreg: {node.target} draws random numbers, which in a package would be the "
                "host's"
            )


def _draws(node: Node) -> bool:
    operator = node.target
    if (
        not isinstance(operator, torch._ops.OpOverload)
        or torch.Tag.nondeterministic_seeded not in operator.tags
    ):
        return False
    arguments = operator._schema.arguments
    given = {each.name: each.default_value for each in arguments if each.has_default_value()}
    given |= dict(zip((each.name for each in arguments), node.args, strict=False)) | node.kwargs
    in_training = given.get("train", given.get("training", True))
    return bool(in_training) and given.get("dropout_p", given.get("p", 1)) != 0


def _nodes(model: GraphModule) -> Iterator[Node]:
    for module in model.modules():
        if isinstance(module, GraphModule):
            yield from module.graph.nodes


def _on_host(model: GraphModule) -> GraphModule:
    model = copy.deepcopy(model).cpu()
    host = torch.device("cpu")
    for node in _nodes(model):
        node.args, node.kwargs = pytree.tree_map_only(
            torch.device, lambda _: host, (node.args, node.kwargs)
        )
        node.meta["val"] = pytree.tree_map_only(
            torch.Tensor, torch.Tensor.cpu, node.meta.get("val")
        )
    for module in model.modules():
        if isinstance(module, GraphModule):
            module.recompile()
    return model


# ---- to load -------------------------------------------------------------------------------------


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
            self._device = None
            if note is not None:
                exported_on = int(note)
                self._device = torch.device(device_type, exported_on if index < 0 else index)
                self._number = len(_loaders)
                _loaders.append(super())

        def boxed_run(self, inputs: list[torch.Tensor], *stream: Any) -> list[torch.Tensor]:
            if self._device is None:
                return super().boxed_run(inputs, *stream)
            for each in inputs:
                if each.device != self._device:
                    raise ValueError(
                        f"openreg: the package was loaded for {self._device}, and an input is on "
                        f"{each.device}"
                    )
            place = torch.empty(0, device=self._device)
            return torch.ops.openreg.run_package(self._number, place, inputs)

        run = boxed_run

        def load_constants(
            self, constants_map: Mapping[str, torch.Tensor], *args: Any, **kwargs: Any
        ) -> None:
            if self._device is not None:
                constants_map = {name: each.cpu() for name, each in constants_map.items()}
                self._constants = constants_map  # who loads them may leave it at addresses
            super().load_constants(constants_map, *args, **kwargs)

    aoti.AOTIModelPackageLoader = AOTIModelPackageLoader
