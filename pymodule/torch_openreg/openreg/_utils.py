"""Converts device arguments to indices.

``torch.serialization`` looks for `_get_device_index` in the ``_utils`` of a device module, so
neither name may change.
"""

import torch

from torch_openreg import _C


def _get_device_index(device: object, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the index of a device argument.

    Parameters
    ----------
    device : torch.device, str, int, torch.openreg.device or None
        The device. An integer is returned unchanged, even if no such device exists.
    optional : bool
        Whether None, or a device without an index, means the current device.
    allow_cpu : bool
        Whether a CPU device is accepted; its index is -1.

    Raises
    ------
    ValueError
        For a device of another type, or without an index when `optional` is False.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type == "cpu" and allow_cpu:
            return -1
        if device.type != "openreg":
            expected = "openreg or cpu" if allow_cpu else "openreg"
            raise ValueError(f"Expected a {expected} device, but got: {device}")
        if device.index is not None:
            return device.index

    from .devices import _lazy_init
    from .devices import device as device_context

    if isinstance(device, device_context):
        return device.idx
    if optional and (device is None or isinstance(device, torch.device)):
        _lazy_init()
        return _C.current_device()
    raise ValueError(
        f"Expected a torch.device with a specified index or an integer, but got:{device}"
    )
