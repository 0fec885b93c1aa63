"""Where memory comes from: pools, kept apart from all else, and allocators of one's own."""

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
    """An allocator, as `change_current_allocator` and `MemPool` take it.

    Parameters
    ----------
    allocator : torch_openreg._C._CUDAAllocator
        Its functions.
    """

    def __init__(self, allocator: Any) -> None:
        self._allocator = allocator

    def allocator(self) -> Any:
        """Return what a `MemPool` takes."""
        return self._allocator


class CUDAPluggableAllocator(_CUDAAllocator):
    """An allocator whose functions are in a library.

    They have the types ``void *alloc(size_t bytes, int device, void *stream)`` and ``void
    free(void *address, size_t bytes, int device, void *stream)``. What ``alloc`` returns must be
    memory of that device that the program has, from `device_malloc` or in a tensor, and begin a
    multiple of 512 bytes from there; or NULL, when none is left. Sizes are multiples of 512.

    Parameters
    ----------
    path_to_so_file : str
        The library.
    alloc_fn_name, free_fn_name : str
        The functions' names in it.
    """

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        library = ctypes.CDLL(path_to_so_file)
        alloc, free = (
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            for name in (alloc_fn_name, free_fn_name)
        )
        super().__init__(_C.custom_allocator(alloc, free))


def change_current_allocator(allocator: _CUDAAllocator) -> None:
    """Have all memory of devices come from an allocator of one's own.

    It is asked for each tensor, and nothing is cached or counted: functions that tell of openreg's
    own allocator raise.

    Parameters
    ----------
    allocator : CUDAPluggableAllocator
        The allocator.

    Raises
    ------
    RuntimeError
        After the first use of a device.
    """
    _C.change_current_allocator(allocator.allocator())


def _get_current_allocator() -> _CUDAAllocator:
    """Return what `change_current_allocator` was given, with None inside while that is nothing."""
    return _CUDAAllocator(_C.get_allocator())


def device_malloc(nbytes: int, device: Device = None) -> int:
    """Return the address of memory straight from a device, as cudaMalloc gives it.

    It is in no statistic of the allocator, and is for allocators of one's own.

    Parameters
    ----------
    nbytes : int
        How much; at least 1.
    device : torch.device, str, int or None
        The device; None means the current one.
    """
    _lazy_init()
    index = current_device() if device is None else _get_device_index(device)
    return _C.device_malloc(index, nbytes)


def device_free(address: int) -> None:
    """Give back what `device_malloc` returned, when the device's work is done.

    Parameters
    ----------
    address : int
        The address; 0 is nothing.
    """
    _C.device_free(address)


def graph_pool_handle() -> tuple[int, int]:
    """Return a name for a pool that graphs share; it is made when it is first allocated in."""
    return _C.graph_pool_handle()


class MemPool(_C._MemPool):
    """A pool of memory, on all devices. What is allocated in it shares no segment with the rest.

    When the object is gone, its free memory is given back, and tensors in it live on.

    Parameters
    ----------
    allocator : torch_openreg._C._CUDAAllocator or None
        Where its segments come from, as `CUDAPluggableAllocator.allocator` returns it; None means
        the device.
    use_on_oom : bool
        Whether its free memory is used by allocations outside of it that fit nowhere else, before
        cached memory is given back.
    no_split : bool
        Whether each block is all of a segment: what is allocated takes 2 MiB or more, and is not
        cut to its size.
    """

    def __init__(
        self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        _lazy_init()
        super().__init__(allocator, use_on_oom, no_split)

    @property
    def id(self) -> tuple[int, int]:
        """The pool's name in snapshots."""
        return super().id

    @property
    def allocator(self) -> Any:
        """Where its segments come from; None means the device."""
        return super().allocator

    def use_count(self) -> int:
        """Return how many hold the pool: this object, and each `use_mem_pool` that is entered."""
        return super().use_count()

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Return the pool's segments on all devices, as `memory_snapshot` does.

        Parameters
        ----------
        include_traces : bool
            Has no effect: segments have none.
        """
        return memory_snapshot(self.id, include_traces=include_traces)


@contextmanager
def use_mem_pool(pool: MemPool, device: Device = None) -> Iterator[None]:
    """Have what this thread allocates on a device come from a pool.

    Other threads go on as they are; so does the one that computes gradients in ``backward()``.

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
