"""Streams and events, with the constructors and functions of ``torch.cuda``.

The objects are PyTorch's generic `torch.Stream` and `torch.Event`, as ``torch.accelerator`` returns
them, so both can be mixed. Subclasses would not work: a PyTorch without CUDA rejects an event of a
subclass as an argument. So the classes `Stream` and `Event` here only construct the generic objects
and support ``isinstance``. And because methods cannot be added to `torch.Event`, instead of
``event.ipc_handle()`` write ``Event.ipc_handle(event)``.
"""

from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch.types import Device

from torch_openreg import _C

from ._utils import _get_device_index
from .devices import _lazy_init

if TYPE_CHECKING:
    # For type checkers, subclasses: the objects have all members of the generic classes.
    from torch import Event as _EventBase
    from torch import Stream as _StreamBase
else:
    _EventBase = _StreamBase = object


class _OnThisDevice(type):
    """A metaclass: the instances of its classes are the `_generic` objects of openreg devices."""

    _generic: type[torch.Event] | type[torch.Stream]

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls._generic) and instance.device.type == "openreg"


class Event(_EventBase, metaclass=_OnThisDevice):
    """An event: a point in the work of a stream.

    Parameters
    ----------
    enable_timing : bool
        Whether the event measures time, for `elapsed_time`.
    blocking : bool
        Whether waiting threads sleep instead of polling.
    interprocess : bool
        Whether other processes may use the event. openreg allows this for every event without
        timing: by its handle, or by sending the event through ``torch.multiprocessing``.
    external : bool
        Has no effect.
    """

    _generic = torch.Event

    def __new__(  # type: ignore[misc]
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> torch.Event:
        return torch.Event(
            "openreg", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )

    @staticmethod
    def ipc_handle(  # type: ignore[override]
        event: torch.Event,
    ) -> bytes:
        """Return a handle from which another process can open the event while it exists here.

        Parameters
        ----------
        event : torch.Event
            An event of this process, without timing. If it was never recorded, it is assigned to
            the current device now.
        """
        _lazy_init()
        return _C.export_event(event)

    @classmethod
    def from_ipc_handle(cls, device: Device, handle: bytes) -> torch.Event:
        """Open an event of another process.

        The event has the state of the last recording by any process. Waiting raises an error if the
        recording process was killed before the stream reached the event.

        Parameters
        ----------
        device : torch.device, str or int
            The device that the event belongs to.
        handle : bytes
            The result of `ipc_handle` in the other process.
        """
        _lazy_init()
        return _C.import_event(_get_device_index(device, optional=True), handle)


class Stream(_StreamBase, metaclass=_OnThisDevice):
    """A stream: a queue of work that a device executes in order, from the device's stream pool.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None or a negative integer means the current one.
    priority : int
        The priority; negative numbers are high.
    **kwargs
        ``stream_id``, ``device_index`` and ``device_type`` of an existing stream.
    """

    _generic = torch.Stream

    def __new__(  # type: ignore[misc]
        cls, device: Device = None, priority: int = 0, **kwargs: Any
    ) -> torch.Stream:
        if kwargs:
            return torch.Stream(**kwargs)
        _lazy_init()
        index = _get_device_index(device, optional=True)
        if index < 0:
            index = _get_device_index(None, optional=True)
        return torch.Stream(torch.device("openreg", index), priority=priority)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority."""
        return 0, -3


class ExternalStream(Stream):
    """An existing stream, given by its native handle.

    Parameters
    ----------
    stream_ptr : int
        The ``native_handle`` of the stream: its number, on any device.
    device : torch.device, str, int or None
        The device that the stream belongs to; None means the current one.
    """

    def __new__(  # type: ignore[misc]
        cls, stream_ptr: int, device: Device = None, **kwargs: Any
    ) -> torch.Stream:
        current = current_stream(device)
        return torch.Stream(
            stream_id=stream_ptr,
            device_index=current.device_index,
            device_type=current.device_type,
            **kwargs,
        )


def current_stream(device: Device = None) -> torch.Stream:
    """Return the current stream of this thread on a device.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    return torch.accelerator.current_stream(_get_device_index(device, optional=True))


def default_stream(device: Device = None) -> torch.Stream:
    """Return the default stream of a device.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    current = current_stream(device)
    return torch.Stream(
        stream_id=0, device_index=current.device_index, device_type=current.device_type
    )


def get_stream_from_external(data_ptr: int, device: Device = None) -> torch.Stream:
    """Return an existing stream, given by its native handle.

    Parameters
    ----------
    data_ptr : int
        The ``native_handle`` of the stream.
    device : torch.device, str, int or None
        The device that the stream belongs to; None means the current one.
    """
    return ExternalStream(data_ptr, device)


def set_stream(stream: torch.Stream | None) -> None:
    """Set the current stream of the stream's device, and set that device as the current one.

    Parameters
    ----------
    stream : torch.Stream or None
        The stream; None changes nothing.
    """
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """Context manager that changes the current stream and the current device.

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
    """Return a context manager that changes the current stream and the current device.

    Parameters
    ----------
    stream : torch.Stream or None
        The stream; None changes nothing.
    """
    return StreamContext(stream)
