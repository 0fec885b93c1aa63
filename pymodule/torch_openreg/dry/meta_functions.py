"""Meta functions that a dry run needs at large sizes.

PyTorch has none for some operators. Its function for convolutions does not know their layout.
"""

from typing import Any

import torch

__all__ = ["apply"]

_library: torch.library.Library | None = None  # the functions live as long as it


def _without_gaps(tensor: torch.Tensor, *others: Any) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _of_input(gradient: torch.Tensor, tensor: torch.Tensor, *others: Any) -> torch.Tensor:
    return _without_gaps(tensor)


def _with_mask(tensor: torch.Tensor, *others: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounded values, and which of them were in the range."""
    return torch.empty_like(tensor), torch.empty_like(tensor, dtype=torch.bool)


def _same(tensor: torch.Tensor, *others: Any) -> torch.Tensor:
    """Return a result with the sizes and strides of the first argument."""
    return torch.empty_like(tensor)


def _convolution(tensor: torch.Tensor, weight: torch.Tensor, *others: Any) -> torch.Tensor:
    """Images stay in channels_last, as with cuDNN."""
    # PyTorch's own functions cannot be imported before PyTorch is.
    from torch._meta_registrations import meta_conv
    from torch._prims_common import suggest_memory_format

    result = meta_conv(tensor, weight, *others)
    if torch.channels_last in (suggest_memory_format(tensor), suggest_memory_format(weight)):
        return torch.empty_like(result, memory_format=torch.channels_last)
    return result


_FUNCTIONS = {
    "_dirichlet_grad": _same,
    "_fake_quantize_learnable_per_channel_affine": _same,
    "_fake_quantize_learnable_per_tensor_affine": _same,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _with_mask,
    "_logcumsumexp": _without_gaps,
    "_standard_gamma_grad": _same,
    "fake_quantize_per_channel_affine_cachemask": _with_mask,
    "fake_quantize_per_tensor_affine_cachemask": _with_mask,
    "multi_margin_loss_backward": _of_input,
    "multilabel_margin_loss_backward": _of_input,
}


def apply() -> None:
    """Register them. A function that PyTorch has stays, except that of convolutions."""
    global _library
    _library = torch.library.Library("aten", "IMPL")
    for name, function in _FUNCTIONS.items():
        overload = f"aten::{name}"
        if not torch._C._dispatch_has_kernel_for_dispatch_key(overload, "Meta"):
            _library.impl(name, function, "Meta")
    _library.impl("convolution", _convolution, "Meta", allow_override=True)
