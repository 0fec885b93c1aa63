"""Streams and events, with the constructors and functions of ``torch.cuda``.

They are PyTorch's own generic `torch.Stream` and `torch.Event`, so what ``torch.accelerator`` hands
out and what is made here compare equal and may be mixed.
"""

from types import TracebackType
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.types import Device

from ._utils import _get_device_index
from .devices import _lazy_init


class Event(torch.Event):
    """A point in the work of a stream.

    Parameters
    ----------
    enable_timing : bool
        Whether `elapsed_time` may be asked.
    blocking : bool
        Whether a thread that waits sleeps.
    interprocess : bool
        Whether another process may wait for it.
    """

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> "Event":
        return super().__new__(
            cls,
            "openreg",
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )


class Stream(torch.Stream):
    """A queue of work that a device does in order; made from the device's pool of streams.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None, or a negative integer, means the current one.
    priority : int
        Below 0 is high.
    **kwargs
        ``stream_id``, ``device_index`` and ``device_type`` of a stream that exists.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> "Stream":
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        _lazy_init()
        index = _get_device_index(device, optional=True)
        if index < 0:
            index = _get_device_index(None, optional=True)
        return super().__new__(cls, torch.device("openreg", index), priority=priority)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Put an event, a new one if none is given, behind the work of this stream."""
        if event is None:
            event = Event()
        event.record(self)
        return event


def _stream_of(stream_id: int, index: int) -> Stream:
    return Stream(stream_id=stream_id, device_index=index, device_type=DeviceType.PrivateUse1.value)


def current_stream(device: Device = None) -> Stream:
    """Return this thread's current stream on a device.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    index = _get_device_index(device, optional=True)
    return _stream_of(torch.accelerator.current_stream(index).stream_id, index)


def default_stream(device: Device = None) -> Stream:
    """Return the default stream of a device.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    return _stream_of(0, _get_device_index(device, optional=True))


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream the current one of its device, and its device the current one.

    Parameters
    ----------
    stream : torch.Stream or None
        The stream; None changes nothing.
    """
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """Context manager that makes a stream, and its device, the current ones.

    Parameters
    ----------
    stream : torch.Stream or None
        The stream; None changes nothing.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self._outer = current_stream()
            self._inner = current_stream(self.stream.device)
            set_stream(self.stream)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.stream is not None:
            set_stream(self._inner)
            set_stream(self._outer)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return the context manager that makes a stream the current one.

    Parameters
    ----------
    stream : torch.Stream or None
        The stream; None changes nothing.
    """
    return StreamContext(stream)
