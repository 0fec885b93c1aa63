"""A kernel's library gets a tensor's reserved memory as raw memory. The tensor keeps the memory, no
matter which thread frees it and when.
"""

import gc
import threading

import pytest
import torch
from torch_openreg._C import _OfferedMemory

from device import DEVICE, module

BYTES = 4096


@pytest.fixture
def tensor():
    gc.collect()
    before = module.memory_allocated()
    made = torch.full((BYTES // 4,), 3.0, device=DEVICE)
    yield made
    assert module.memory_allocated() == before + BYTES
    other = torch.full((BYTES // 4,), 5.0, device=DEVICE)
    assert made.data_ptr() != other.data_ptr()
    assert made.sum().item() == 3 * BYTES // 4


def test_memory_is_offered_to_the_first_allocation_of_its_size(tensor):
    offered = _OfferedMemory(tensor)
    smaller, same, again = (offered.allocate(bytes) for bytes in (BYTES // 2, BYTES, BYTES))
    assert offered.is_held
    assert len({smaller, same, again}) == 3
    offered.free(smaller)
    offered.free(again)
    assert offered.is_held
    offered.free(same)
    assert not offered.is_held


def test_released_memory_is_offered_again(tensor):
    offered = _OfferedMemory(tensor)
    first = offered.allocate(BYTES)
    offered.free(first)
    assert offered.allocate(BYTES) == first
    assert offered.is_held
    offered.free(first)


def test_freeing_by_another_thread_leaves_the_tensor_its_memory(tensor):
    offered = _OfferedMemory(tensor)
    address = offered.allocate(BYTES)
    thread = threading.Thread(target=offered.free, args=(address,))
    thread.start()
    thread.join()
    assert offered.is_held  # as far as can be known


def test_freeing_after_the_kernel_has_ended_leaves_the_tensor_its_memory(tensor):
    offered = _OfferedMemory(tensor)
    address = offered.allocate(BYTES)
    del offered
    _OfferedMemory.free(address)


def test_freeing_when_the_tensor_is_gone_does_nothing():
    before = module.memory_allocated()
    tensor = torch.empty(BYTES // 4, device=DEVICE)
    offered = _OfferedMemory(tensor)
    address = offered.allocate(BYTES)
    del offered, tensor
    _OfferedMemory.free(address)
    assert module.memory_allocated() == before
