"""Streams and events, with the constructors and functions of ``torch.cuda``.

They are PyTorch's own generic `torch.Stream` and `torch.Event`: what ``torch.accelerator`` hands
out and what is made here is one kind of thing, and may be mixed. A subclass would not do, for
builds of PyTorch without CUDA accept no event of a subclass as an argument. So `Stream` and `Event`
are names to construct by, and to ask with ``isinstance``; and since `torch.Event` refuses to be
sent to another process and cannot be taught, ``event.ipc_handle()`` is ``Event.ipc_handle(event)``.
"""

from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch.types import Device

from torch_openreg import _C

from ._utils import _get_device_index
from .devices import _lazy_init

if TYPE_CHECKING:
    # Subclasses to type checkers, for what is made has all that the generic classes have.
    from torch import Event as _EventBase
    from torch import Stream as _StreamBase
else:
    _EventBase = _StreamBase = object


class _OnThisDevice(type):
    """Class of a class whose instances are those of `_generic` that belong to openreg devices."""

    _generic: type[torch.Event] | type[torch.Stream]

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls._generic) and instance.device.type == "openreg"


class Event(_EventBase, metaclass=_OnThisDevice):
    """A point in the work of a stream.

    Parameters
    ----------
    enable_timing : bool
        Whether `elapsed_time` may be asked.
    blocking : bool
        Whether a thread that waits sleeps.
    interprocess : bool
        Whether other processes may record it and wait for it. They may with every event without
        timing: by its handle, or by the event itself, sent through ``torch.multiprocessing``.
    external : bool
        Has no effect: it is for the capture of graphs, which there is none of.
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
        """Return what another process makes the event from, as long as this process has it.

        Parameters
        ----------
        event : torch.Event
            Without timing, and of this process. One that was never recorded gets its device now:
            the current one.
        """
        _lazy_init()
        return _C.export_event(event)

    @classmethod
    def from_ipc_handle(cls, device: Device, handle: bytes) -> torch.Event:
        """Return an event of another process, as good here as there: it is as the process that
        recorded it last did so, and waiting fails when that one was killed before it was reached.

        Parameters
        ----------
        device : torch.device, str or int
            The device that the event belongs to.
        handle : bytes
            What `ipc_handle` returned there.
        """
        _lazy_init()
        return _C.import_event(_get_device_index(device, optional=True), handle)


class Stream(_StreamBase, metaclass=_OnThisDevice):
    """A queue of work that a device does in order; taken from the device's pool of streams.

    Parameters
    ----------
    device : torch.device, str, int or None
        The device; None, or a negative integer, means the current one.
    priority : int
        Below 0 is high.
    **kwargs
        ``stream_id``, ``device_index`` and ``device_type`` of a stream that exists.
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
        """Return the lowest priority and the highest."""
        return 0, -1


class ExternalStream(Stream):
    """A stream that exists already, by its native handle.

    Parameters
    ----------
    stream_ptr : int
        ``native_handle`` of the stream: its number, whichever the device.
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
    """Return this thread's current stream on a device.

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
    """Return a stream that exists already, by its native handle.

    Parameters
    ----------
    data_ptr : int
        ``native_handle`` of the stream.
    device : torch.device, str, int or None
        The device that the stream belongs to; None means the current one.
    """
    return ExternalStream(data_ptr, device)


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
