"""Automatic mixed precision: the functions that ``torch.amp`` needs, and its tools.

PyTorch's lists for CUDA define the precision of each operator. `policies` returns them.
"""

import functools
from typing import NamedTuple

import torch

from torch_openreg import _C

from .devices import get_device_properties, is_available


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that autocast may cast to.

    For any other dtype, ``torch.autocast`` warns and does nothing. With CUDA, it has no such list
    and casts to any dtype.
    """
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the current device computes in bfloat16.

    Parameters
    ----------
    including_emulation : bool
        Whether to return True even if the simulated GPU has no bfloat16 instructions. GPUs have
        them since compute capability 8.0.
    """
    if not is_available():
        return False
    return including_emulation or get_device_properties().major >= 8


def is_tf32_supported() -> bool:
    """Return whether the simulated GPU has TF32 instructions.

    openreg always computes float32 in full precision.
    """
    return is_bf16_supported(including_emulation=False)


class Policy(NamedTuple):
    """The cast policy of one operator.

    Attributes
    ----------
    operator, overload : str
        The names without the namespace, such as ``"addmm"``; ``""`` is the default overload.
    policy : str
        ``"lower_precision"``, ``"float32"``, ``"float32_set_dtype"``, ``"float32_append_dtype"``,
        ``"promote"`` or ``"banned"``.
    replacement : str or None
        With ``"float32_append_dtype"``, the overload that is called instead.
    """

    operator: str
    overload: str
    policy: str
    replacement: str | None


def policies() -> list[Policy]:
    """Return the policies of all operators that autocast affects."""
    return [Policy(*entry) for entry in _C.autocast_policies()]


class autocast(torch.amp.autocast):
    """`torch.autocast` for this device, with the arguments of ``torch.cuda.amp.autocast``.

    Parameters
    ----------
    enabled : bool
        Whether autocast is active.
    dtype : torch.dtype
        The lower-precision dtype.
    cache_enabled : bool
        Whether to cast each weight only once.
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
        The initial scale, its factor after `growth_interval` steps without inf or NaN gradients,
        and its factor after a step with them.
    growth_interval : int
        The number of such steps after which the scale grows.
    enabled : bool
        Whether the scaler is active.
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
