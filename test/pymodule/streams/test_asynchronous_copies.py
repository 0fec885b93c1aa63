"""Asynchronous copies: from and to pinned memory, from pageable memory, and between devices."""

import pytest
import torch

from device import DEVICE, module

SIZES = [7, 5000]  # below and above the threshold for queueing a plain copy


def run_once(work):
    """Run work for the first time, wait for it, and return it."""
    work()
    module.synchronize(0)
    module.synchronize(1)
    return work


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", SIZES)
def test_copy_to_pinned_memory_is_visible_when_it_is_done(close_gate, size, dtype):
    tensor = torch.ones(size, device=DEVICE)
    host = torch.zeros(size, dtype=dtype, pin_memory=True)
    run_once(lambda: tensor.add_(1))
    gate = close_gate()
    tensor.add_(1)
    host.copy_(tensor, non_blocking=True)
    assert host.unique().tolist() == [0]
    gate.open()
    module.synchronize()
    assert host.unique().tolist() == [3]


@pytest.mark.parametrize("size", SIZES)
def test_copy_from_pinned_memory_reads_it_when_it_is_done(close_gate, size):
    tensor, host = torch.zeros(size, device=DEVICE), torch.ones(size).pin_memory()
    gate = close_gate()
    tensor.copy_(host, non_blocking=True)
    assert not module.current_stream().query()
    host.fill_(2)  # programs must not do this
    gate.open()
    assert tensor.unique().tolist() == [2]


def test_host_result_of_an_asynchronous_copy_is_pinned(close_gate):
    tensor = torch.ones(5000, device=DEVICE)
    run_once(lambda: tensor.add_(1))
    gate = close_gate()
    tensor.add_(1)
    host = tensor.to("cpu", non_blocking=True)
    assert host.is_pinned()
    assert not module.current_stream().query()
    gate.open()
    module.synchronize()
    assert host.unique().tolist() == [3]


def test_tensor_from_pinned_memory_is_created_asynchronously(close_gate):
    host = torch.arange(5000.0).pin_memory()
    gate = close_gate()
    tensor = host.to(DEVICE, non_blocking=True)
    assert not module.current_stream().query()
    gate.open()
    assert torch.equal(tensor.cpu(), host)


@pytest.mark.parametrize("direction", ["to the device", "from the device"])
def test_pinned_memory_is_kept_until_the_copy_is_done(close_gate, direction):
    tensor, host = torch.zeros(5000, device=DEVICE), torch.ones(5000).pin_memory()
    address = host.data_ptr()
    gate = close_gate()
    if direction == "to the device":
        tensor.copy_(host, non_blocking=True)
    else:
        host.copy_(tensor, non_blocking=True)
    del host
    other = torch.full((5000,), 9.0).pin_memory()
    assert other.data_ptr() != address
    gate.open()
    module.synchronize()
    assert tensor.unique().tolist() == [1 if direction == "to the device" else 0]
    assert other.unique().tolist() == [9]


@pytest.mark.parametrize("direction", ["to the device", "from the device"])
def test_storage_of_pinned_memory_is_kept_by_copies_of_its_views(close_gate, direction):
    tensor, host = torch.zeros(5000, device=DEVICE), torch.ones(2, 5000).pin_memory()
    address = host.data_ptr()
    gate = close_gate()
    view = host[1]
    if direction == "to the device":
        tensor.copy_(view, non_blocking=True)
    else:
        view.copy_(tensor, non_blocking=True)
    del host, view
    other = torch.full((2, 5000), 9.0).pin_memory()
    assert other.data_ptr() != address
    gate.open()
    module.synchronize()
    assert other.unique().tolist() == [9]


# ---- pageable memory -----------------------------------------------------------------------------

PAGEABLE = {
    "same bytes": lambda t: t,
    "another dtype": lambda t: t.double(),
    "transposed": lambda t: t.view(-1, 2).t().reshape(2, -1).t().reshape(-1),
    "every other one": lambda t: t.repeat_interleave(2)[::2],
    "one for all": lambda t: t[:1].expand(len(t)),
    "conjugated": lambda t: torch.complex(t, t).conj(),
}


@pytest.mark.parametrize("kind", PAGEABLE)
@pytest.mark.parametrize("size", [8, 5000])
def test_copy_from_pageable_memory_reads_it_at_the_call(close_gate, size, kind):
    host = PAGEABLE[kind](torch.arange(float(size)))
    expected = host.clone()
    tensor = torch.zeros(size, device=DEVICE, dtype=host.dtype if host.is_complex() else None)
    run_once(lambda: tensor.add_(1))
    gate = close_gate()
    tensor.add_(1)
    tensor.copy_(host, non_blocking=True)
    host[:1].fill_(-1)  # for an expanded tensor this changes all elements
    host = None
    torch.full((size,), 9.0)
    assert not module.current_stream().query()
    gate.open()
    assert torch.equal(tensor.cpu(), expected.to(tensor.dtype))


