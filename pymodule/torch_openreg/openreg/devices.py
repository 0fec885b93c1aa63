"""Devices: their number, the current device, and their properties.

Each thread has its own current device and starts with device 0. This module keeps no state: it asks
the extension each time, so C++ and Python cannot disagree.
"""

import warnings
from functools import cache
from types import TracebackType
from typing import Any

from torch.types import Device

from torch_openreg import _C

from ._utils import _get_device_index


def is_available() -> bool:
    """Return whether there is at least one device.

    Never raises an exception. An invalid configuration is reported as a warning.
    """
    try:
        return device_count() > 0
    except RuntimeError as error:
        warnings.warn(f"openreg initialization: {error}", stacklevel=2)
        return False


def device_count() -> int:
    """Return the number of devices, without initializing them.

    Raises
    ------
    RuntimeError
        If an ``OPENREG_`` environment variable has a value that is not allowed.
    """
    return _C.device_count()


def is_initialized() -> bool:
    """Return whether the devices are initialized in this process."""
    return _C.is_initialized() and not _C.in_bad_fork()


def init() -> None:
    """Initialize the devices now instead of on first use, unless they are initialized.

    Raises
    ------
    RuntimeError
        If this process was forked from a process with initialized devices.
    """
    _lazy_init()


def _lazy_init() -> None:
    if _C.in_bad_fork():
        raise RuntimeError(
            "Cannot re-initialize openreg in forked subprocess. To use openreg with "
            "multiprocessing, you must use the 'spawn' start method"
        )
    _C.initialize()


def _is_in_bad_fork() -> bool:
    return _C.in_bad_fork()


def current_device() -> int:
    """Return the index of the current device of this thread."""
    _lazy_init()
    return _C.current_device()


def set_device(device: Device) -> None:
    """Set the current device of this thread.

    Parameters
    ----------
    device : torch.device, str or int
        The device; a negative integer changes nothing.
    """
    index = _get_device_index(device)
    if index >= 0:
        _lazy_init()
        _C.set_device(index)


def _exchange_device(device: int) -> int:
    if device >= 0:
        _lazy_init()
    return _C.exchange_device(device)


def _maybe_exchange_device(device: int) -> int:
    if device >= 0:
        _lazy_init()
    return _C.maybe_exchange_device(device)


class device:
    """Context manager that changes the current device.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device. A negative integer changes nothing, and neither does None.
    """

    def __init__(self, device: Any) -> None:
        self.idx = _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _maybe_exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that changes the current device to the device of a tensor or storage.

    Parameters
    ----------
    obj : torch.Tensor or storage
        The tensor or storage. If it is not on an openreg device, nothing changes.
    """

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_openreg else -1)


def synchronize(device: Device = None) -> None:
    """Wait until all work on a device has finished.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    _C.synchronize(_get_device_index(device, optional=True))


_SYNC_DEBUG_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Choose what happens when the host waits for a device, to find waits that cost time.

    These operations wait: copies between host and device without ``non_blocking``, reading a value
    on the host, ``Stream.synchronize``, `torch.nonzero`, `torch.masked_select` and indexing with a
    mask. Other operators whose output size depends on data are not reported.

    Parameters
    ----------
    debug_mode : int or str
        0 or ``"default"``: nothing; 1 or ``"warn"``: a warning; 2 or ``"error"``: a RuntimeError.

    Raises
    ------
    RuntimeError
        For any other mode.
    """
    _lazy_init()
    if isinstance(debug_mode, str):
        if debug_mode not in _SYNC_DEBUG_MODES:
            raise RuntimeError(
                "invalid value of debug_mode, expected one of `default`, `warn`, `error`, "
                f"got {debug_mode!r}"
            )
        debug_mode = _SYNC_DEBUG_MODES.index(debug_mode)
    if debug_mode not in range(len(_SYNC_DEBUG_MODES)):
        raise RuntimeError(
            f"invalid value of debug_mode, expected one of 0, 1, 2, got {debug_mode}"
        )
    _C.set_sync_debug_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """Return the mode of `set_sync_debug_mode` as a number; initially 0."""
    _lazy_init()
    return _C.sync_debug_mode()


def _valid_index(device: Device, sentence: str, optional: bool = True) -> int:
    index = _get_device_index(device, optional=optional)
    count = device_count()
    if index < 0 or index >= count:
        raise AssertionError(f"{sentence}: {index}, expected 0 to {count - 1}")
    return index


def get_device_properties(device: Device = None) -> _C._DeviceProperties:
    """Return the properties of a device: name, capability, memory in bytes, and others.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    return _properties(_valid_index(device, "Invalid device id"))


@cache
def _properties(index: int) -> _C._DeviceProperties:
    # One object per device, so that the properties of a device compare equal, as in torch.cuda.
    return _C.get_device_properties(index)


def get_device_name(device: Device = None) -> str:
    """Return the name of the GPU that a device simulates.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Return the major and minor compute capability of the GPU that a device simulates.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    properties = get_device_properties(device)
    return properties.major, properties.minor


def operators() -> dict[str, str]:
    """Return how each registered operator is implemented on a device.

    Returns
    -------
    dict
        For the name of each operator, such as ``"aten::add.Tensor"``, one of these words:

        ``native``
            openreg's own kernel: memory, views, copies, random numbers and others
        ``typed``
            PyTorch's CPU kernel, launched on device memory by code for this operator
        ``boxed``
            PyTorch's CPU kernel, launched on device memory by generic code that uses the schema
        ``composite``
            implemented with other operators
        ``refused``
            raises NotImplementedError: there is no kernel, or ``OPENREG_BLOCK_OPERATORS`` names it
    """
    return _C.operators()


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Return whether kernels of a device can access the memory of another device.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device whose kernels run; None means the current one.
    peer_device : torch.device, str or int
        The device whose memory they access.
    """
    _lazy_init()
    index = _valid_index(device, "Invalid device id")
    peer = _valid_index(peer_device, "Invalid peer device id", optional=False)
    return _C.can_device_access_peer(index, peer)
