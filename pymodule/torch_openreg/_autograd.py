"""OPENREG_AUTOGRAD_THREADS=0: a backward runs on the thread that asks for it.

PyTorch's engine hands the backward of each device to a thread of that device, as with GPUs, and the
caller sleeps until it is done. Small steps pay more for that than for their gradients.
"""

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch._C import _ImperativeEngine as ImperativeEngine
from torch.autograd.variable import Variable


class CallingThreadEngine(ImperativeEngine):
    """PyTorch's engine, without its threads in every backward that Python begins."""

    def run_backward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Compute gradients; the arguments are the engine's own."""
        if not torch._C._is_multithreading_enabled():
            return super().run_backward(*args, **kwargs)
        torch._C._set_multithreading_enabled(False)
        try:
            return super().run_backward(*args, **kwargs)
        finally:
            torch._C._set_multithreading_enabled(True)


def heed_variable(environment: Mapping[str, str] = os.environ) -> None:
    """Do what the variable says; any value but 0 and 1 is an ImportError."""
    value = environment.get("OPENREG_AUTOGRAD_THREADS", "")
    if value not in ("", "0", "1"):
        raise ImportError(f"openreg: OPENREG_AUTOGRAD_THREADS={value[:100]}: expected 0 or 1")
    if value == "0":
        Variable._execution_engine = CallingThreadEngine()