def test_tensor_from_pageable_memory_is_created_asynchronously(close_gate):
    host = torch.arange(5000.0)
    gate = close_gate()
    tensor = host.to(DEVICE, non_blocking=True)
    host.zero_()
    assert not module.current_stream().query()
    gate.open()
    assert torch.equal(tensor.cpu(), torch.arange(5000.0))


def test_staged_memory_is_released(close_gate):
    """Each of these copies uses more than half of the staging limit."""
    host = torch.zeros(1, dtype=torch.float64).expand(20 << 20)
    tensor = torch.ones(20 << 20, dtype=torch.int8, device=DEVICE)
    for _ in range(3):
        gate = close_gate()
        tensor.copy_(host, non_blocking=True)
        assert not module.current_stream().query()
        gate.open()
        module.synchronize()
    assert not tensor.any()


def test_copy_of_pageable_memory_of_another_shape_is_refused_at_the_call(close_gate):
    host, tensor = torch.arange(8.0), torch.zeros(3, 5, device=DEVICE)
    close_gate()
    with pytest.raises(RuntimeError, match="expanded size of the tensor"):
        tensor.copy_(host, non_blocking=True)


# ---- between devices -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_copies_between_devices_are_ordered_on_both(close_gate, size):
    tensor, peer = (torch.zeros(size, device=f"{DEVICE}:{index}") for index in (0, 1))
    run_once(lambda: (tensor.add_(1), peer.mul_(10)))
    gate = close_gate(module.default_stream(0))
    tensor.add_(1)
    peer.copy_(tensor)
    peer.mul_(10)
    tensor.add_(1)
    assert not module.default_stream(1).query()
    gate.open()
    assert peer.unique().tolist() == [20]
    assert tensor.unique().tolist() == [3]


@pytest.mark.parametrize("size", SIZES)
def test_copy_waits_for_work_of_the_target(close_gate, size):
    tensor, peer = (torch.zeros(size, device=f"{DEVICE}:{index}") for index in (0, 1))
    run_once(lambda: (tensor.add_(1), peer.mul_(10)))
    gate = close_gate(module.default_stream(1))
    peer.mul_(10)
    peer.copy_(tensor)
    tensor.add_(1)
    assert not module.default_stream(0).query()
    gate.open()
    assert peer.unique().tolist() == [1]
    assert tensor.unique().tolist() == [2]


def test_copy_on_a_separate_stream_overlaps_with_work(close_gate):
    copies, tensor = module.Stream(), torch.zeros(5000, device=DEVICE)
    host = torch.ones(5000).pin_memory()
    copies.wait_stream(module.current_stream())
    gate = close_gate()
    with copies:
        tensor.copy_(host, non_blocking=True)
    copies.synchronize()
    assert not module.current_stream().query()
    with copies:
        assert tensor.unique().tolist() == [1]
    gate.open()


# ---- copies that change the dtype or the order ---------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_converting_copy_from_pinned_memory_is_asynchronous(close_gate, size):
    tensor = torch.zeros(size, dtype=torch.float16, device=DEVICE)
    host = torch.arange(float(size)).pin_memory()
    expected = host.half()
    gate = close_gate()
    tensor.copy_(host, non_blocking=True)
    assert not module.current_stream().query()
    del host
    torch.full((size,), 9.0).pin_memory()
    gate.open()
    assert torch.equal(tensor.cpu(), expected)


def test_strided_copies_from_and_to_pinned_memory_are_asynchronous(close_gate):
    host = torch.arange(64.0).view(8, 8).pin_memory()
    back = torch.zeros(8, 8).pin_memory()
    expected = host.t().clone()
    tensor = torch.zeros(8, 8, device=DEVICE)
    gate = close_gate()
    tensor.copy_(host.t(), non_blocking=True)
    back.t().copy_(tensor, non_blocking=True)
    assert back.unique().tolist() == [0]
    gate.open()
    module.synchronize()
    assert torch.equal(tensor.cpu(), expected)
    assert torch.equal(back.t(), expected)


def test_pinned_row_is_copied_to_all_rows(close_gate):
    host, tensor = torch.arange(8.0).pin_memory(), torch.zeros(3, 8, device=DEVICE)
    gate = close_gate()
    tensor.copy_(host, non_blocking=True)
    assert not module.current_stream().query()
    gate.open()
    assert tensor.tolist() == [host.tolist()] * 3


def test_converting_copy_of_another_shape_is_refused_at_the_call(close_gate):
    host, tensor = torch.arange(8.0).pin_memory(), torch.zeros(3, 5, device=DEVICE)
    close_gate()
    with pytest.raises(RuntimeError, match="expanded size of the tensor"):
        tensor.copy_(host, non_blocking=True)
