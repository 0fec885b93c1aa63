"""Automatic mixed precision: what ``torch.amp`` asks of a device, and its tools for this device.

Which operators run in which precision is said by PyTorch's lists for CUDA; `policies` shows it.
"""

import functools
from typing import NamedTuple

import torch

from torch_openreg import _C

from .devices import get_device_properties, is_available


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that autocast may cast to.

    For any other, ``torch.autocast`` warns and does nothing. On CUDA alone it asks for no such
    list and casts to whatever it is given.
    """
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the current device computes in bfloat16.

    Parameters
    ----------
    including_emulation : bool
        Whether it counts when the GPU that is simulated has no instructions for it. GPUs have
        them from compute capability 8.0 on.
    """
    if not is_available():
        return False
    return including_emulation or get_device_properties().major >= 8


def is_tf32_supported() -> bool:
    """Return whether the GPU that the current device simulates has instructions for TF32.

    Here float32 is computed with all of its bits, whatever is allowed.
    """
    return is_bf16_supported(including_emulation=False)


class Policy(NamedTuple):
    """What autocast does with one operator.

    Attributes
    ----------
    operator, overload : str
        Names without namespace, ``"addmm"``; the overload is ``""`` for the default one.
    policy : str
        ``"lower_precision"``, ``"float32"``, ``"float32_set_dtype"``, ``"float32_append_dtype"``,
        ``"promote"`` or ``"banned"``.
    replacement : str or None
        The overload that is called instead, of an operator with ``"float32_append_dtype"``.
    """

    operator: str
    overload: str
    policy: str
    replacement: str | None


def policies() -> list[Policy]:
    """Return the cast policy of every operator that has one; autocast leaves others alone."""
    return [Policy(*entry) for entry in _C.autocast_policies()]


class autocast(torch.amp.autocast):
    """`torch.autocast` for this device, with the arguments of ``torch.cuda.amp.autocast``.

    Parameters
    ----------
    enabled : bool
        Whether anything is cast.
    dtype : torch.dtype
        The lower precision.
    cache_enabled : bool
        Whether a weight is cast once or for each use.
    """

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__("openreg", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` for this device.

    Parameters
    ----------
    init_scale, growth_factor, backoff_factor : float
        The first scale, and what it is multiplied by after good steps and after a bad one.
    growth_interval : int
        How many good steps make the scale grow.
    enabled : bool
        Whether anything is scaled.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            "openreg",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="openreg")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="openreg")
