"""Devices: the functions with which ``torch.cuda`` uses devices, as named in ``torch._C``."""

import os
import sys
from functools import cache

from torch_openreg import _C

__all__ = [
    "_CudaDeviceProperties",
    "_cuda_canDeviceAccessPeer",
    "_cuda_exchangeDevice",
    "_cuda_getArchFlags",
    "_cuda_getCompiledVersion",
    "_cuda_getDevice",
    "_cuda_getDeviceCount",
    "_cuda_get_sync_debug_mode",
    "_cuda_hasPrimaryContext",
    "_cuda_init",
    "_cuda_ipc_collect",
    "_cuda_isCurrentStreamCapturing",
    "_cuda_isInBadFork",
    "_cuda_maybeExchangeDevice",
    "_cuda_setDevice",
    "_cuda_set_sync_debug_mode",
    "_cuda_sleep",
    "_cuda_synchronize",
]

_CudaDeviceProperties = _C._DeviceProperties


def _cuda_init() -> None:
    if _cuda_isInBadFork():
        raise RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
            "multiprocessing, you must use the 'spawn' start method"
        )
    _C.initialize()
    torch_cuda = sys.modules["torch.cuda"]
    torch_cuda.default_generators = tuple(  # type: ignore[attr-defined]
        _C.default_generator(device) for device in range(_C.device_count())
    )
    # One object per device, so that the properties of a device compare equal.
    torch_cuda._get_device_properties = cache(  # type: ignore[attr-defined]
        _C.get_device_properties
    )


def _lazy_init() -> None:
    """Initialize torch.cuda; raise if the process was forked after the initialization."""
    sys.modules["torch.cuda"]._lazy_init()


# Processes that asked for the number of devices. CUDA's runtime cannot be used in their forks.
_queried_by: set[int] = set()


def _cuda_getDeviceCount() -> int:
    if not _cuda_isInBadFork():
        _queried_by.add(os.getpid())
    return _C.device_count()


def forget_queries() -> None:
    """Let the process and its forks use the devices, although another process asked for them."""
    _queried_by.clear()


def _cuda_getDevice() -> int:
    _lazy_init()
    return _C.current_device()


def _cuda_setDevice(device: int) -> None:
    if device >= 0:
        _lazy_init()
        _C.set_device(device)


def _cuda_exchangeDevice(device: int) -> int:
    if device >= 0:
        _lazy_init()
    return _C.exchange_device(device)


def _cuda_maybeExchangeDevice(device: int) -> int:
    if device >= 0:
        _lazy_init()
    return _C.maybe_exchange_device(device)


def _cuda_canDeviceAccessPeer(device: int, peer_device: int) -> bool:
    return _C.can_device_access_peer(device, peer_device)


def _cuda_hasPrimaryContext(device: int) -> bool:
    return _C.has_context(device)


def _cuda_isInBadFork() -> bool:
    return _C.in_bad_fork() or bool(_queried_by and os.getpid() not in _queried_by)


def _cuda_synchronize() -> None:
    _C.synchronize(_C.current_device())


def _cuda_sleep(cycles: int) -> None:
    _C.sleep_on_current_stream(cycles)


def _cuda_ipc_collect() -> None:
    _C.ipc_collect()


def _cuda_isCurrentStreamCapturing() -> bool:
    return _C.is_initialized() and _C.current_capture()[0] != 0


def _cuda_get_sync_debug_mode() -> int:
    return _C.sync_debug_mode()


def _cuda_set_sync_debug_mode(debug_mode: int) -> None:
    if debug_mode not in (0, 1, 2):
        raise RuntimeError("invalid value of debug_mode, expected one of 0,1,2")
    _C.set_sync_debug_mode(debug_mode)


def _cuda_getArchFlags() -> str | None:
    """Return the architectures of the devices, as if PyTorch were compiled for them."""
    found = {
        f"sm_{properties.major}{properties.minor}"
        for properties in map(_C.get_device_properties, range(_C.device_count()))
    }
    return " ".join(sorted(found)) or None


def _cuda_getCompiledVersion() -> int:
    from torch.version import cuda  # of the build, unless the variable is set

    major, minor = (cuda or "13.0").split(".")
    return int(major) * 1000 + int(minor) * 10
