"""The thread that computes gradients.

As with GPUs, PyTorch's autograd engine runs the backward of each device on a thread of that device,
and the caller waits. In small training steps, switching threads takes longer than the gradients. So
a backward runs on the calling thread if the program cannot tell the difference.
OPENREG_AUTOGRAD_THREADS chooses one of the threads for all backwards that Python starts.
"""

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._C import _ImperativeEngine as ImperativeEngine
from torch.autograd.variable import Variable

from . import _C
from .variables import rejection


class CallingThreadEngine(ImperativeEngine):
    """PyTorch's autograd engine, but it starts no threads for backwards of Python."""

    def run_backward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Compute gradients. The arguments are those of the base class."""
        if not torch._C._is_multithreading_enabled():
            return super().run_backward(*args, **kwargs)
        torch._C._set_multithreading_enabled(False)
        try:
            return super().run_backward(*args, **kwargs)
        finally:
            torch._C._set_multithreading_enabled(True)


class ChoosingEngine(CallingThreadEngine):
    """PyTorch's autograd engine. It uses the calling thread where that cannot be observed."""

    # Whether the program has hooks for saved tensors. They run where the gradients are computed.
    has_saved_tensor_hooks = False

    def run_backward(self, roots: tuple[Any, ...], *args: Any, **kwargs: Any) -> Any:
        """Compute gradients. The arguments are those of the base class."""
        if not self.has_saved_tensor_hooks and _C.may_use_calling_thread(roots):
            return super().run_backward(roots, *args, **kwargs)
        return ImperativeEngine.run_backward(self, roots, *args, **kwargs)

    def notice(self, owner: Any, name: str) -> None:
        """Notice calls of a function that registers hooks for saved tensors."""
        register: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(register)
        def noticed(*args: Any, **kwargs: Any) -> Any:
            self.has_saved_tensor_hooks = True
            return register(*args, **kwargs)

        setattr(owner, name, noticed)


def apply_variable(environment: Mapping[str, str] = os.environ) -> None:
    """Install the engine that OPENREG_AUTOGRAD_THREADS asks for.

    Raises
    ------
    ImportError
        If the variable is neither 0 nor 1.
    """
    value = environment.get("OPENREG_AUTOGRAD_THREADS", "")
    if value not in ("", "0", "1"):
        raise ImportError(rejection("OPENREG_AUTOGRAD_THREADS", value))
    if value == "0":
        Variable._execution_engine = CallingThreadEngine()
    elif value == "":
        engine = ChoosingEngine()
        engine.notice(torch._C._autograd, "_push_saved_tensors_default_hooks")
        engine.notice(torch._C._autograd.SavedTensor, "register_hooks")
        Variable._execution_engine = engine
