"""Memory pools and custom allocators."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.types import Device

from torch_openreg import _C

from ._memory_history import memory_snapshot
from ._utils import _get_device_index
from .devices import _lazy_init, current_device


class _CUDAAllocator:
    """An allocator for `change_current_allocator` and `MemPool`.

    Parameters
    ----------
    allocator : torch_openreg._C._CUDAAllocator
        The functions of the allocator.
    """

    def __init__(self, allocator: Any) -> None:
        self._allocator = allocator

    def allocator(self) -> Any:
        """Return the object to pass to `MemPool`."""
        return self._allocator


class CUDAPluggableAllocator(_CUDAAllocator):
    """An allocator whose functions are in a shared library.

    The functions have the types ``void *alloc(size_t bytes, int device, void *stream)`` and ``void
    free(void *address, size_t bytes, int device, void *stream)``. Sizes are multiples of 512.
    ``alloc`` returns NULL if no memory is left. Otherwise it returns memory of that device that the
    program owns, from `device_malloc` or in a tensor, at an offset that is a multiple of 512 bytes.

    Parameters
    ----------
    path_to_so_file : str
        The path of the library.
    alloc_fn_name, free_fn_name : str
        The names of the functions.
    """

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        library = ctypes.CDLL(path_to_so_file)
        alloc, free = (
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            for name in (alloc_fn_name, free_fn_name)
        )
        super().__init__(_C.custom_allocator(alloc, free))


def change_current_allocator(allocator: _CUDAAllocator) -> None:
    """Use a custom allocator for all device memory.

    The allocator is called for each tensor. Nothing is cached or counted, and functions about
    openreg's own allocator raise an error.

    Parameters
    ----------
    allocator : CUDAPluggableAllocator
        The allocator.

    Raises
    ------
    RuntimeError
        If a device has already been used.
    """
    _C.change_current_allocator(allocator.allocator())


def _get_current_allocator() -> _CUDAAllocator:
    """Return the allocator of `change_current_allocator`; it wraps None if there is none."""
    return _CUDAAllocator(_C.get_allocator())


def device_malloc(nbytes: int, device: Device = None) -> int:
    """Allocate memory directly from a device, as cudaMalloc does, and return its address.

    The statistics of the allocator do not include this memory. It is meant for custom allocators.

    Parameters
    ----------
    nbytes : int
        The size in bytes, at least 1.
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    index = current_device() if device is None else _get_device_index(device)
    return _C.device_malloc(index, nbytes)


def device_free(address: int) -> None:
    """Free memory of `device_malloc` after waiting for the work of the device.

    Parameters
    ----------
    address : int
        The address; 0 does nothing.
    """
    _C.device_free(address)


def graph_pool_handle() -> tuple[int, int]:
    """Return the id of a new pool for graphs to share. The first allocation creates the pool."""
    return _C.graph_pool_handle()


class MemPool(_C._MemPool):
    """A memory pool on all devices. Its allocations share no segments with other allocations.

    When the object is destroyed, its free memory is released. Tensors in the pool stay valid.

    Parameters
    ----------
    allocator : torch_openreg._C._CUDAAllocator or None
        The allocator of its segments, from `CUDAPluggableAllocator.allocator`; None means the
        device.
    use_on_oom : bool
        Whether other allocations may use the pool's free memory if they fit nowhere else, before
        cached memory is released.
    no_split : bool
        Whether each block is a whole segment: an allocation takes 2 MiB or more, and is not split.
    """

    def __init__(
        self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        _lazy_init()
        super().__init__(allocator, use_on_oom, no_split)

    @property
    def id(self) -> tuple[int, int]:
        """The id of the pool in snapshots."""
        return super().id

    @property
    def allocator(self) -> Any:
        """The allocator of the pool's segments; None means the device."""
        return super().allocator

    def use_count(self) -> int:
        """Return the number of owners: this object, and each active `use_mem_pool`."""
        return super().use_count()

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Return the segments of the pool on all devices. See `memory_snapshot`.

        Parameters
        ----------
        include_traces : bool
            Has no effect, because segments have no traces.
        """
        return memory_snapshot(self.id, include_traces=include_traces)


@contextmanager
def use_mem_pool(pool: MemPool, device: Device = None) -> Iterator[None]:
    """Let this thread allocate from a pool, on one device.

    Other threads are not affected, including the thread that computes gradients in ``backward()``.

    Parameters
    ----------
    pool : MemPool
        The pool.
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    index = current_device() if device is None else _get_device_index(device)
    _C.begin_allocate_current_thread_to_pool(index, pool.id)
    try:
        yield
    finally:
        _C.end_allocate_to_pool(index, pool.id)
        _C.release_pool(index, pool.id)
