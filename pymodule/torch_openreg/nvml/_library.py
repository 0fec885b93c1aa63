"""A ctypes interface to ``libnvidia-ml.so.1``, for ``nvidia-smi``: devices and processes.

It always loads the library beside this file, even if the system has another one.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char, c_int, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass, field

from . import LIBRARY, library_folder

_NOT_FOUND, _INSUFFICIENT_SIZE = 6, 7
_TEXT_BYTES = 96
_NAME_BYTES = 4096


class NvmlError(Exception):
    """An error of the library, with its own text."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class _Memory(ctypes.Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", c_uint),
        ("used", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    ]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("bus_id_legacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("device_id", c_uint),
        ("sub_system_id", c_uint),
        ("bus_id", c_char * 32),
    ]


@dataclass(frozen=True)
class Process:
    """One process on one device."""

    pid: int
    name: str
    used_bytes: int


@dataclass(frozen=True)
class Device:
    """The state of a device at one moment; sizes in bytes, shares in percent."""

    index: int
    name: str
    uuid: str
    bus_id: str
    domain: int
    bus: int
    device: int
    device_id: int
    sub_system_id: int
    capability: tuple[int, int]
    total_bytes: int
    used_bytes: int
    free_bytes: int
    busy: int
    busy_memory: int
    processes: list[Process] = field(default_factory=list)


class Library:
    """The library. Use `opened` to initialize it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(library_folder() / LIBRARY))
        self._library.nvmlErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: object) -> None:
        """Call a function; raise NvmlError if it fails."""
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise NvmlError(code, self._library.nvmlErrorString(code).decode())

    def text(self, name: str, *arguments: object, room: int = _TEXT_BYTES) -> str:
        """Call a function that writes text, and return the text."""
        text = ctypes.create_string_buffer(room)
        self.call(name, *arguments, text, c_uint(room))
        return text.value.decode(errors="replace")

    def driver_version(self) -> str:
        return self.text("nvmlSystemGetDriverVersion")

    def cuda_version(self) -> str:
        """Return the CUDA version as text, such as "13.0"."""
        version = c_int()
        self.call("nvmlSystemGetCudaDriverVersion_v2", byref(version))
        return f"{version.value // 1000}.{version.value % 1000 // 10}"

    def count(self) -> int:
        count = c_uint()
        self.call("nvmlDeviceGetCount_v2", byref(count))
        return count.value

    def _process_name(self, pid: int) -> str:
        try:
            return self.text("nvmlSystemGetProcessName", c_uint(pid), room=_NAME_BYTES)
        except NvmlError as error:
            return "[Not Found]" if error.code == _NOT_FOUND else "[Insufficient Permissions]"

    def _processes(self, handle: c_void_p) -> list[Process]:
        room = 8
        while True:
            count, processes = c_uint(room), (_Process * room)()
            try:
                self.call(
                    "nvmlDeviceGetComputeRunningProcesses_v3", handle, byref(count), processes
                )
            except NvmlError as error:
                if error.code != _INSUFFICIENT_SIZE:
                    raise
                room = 2 * count.value
                continue
            return [
                Process(process.pid, self._process_name(process.pid), process.used)
                for process in processes[: count.value]
            ]

    def device(self, index: int) -> Device:
        """Return the state of a device."""
        handle, memory, rates, pci = c_void_p(), _Memory(), _Utilization(), _Pci()
        major, minor = c_int(), c_int()
        self.call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
        self.call("nvmlDeviceGetMemoryInfo", handle, byref(memory))
        self.call("nvmlDeviceGetUtilizationRates", handle, byref(rates))
        self.call("nvmlDeviceGetPciInfo_v3", handle, byref(pci))
        self.call("nvmlDeviceGetCudaComputeCapability", handle, byref(major), byref(minor))
        return Device(
            index=index,
            name=self.text("nvmlDeviceGetName", handle),
            uuid=self.text("nvmlDeviceGetUUID", handle),
            bus_id=pci.bus_id.decode(),
            domain=pci.domain,
            bus=pci.bus,
            device=pci.device,
            device_id=pci.device_id,
            sub_system_id=pci.sub_system_id,
            capability=(major.value, minor.value),
            total_bytes=memory.total,
            used_bytes=memory.used,
            free_bytes=memory.free,
            busy=rates.gpu,
            busy_memory=rates.memory,
            processes=self._processes(handle),
        )


@contextmanager
def opened() -> Iterator[Library]:
    """Context manager that initializes the library and shuts it down."""
    library = Library()
    library.call("nvmlInitWithFlags", c_uint(0))
    try:
        yield library
    finally:
        library.call("nvmlShutdown")
