"""Tracks the tensors that a graph reads from outside, and whether their memory was freed."""

import traceback
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_openreg import _C

__all__ = ["InputTracker"]


def _device_tensors(values: Any) -> list[torch.Tensor]:
    return [
        each
        for each in tree_leaves(values)
        if isinstance(each, torch.Tensor) and each.device.type == "openreg" and each.data_ptr() != 0
    ]


class _Input:
    """The storage of a tensor at the time an operator read it, and the stack of the read."""

    def __init__(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.address = storage.data_ptr()
        self.storage = weakref.ref(storage)
        self.place = "".join(traceback.format_stack(limit=12)[:-4])

    def is_alive(self) -> bool:
        storage = self.storage()
        return storage is not None and storage.data_ptr() == self.address


class InputTracker(TorchDispatchMode):
    """A dispatch mode that records which tensors captured operators read."""

    def __init__(self) -> None:
        super().__init__()
        self._inputs: dict[int, _Input] = {}
        self._made: set[int] = set()
        self._is_entered = False

    def start(self) -> None:
        """Start recording."""
        self.__enter__()
        self._is_entered = True

    def stop(self) -> None:
        """Stop recording and keep what was recorded."""
        if self._is_entered:
            self._is_entered = False
            self.__exit__(None, None, None)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if _C.current_capture()[0] != 0:
            for each in _device_tensors((args, kwargs)):
                address = each.untyped_storage().data_ptr()
                if address not in self._made and address not in self._inputs:
                    self._inputs[address] = _Input(each)
            for each in _device_tensors(result):
                if each.untyped_storage().data_ptr() not in self._inputs:
                    self._made.add(each.untyped_storage().data_ptr())
        return result

    def check_alive(self) -> None:
        """Raise RuntimeError if memory that the graph reads has been freed."""
        dead = [each for each in self._inputs.values() if not each.is_alive()]
        if dead:
            places = "\n".join(
                f"Dead tensor (data_ptr={each.address:#x}), read by\n{each.place}" for each in dead
            )
            raise RuntimeError(
                f"openreg graph replay detected {len(dead)} dead tensor(s).\n{places}"
            )
