"""OPENREG_AUTOGRAD_THREADS=0: run backward on the calling thread.

As with GPUs, PyTorch's autograd engine runs the backward of each device on a thread of that device,
and the caller waits. In small training steps, switching threads takes longer than the gradients.
"""

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch._C import _ImperativeEngine as ImperativeEngine
from torch.autograd.variable import Variable

from .variables import rejection


class CallingThreadEngine(ImperativeEngine):
    """PyTorch's autograd engine, but every backward that Python starts uses no other threads."""

    def run_backward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Compute gradients. The arguments are those of the base class."""
        if not torch._C._is_multithreading_enabled():
            return super().run_backward(*args, **kwargs)
        torch._C._set_multithreading_enabled(False)
        try:
            return super().run_backward(*args, **kwargs)
        finally:
            torch._C._set_multithreading_enabled(True)


def apply_variable(environment: Mapping[str, str] = os.environ) -> None:
    """Install the engine if OPENREG_AUTOGRAD_THREADS is 0.

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
