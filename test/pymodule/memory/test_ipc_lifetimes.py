"""The lifetime of memory that several processes share: nothing of it is left behind."""

import gc
import os

import pytest
import torch
from peers import Peer, drop, keep, kept, values

from device import DEVICE, module

BYTES = 1 << 20


def give_back():
    gc.collect()
    module.synchronize()
    module.ipc_collect()
    module.empty_cache()


def used(device=0):
    """Return the bytes of the device that all processes use."""
    free, total = module.mem_get_info(device)
    return total - free


@pytest.fixture(scope="module", autouse=True)
def everything_started():
    """Start what a process keeps once it has sent and received a tensor."""
    with Peer() as peer:
        peer.call(keep, "tensor", torch.ones(1, device=DEVICE))
        peer.call(make, "answer", 1)


@pytest.fixture
def allocated():
    """Return how much more this process has allocated than when the test began.

    The test leaves no new memory and no new open file behind.
    """
    module.init()
    give_back()
    before = used(), module.memory_allocated(), len(os.listdir("/proc/self/fd"))

    def more():
        module.ipc_collect()
        return module.memory_allocated() - before[1]

    yield more
    give_back()
    after = used(), module.memory_allocated(), len(os.listdir("/proc/self/fd"))
    assert after == before


def make(name, value):
    kept[name] = torch.full((BYTES,), value, dtype=torch.uint8, device=DEVICE)
    return kept[name]


def clone(name):
    kept["clone"] = kept[name] + 1
    return kept["clone"].sum().item()


def test_memory_that_the_sender_freed_is_the_receivers_until_it_drops_it(allocated):
    with Peer() as peer:
        tensor = torch.full((BYTES,), 3, dtype=torch.uint8, device=DEVICE)
        peer.call(keep, "tensor", tensor)
        address = tensor.data_ptr()
        del tensor
        assert allocated() == BYTES
        others = [torch.zeros(BYTES, dtype=torch.uint8, device=DEVICE) for _ in range(4)]
        assert address not in [other.data_ptr() for other in others]
        assert peer.call(clone, "tensor") == 4 * BYTES
        del others
        assert allocated() == BYTES
        peer.call(drop, "tensor")
        assert allocated() == 0


def test_received_memory_counts_as_the_senders(allocated):
    with Peer() as peer:
        tensor = peer.call(make, "tensor", 5)
        assert allocated() == 0
        assert tensor.sum().item() == 5 * BYTES


def test_memory_of_a_sender_that_exited_is_the_receivers(allocated):
    peer = Peer()
    tensor = peer.call(make, "tensor", 5)
    peer.leave()
    assert tensor.sum().item() == 5 * BYTES
    assert used() >= BYTES
    tensor += 1
    assert (tensor == 6).all()


def test_memory_of_a_sender_that_was_killed_is_the_receivers(allocated):
    peer = Peer()
    tensor = peer.call(make, "tensor", 5)
    view = peer.call(view_of, "tensor")
    peer.kill()
    assert tensor.sum().item() == 5 * BYTES
    assert view.data_ptr() == tensor.data_ptr() + 1
    del tensor
    assert view[:4].tolist() == [5] * 4


def view_of(name):
    return kept[name][1:]


def test_memory_of_a_killed_receiver_returns_to_the_sender(allocated):
    peer = Peer()
    tensor = torch.ones(BYTES, dtype=torch.uint8, device=DEVICE)
    peer.call(keep, "tensor", tensor)
    del tensor
    assert allocated() == BYTES
    peer.kill()
    assert allocated() == 0


def test_tensors_that_come_and_go_leave_nothing(allocated):
    with Peer() as peer:
        for index in range(300):
            tensor = torch.full((1000,), index, device=DEVICE)
            peer.call(keep, "tensor", tensor)
            assert peer.call(values, "tensor")[-1] == index
            assert peer.call(make, "answer", index % 256)[0].item() == index % 256
        peer.call(drop, "answer")
        del tensor
        peer.call(drop, "tensor")
        assert peer.call(open_files) < 64


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_workers_that_are_killed_and_started_again_leave_nothing(allocated):
    weights = torch.zeros(1000, device=DEVICE)
    for start in range(20):
        peer = Peer()
        peer.call(keep, "weights", weights)
        gradient = peer.call(make, "gradient", start)
        weights += gradient[:1000]
        module.synchronize()
        assert peer.call(values, "weights")[0] == weights[0].item()
        del gradient
        peer.kill()
    assert weights[0].item() == sum(range(20))
