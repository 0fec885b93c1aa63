"""Checks of values: in a dry run they say of unknown values what they say of zeros.

Unknown memory reads as zero, and so would a check of unknown values: "not finite". A program would
take the way for bad numbers, or raise an error: distributions check their parameters.
"""

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from torch_openreg import _C

__all__ = ["apply"]

# On results of isfinite that are too large to be filled.
_IS_TRUE = "_openreg_is_true"


def _is_unknown(tensor: Any) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not _C.is_known(tensor)


def _is_printing(caller: FrameType) -> bool:
    """Return whether PyTorch formats a tensor, whose copy to the host was recorded."""
    return caller.f_globals.get("__name__") == "torch._tensor_str"


def _make_true(result: torch.Tensor) -> None:
    result.fill_(True)
    if not _C.is_known(result):
        setattr(result, _IS_TRUE, True)


def _answer_for_zeros(holder: Any, name: str, record: Callable[[str, str], Any]) -> None:
    """Let a check of tensors be true of unknown values."""
    check = getattr(holder, name)

    @functools.wraps(check)
    def checking(*arguments: Any, **keywords: Any) -> Any:
        tensor = arguments[0] if arguments else keywords.get("input")
        result = check(*arguments, **keywords)
        if _is_unknown(tensor) and not _is_printing(sys._getframe(1)):
            record(f"aten::{name}", "True")
            _make_true(result)
        return result

    setattr(holder, name, checking)


def _keep_truth(holder: Any, name: str) -> None:
    """Let a function be true of tensors that are true everywhere."""
    function = getattr(holder, name)

    @functools.wraps(function)
    def keeping(*arguments: Any, **keywords: Any) -> Any:
        tensor = arguments[0] if arguments else keywords.get("input")
        result = function(*arguments, **keywords)
        if getattr(tensor, _IS_TRUE, False):
            _make_true(result)
        return result

    setattr(holder, name, keeping)


def apply(record: Callable[[str, str], Any]) -> None:
    """Start it. `record` gets the operator that checks unknown values, and what it says."""
    for holder in (torch, torch.Tensor):
        _answer_for_zeros(holder, "isfinite", record)
        _keep_truth(holder, "all")
    _answer_for_zeros(torch, "_is_all_true", record)  # of torch.distributions
