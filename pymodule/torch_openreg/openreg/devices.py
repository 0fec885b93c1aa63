"""Devices: how many there are, which one is current, and what they are.

The current device belongs to the thread, and every thread starts with device 0. Nothing here keeps
state: the extension is asked each time, so C++ and Python can never disagree.
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

    Never raises. A configuration that cannot be used is reported as a warning.
    """
    try:
        return device_count() > 0
    except RuntimeError as error:
        warnings.warn(f"openreg initialization: {error}", stacklevel=2)
        return False


def device_count() -> int:
    """Return the number of devices. Initializes nothing.

    Raises
    ------
    RuntimeError
        When an ``OPENREG_`` environment variable has a value that is not allowed.
    """
    return _C.device_count()


def is_initialized() -> bool:
    """Return whether the devices exist in this process."""
    return _C.is_initialized() and not _C.in_bad_fork()


def init() -> None:
    """Initialize the devices now instead of on first use; does nothing when that has been done.

    Raises
    ------
    RuntimeError
        In a process that was forked from one with initialized devices.
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
    """Return the index of this thread's current device."""
    _lazy_init()
    return _C.current_device()


def set_device(device: Device) -> None:
    """Make a device the current one of this thread.

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
    """Context manager that makes the device of a tensor or storage the current one.

    Parameters
    ----------
    obj : torch.Tensor or storage
        What is not on an openreg device changes nothing.
    """

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_openreg else -1)


def synchronize(device: Device = None) -> None:
    """Wait until all work given to a device has finished.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    _C.synchronize(_get_device_index(device, optional=True))


_SYNC_DEBUG_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Choose what happens where the host waits for a device: for finding waits that cost time.

    Counted are copies between host and device without ``non_blocking``, numbers that go to the
    host, ``Stream.synchronize``, `torch.nonzero`, `torch.masked_select` and indexing by a mask.
    Other operators whose results are as large as their arguments' content says are not.

    Parameters
    ----------
    debug_mode : int or str
        0 or ``"default"``: nothing; 1 or ``"warn"``: a warning; 2 or ``"error"``: a RuntimeError.

    Raises
    ------
    RuntimeError
        For a mode that is not one of these.
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
    """Return what `set_sync_debug_mode` chose, as a number; 0 at the start."""
    _lazy_init()
    return _C.sync_debug_mode()


def _valid_index(device: Device, sentence: str, optional: bool = True) -> int:
    index = _get_device_index(device, optional=optional)
    count = device_count()
    if index < 0 or index >= count:
        raise AssertionError(f"{sentence}: {index}, expected 0 to {count - 1}")
    return index


def get_device_properties(device: Device = None) -> _C._DeviceProperties:
    """Return what a device is: name, capability, memory in bytes, multiprocessors, placement.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    return _properties(_valid_index(device, "Invalid device id"))


@cache
def _properties(index: int) -> _C._DeviceProperties:
    # One object a device, so that the answers for one device are equal, as with torch.cuda.
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
    """Return major and minor compute capability of the GPU that a device simulates.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    properties = get_device_properties(device)
    return properties.major, properties.minor


def operators() -> dict[str, str]:
    """Return how each operator that is registered now is served on a device.

    Returns
    -------
    dict
        The operator's name and overload, as in ``"aten::add.Tensor"``, and one word for it:

        ``native``
            a kernel of openreg's own: memory, views, copies, random numbers and the like
        ``typed``
            PyTorch's CPU kernel, launched on device memory by code made for this operator
        ``boxed``
            PyTorch's CPU kernel, launched on device memory by the operator's schema
        ``composite``
            made of other operators
        ``refused``
            raises NotImplementedError: there is no kernel, or ``OPENREG_BLOCK_OPERATORS`` names it
    """
    return _C.operators()


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Return whether kernels of a device may reach the memory of another one.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device whose kernels run; None means the current one.
    peer_device : torch.device, str or int
        The device whose memory is reached.
    """
    _lazy_init()
    index = _valid_index(device, "Invalid device id")
    peer = _valid_index(peer_device, "Invalid peer device id", optional=False)
    return _C.can_device_access_peer(index, peer)
