"""The modules of a program: their paths, and the addresses of their parameters and gradients."""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def storages_of(value: Any) -> Iterator[int]:
    """Yield the addresses of the device memory of a value: a tensor, or a container of tensors."""
    if isinstance(value, torch.Tensor):
        if type(value) not in _PLAIN and hasattr(value, "__tensor_flatten__"):  # it has parts
            with contextlib.suppress(Exception):
                for name in value.__tensor_flatten__()[0]:
                    yield from storages_of(getattr(value, name))
            return
        if value.device.type in ("cuda", "openreg"):
            with contextlib.suppress(Exception):  # one without memory: fake, or of a transform
                if address := value.untyped_storage().data_ptr():
                    yield address
    elif isinstance(value, dict):
        for each in value.values():
            yield from storages_of(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from storages_of(each)


class Modules:
    """The modules that the program has made or called, while they live."""

    def __init__(self) -> None:
        self._modules: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._paths: dict[int, str] = {}
        self._is_named = True

    @property
    def has_new_ones(self) -> bool:
        """Whether a module was added since the last call of `tensors` or `path`."""
        return not self._is_named

    def add(self, module: torch.nn.Module) -> None:
        """Remember a module."""
        key = id(module)
        known = self._modules.get(key)
        if known is None or known() is not module:
            self._modules[key] = weakref.ref(module)
            self._is_named = False

    def _name(self) -> None:
        """Find the path of every module from a module that is part of no other one."""
        self._is_named = True
        # The truth of a module may be its length, or an error.
        alive = {key: module for key, ref in self._modules.items() if (module := ref()) is not None}
        parts = {
            id(child)
            for module in alive.values()
            for child in module.children()
            if child is not None
        }
        self._paths.clear()
        for key, module in alive.items():
            if key in parts:
                continue
            root = type(module).__name__
            for path, part in module.named_modules():
                self._paths[id(part)] = f"{root}.{path}" if path else root
                self._modules.setdefault(id(part), weakref.ref(part))
        self._modules = {key: ref for key, ref in self._modules.items() if ref() is not None}

    def path(self, module: torch.nn.Module) -> str:
        """Return the path of a module, such as "Model.layers.0"."""
        if not self._is_named or id(module) not in self._paths:
            self._name()
        return self._paths.get(id(module), type(module).__name__)

    def tensors(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """Yield the group, the name and the tensor of all parameters, buffers and gradients."""
        if not self._is_named:
            self._name()
        for key, ref in list(self._modules.items()):
            module = ref()
            if module is None:
                continue
            path = self._paths.get(key, type(module).__name__)
            for name, parameter in list(module._parameters.items()):
                if parameter is None:
                    continue
                yield "parameters", f"{path}.{name}", parameter
                if (part := getattr(parameter, "ds_tensor", None)) is not None:  # of DeepSpeed
                    yield "parameters", f"{path}.{name}", part
                if (gradient := parameter.grad if parameter.is_leaf else None) is not None:
                    yield "gradients", f"{path}.{name}", gradient
            for name, buffer in list(module._buffers.items()):
                if buffer is not None:
                    yield "parameters", f"{path}.{name}", buffer
