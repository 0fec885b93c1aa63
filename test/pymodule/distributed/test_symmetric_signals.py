"""Signals and barriers of symmetric memory, and how their waits end."""

import os
import signal

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from symmetric import failure, met

from device import DEVICE, module

pytestmark = pytest.mark.own_processes

SIZE = 3


def look_at_pads():
    _, handle = met(1)
    words = symm_mem.get_signal_pad_size() // 4
    whole = handle.get_signal_pad(handle.rank)
    shaped = handle.get_signal_pad(1, (8, 8), dtype=torch.uint64)
    return (
        whole.dtype == torch.uint32 and whole.numel() == words,
        whole.data_ptr() == handle.signal_pad_ptrs[handle.rank],
        tuple(shaped.shape) == (8, 8) and shaped.dtype == torch.uint64,
        bool(whole.view(torch.int32).eq(0).all()),
    )


def test_signal_pads(symmetric_ranks):
    assert symmetric_ranks.call(look_at_pads) == [(True,) * 4] * 3


def pads_of_another_size():
    before = symm_mem.get_signal_pad_size()
    symm_mem.set_signal_pad_size(2 * before)
    try:
        tensor, handle = met(64)
        last = 2 * before // 4 // 3 - 1
        handle.barrier(channel=last)
        handle.get_signal_pad(handle.rank).view(torch.int32).fill_(7)
        tensor.fill_(1)
        module.synchronize()
        too_far = failure(handle.barrier, channel=last + 1)
        return handle.get_signal_pad(handle.rank).numel() == before // 2, too_far[0]
    finally:
        symm_mem.set_signal_pad_size(before)


def test_size_of_signal_pads(symmetric_ranks):
    assert symmetric_ranks.call(pads_of_another_size) == [(True, "RuntimeError")] * 3


def pass_a_token():
    """A value goes from rank to rank, and each rank adds to it."""
    tensor, handle = met(1)
    rank = handle.rank
    if rank == 0:
        tensor.fill_(1)
    else:
        handle.wait_signal(src_rank=rank - 1, channel=5)
        tensor.copy_(handle.get_buffer(rank - 1, (1,), torch.float32) * 10 + rank)
    if rank < 2:
        handle.put_signal(dst_rank=rank + 1, channel=5)
    handle.barrier()
    return tensor.item(), bool(handle.get_signal_pad(rank).view(torch.int32).eq(0).all())


def test_signals_from_rank_to_rank(symmetric_ranks):
    assert symmetric_ranks.call(pass_a_token) == [(1, True), (11, True), (112, True)]


def use_several_streams():
    _, handle = met(1)
    streams = [module.Stream() for _ in range(2)]
    for _ in range(20):
        for channel in (0, 1) if handle.rank % 2 else (1, 0):
            with streams[channel]:
                handle.barrier(channel=channel)
    module.synchronize()
    return True


def test_barriers_on_channels_of_their_own(symmetric_ranks):
    assert all(symmetric_ranks.call(use_several_streams))


def wait_in_vain(seconds):
    _, handle = met(1)
    if handle.rank == 0:
        handle.wait_signal(src_rank=1, channel=3, timeout_ms=int(1000 * seconds))
    return failure(module.synchronize)


def test_signal_that_does_not_come(two_ranks):
    first, second = two_ranks.call(wait_in_vain, 0.3)
    assert first[0] == "DistBackendError"
    for part in ("rank 0", "rank 1", "channel 3", "0.3 s"):
        assert part in first[1]
    assert second is None


def put_twice():
    _, handle = met(1)
    if handle.rank == 0:
        handle.put_signal(dst_rank=1, channel=3)
        handle.put_signal(dst_rank=1, channel=3, timeout_ms=300)
    return failure(module.synchronize)


def test_signal_that_is_not_taken(two_ranks):
    first, second = two_ranks.call(put_twice)
    assert first[0] == "DistBackendError"
    assert "has not taken" in first[1]
    assert second is None


def barrier_alone():
    _, handle = met(1)
    if handle.rank == 0:
        handle.barrier(timeout_ms=300)
    return failure(module.synchronize)


def test_barrier_that_not_all_come_to(two_ranks):
    first, _ = two_ranks.call(barrier_alone)
    assert first[0] == "DistBackendError"
    assert "rank 1" in first[1]


def wait_for_the_dead():
    _, handle = met(1)
    dist.barrier()
    handle.wait_signal(src_rank=1, channel=0)
    return failure(module.synchronize)


def be_killed():
    met(1)
    dist.barrier()
    module.synchronize()
    os.kill(os.getpid(), signal.SIGKILL)


def test_rank_that_is_killed(two_ranks):
    two_ranks.peers[0].start(wait_for_the_dead)
    two_ranks.peers[1].start(be_killed)
    kind, sentence = two_ranks.peers[0].finish()
    assert kind == "DistBackendError"
    assert "rank 1" in sentence
    assert "has ended" in sentence
    two_ranks.peers[1].connection.close()


WAITS_FOR_ITSELF = f"""
import torch, torch.distributed as dist, torch.distributed._symmetric_memory as symm_mem
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
tensor = symm_mem.empty(1, device="{DEVICE}")
handle = symm_mem.rendezvous(tensor, dist.group.WORLD)
handle.wait_signal(src_rank=0)
"""


def test_process_that_ends_while_it_awaits_a_signal(python):
    python(WAITS_FOR_ITSELF)


def wrong_places():
    _, handle = met(1)
    return (
        failure(handle.barrier, channel=-1),
        failure(handle.put_signal, dst_rank=3),
        failure(handle.wait_signal, src_rank=-1),
    )


def test_channels_and_ranks_that_do_not_exist(symmetric_ranks):
    for answers in symmetric_ranks.call(wrong_places):
        assert [answer[0] for answer in answers] == ["RuntimeError"] * 3
