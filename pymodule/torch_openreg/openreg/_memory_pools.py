"""Memory pools: memory that is kept apart from all other, for what should not be mixed with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.types import Device

from torch_openreg import _C

from ._memory_history import memory_snapshot
from ._utils import _get_device_index
from .devices import _lazy_init, current_device


class MemPool(_C._MemPool):
    """A pool of memory, on all devices. What is allocated in it shares no segment with the rest.

    When the object is gone, its free memory is given back, and tensors in it live on.

    Parameters
    ----------
    allocator : None
        Allocators of one's own are not supported.
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
        if allocator is not None:
            raise NotImplementedError(
                f"MemPool(allocator={allocator!r}): openreg has no allocators but its own; "
                "expected None"
            )
        _lazy_init()
        super().__init__(use_on_oom, no_split)

    @property
    def id(self) -> tuple[int, int]:
        """The pool's name in snapshots."""
        return super().id

    @property
    def allocator(self) -> None:
        """None: there are no allocators but openreg's own."""
        return None

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
    previous = pool.begin_use(index)
    try:
        yield
    finally:
        pool.end_use(index, previous)
