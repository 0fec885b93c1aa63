"""Checkpoints of memory pools, which compiled graphs save and restore."""

import gc

import pytest
import torch
from torch_openreg import _C

from device import DEVICE, MIB, module

pytestmark = pytest.mark.usefixtures("fresh_memory")


@pytest.fixture
def pool():
    """A pool as graphs use it: a number, whose user releases it at the end."""
    handle = module.graph_pool_handle()
    _C.begin_allocate_current_thread_to_pool(0, handle)
    _C.end_allocate_to_pool(0, handle)
    yield handle
    gc.collect()
    _C.release_pool(0, handle)
    module.empty_cache()
    assert segments_of(handle) == []


def segments_of(pool):
    return [
        (each["address"], each["total_size"], [(b["size"], b["state"]) for b in each["blocks"]])
        for each in module.memory_snapshot(pool)
    ]


def allocate_in(pool, *sizes):
    _C.begin_allocate_current_thread_to_pool(0, pool)
    try:
        return [torch.full((size,), 2, dtype=torch.uint8, device=DEVICE) for size in sizes]
    finally:
        _C.end_allocate_to_pool(0, pool)
        _C.release_pool(0, pool)


def live(pool, *tensors):
    return _C.check_pool_live_allocations(0, pool, {each.data_ptr() for each in tensors})


def storages_of(*tensors):
    return [each.untyped_storage()._cdata for each in tensors]


def without_owner(tensor):
    """Return another storage over the same memory, which does not own it."""
    storage = torch._C._construct_storage_from_data_pointer(
        tensor.data_ptr(), tensor.device, tensor.nbytes
    )
    return torch.empty(0, dtype=tensor.dtype, device=DEVICE).set_(storage, 0, tensor.shape)


@pytest.mark.parametrize("kept", [[5], [5, 8], [5, 6], [0], [10], [], list(range(11))], ids=str)
@pytest.mark.parametrize("size", [512, 700, 3 * MIB])
def test_blocks_are_restored_at_their_addresses(pool, kept, size):
    if size > MIB and len(kept) > 2:
        size = MIB
    tensors = allocate_in(pool, *[size] * 11)
    tensors = [each for i, each in enumerate(tensors) if i in kept]
    before = segments_of(pool)
    state = _C.get_checkpoint_state(0, pool)
    addresses = [each.data_ptr() for each in tensors]
    del tensors
    later = allocate_in(pool, 3 * MIB, 100, 21 * MIB)
    assert segments_of(pool) != before
    _C.set_checkpoint_pool_state(0, state, storages_of(*later), [])
    after = segments_of(pool)
    assert [each for each in after if each[0] in {address for address, *_ in before}] == before
    assert _C.check_pool_live_allocations(0, pool, set(addresses))
    for address in addresses:
        _C.raw_delete(address)
    assert live(pool)


def test_stale_storages_lose_their_memory(pool):
    first = allocate_in(pool, MIB)
    state = _C.get_checkpoint_state(0, pool)
    stale = allocate_in(pool, MIB, 100)
    _C.set_checkpoint_pool_state(0, state, storages_of(*stale), [])
    assert live(pool, *first)
    del stale
    assert live(pool, *first)
    assert first[0].sum().item() == 2 * MIB


def test_memory_that_somebody_still_has_must_be_named(pool):
    state = _C.get_checkpoint_state(0, pool)
    unnamed = allocate_in(pool, MIB)
    with pytest.raises(
        RuntimeError, match="a block is allocated that was not allocated in the checkpoint"
    ):
        _C.set_checkpoint_pool_state(0, state, [], [])
    assert unnamed[0].sum().item() == 2 * MIB
    with pytest.raises(RuntimeError, match="does not own its memory"):
        _C.set_checkpoint_pool_state(0, state, storages_of(without_owner(unnamed[0])), [])


def test_storages_become_the_owners_of_restored_blocks(pool):
    outputs = allocate_in(pool, 2 * MIB, 2 * MIB, 20 * MIB)
    state = _C.get_checkpoint_state(0, pool)
    rebuilt = [without_owner(each) for each in outputs]
    del outputs
    assert live(pool)
    _C.set_checkpoint_pool_state(0, state, [], storages_of(*rebuilt[:2]))
    assert live(pool, *rebuilt)
    assert rebuilt[0].sum().item() == 4 * MIB
    rebuilt[0] += 1
    assert rebuilt[0].sum().item() == 6 * MIB
    address = rebuilt[2].data_ptr()
    del rebuilt[0]
    assert live(pool, *rebuilt)
    del rebuilt[0]
    assert live(pool, *rebuilt)
    del rebuilt[0]
    assert _C.check_pool_live_allocations(0, pool, {address})
    _C.raw_delete(address)
    assert live(pool)


def test_live_allocations_are_exactly_those(pool):
    first, second = allocate_in(pool, 100, MIB)
    assert live(pool, first, second)
    assert not live(pool, first)
    assert not live(pool)
    assert not _C.check_pool_live_allocations(0, pool, {0, first.data_ptr(), second.data_ptr()})
    del first, second
    assert live(pool)


def test_allocated_memory_stays_with_its_owner(pool):
    kept, gone = allocate_in(pool, 1000, 1000)
    state = _C.get_checkpoint_state(0, pool)
    address = gone.data_ptr()
    del gone
    _C.set_checkpoint_pool_state(0, state, [], [])
    kept += 1
    assert kept.sum().item() == 3000
    assert _C.check_pool_live_allocations(0, pool, {kept.data_ptr(), address})
    _C.raw_delete(address)
    assert live(pool, kept)


def test_checkpoint_of_an_unknown_pool_is_refused():
    with pytest.raises(ValueError, match="does not exist"):
        _C.get_checkpoint_state(0, module.graph_pool_handle())
    with pytest.raises(ValueError, match="expected \\(0, number\\)"):
        _C.get_checkpoint_state(0, (1, 2))
    with pytest.raises(RuntimeError, match="this thread does not allocate to pool"):
        _C.end_allocate_to_pool(0, module.graph_pool_handle())


def test_graph_pool_handles_are_numbers_of_future_pools():
    first, second = module.graph_pool_handle(), module.graph_pool_handle()
    assert first[0] == second[0] == 0 and first[1] < second[1]
    assert segments_of(first) == []
    held = []
    for handle in (second, first):
        _C.begin_allocate_current_thread_to_pool(0, handle)
        held.append(torch.empty(100, device=DEVICE))
        _C.end_allocate_to_pool(0, handle)
        assert len(segments_of(handle)) == 1
    del held
    module.empty_cache()
    assert len(segments_of(first)) == 1
    for handle in (first, second):
        _C.release_pool(0, handle)
    module.empty_cache()
    assert segments_of(first) == segments_of(second) == []
