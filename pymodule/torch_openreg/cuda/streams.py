"""Streams and events: the base classes of ``torch.cuda``'s classes, as named in ``torch._C``."""

from typing import Any

import torch._C

from torch_openreg import _C

__all__ = [
    "_CudaEventBase",
    "_CudaStreamBase",
    "_cuda_getCurrentRawStream",
    "_cuda_getCurrentStream",
    "_cuda_getDefaultStream",
    "_cuda_getStreamFromExternal",
    "_cuda_setStream",
]

_DEVICE_TYPE = 1  # c10::DeviceType::CUDA


class _CudaStreamBase(torch._C.Stream):
    def __new__(
        cls,
        priority: int = 0,
        stream_id: int = 0,
        device_index: int = 0,
        device_type: int = 0,
        stream_ptr: int = 0,
    ) -> Any:
        if device_type or stream_id:
            return super().__new__(
                cls, stream_id=stream_id, device_index=device_index, device_type=_DEVICE_TYPE
            )
        _C.initialize()
        if stream_ptr:
            return super().__new__(
                cls,
                stream_id=_C.stream_of_handle(stream_ptr),
                device_index=_C.device_of_stream_handle(stream_ptr),
                device_type=_DEVICE_TYPE,
            )
        return super().__new__(cls, torch._C.device("cuda", _C.current_device()), priority=priority)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @property
    def cuda_stream(self) -> int:
        return _C.stream_handle(self.device_index, self.stream_id)

    @property
    def priority(self) -> int:
        return _C.stream_priority(self.device_index, self.stream_id)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -3


class _CudaEventBase(torch._C.Event):
    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> Any:
        return super().__new__(
            cls, "cuda", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @property
    def device(self) -> Any:  # type: ignore[override]
        """The device of the stream that recorded the event; None before the first record."""
        device = super().device
        return None if device.index is None else device

    @property
    def cuda_event(self) -> int:
        return self.event_id

    def record(self, stream: Any = None) -> None:
        super().record(_current(stream))

    def wait(self, stream: Any = None) -> None:
        super().wait(_current(stream))

    def elapsed_time(self, end_event: Any) -> float:
        return _C.event_elapsed_time(self, end_event)

    def ipc_handle(self) -> bytes:
        _C.initialize()
        return _C.export_event(self)

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> Any:
        _C.initialize()
        event = cls.__new__(cls)
        _C.import_event_into(event, _C.device_of_handle(handle), handle)  # `device` is the sender's
        return event


def _current(stream: Any) -> Any:
    if stream is not None:
        return stream
    return _CudaStreamBase(
        stream_id=_C.current_stream(_C.current_device()),
        device_index=_C.current_device(),
        device_type=_DEVICE_TYPE,
    )


def _cuda_getCurrentStream(device: int) -> tuple[int, int, int]:
    return _C.current_stream(device), device, _DEVICE_TYPE


def _cuda_getCurrentRawStream(device: int) -> int:
    return _C.stream_handle(device, _C.current_stream(device))


def _cuda_getDefaultStream(device: int) -> tuple[int, int, int]:
    _C.current_stream(device)  # raises if the device does not exist
    return 0, device, _DEVICE_TYPE


def _cuda_getStreamFromExternal(data_ptr: int, device_index: int) -> tuple[int, int, int]:
    # The handle of a default stream names no device.
    stream = _C.stream_of_handle(data_ptr)
    device = _C.device_of_stream_handle(data_ptr) if stream else device_index
    return stream, device, _DEVICE_TYPE


def _cuda_setStream(stream_id: int, device_index: int, device_type: int) -> None:
    _C.initialize()
    if _C.current_device() != device_index:
        _C.set_device(device_index)
    _C.set_current_stream(device_index, stream_id)
