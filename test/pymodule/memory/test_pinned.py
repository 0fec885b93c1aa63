"""Pinned host memory, which data loaders use as soon as there is an accelerator."""

import torch

from device import DEVICE, module


def test_pinned_tensor_has_the_values_of_its_source():
    values = torch.arange(100.0)
    pinned = values.pin_memory()
    assert pinned.is_cpu and torch.equal(pinned, values)
    assert torch.equal(pinned.to(DEVICE, non_blocking=True).cpu(), values)


def test_pinned_tensor_can_be_made_by_factories():
    assert torch.ones(3, pin_memory=True).sum().item() == 3


def test_device_tensor_cannot_be_pinned():
    assert not torch.ones(1, device=DEVICE).is_pinned()


def test_loader_pins_its_batches():
    dataset = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, pin_memory=True)
    sums = [batch.to(DEVICE, non_blocking=True).sum().item() for (batch,) in loader]
    assert sums == [6.0, 22.0]


def test_cached_pinned_memory_can_be_released(python):
    python("import torch; torch.accelerator.empty_host_cache()")


def test_pinned_storage_is_pinned():
    storage = torch.arange(100.0).untyped_storage()
    assert not storage.is_pinned()
    assert storage.pin_memory().is_pinned()


def test_views_of_pinned_memory_are_pinned():
    pinned = torch.arange(100.0).pin_memory()
    assert pinned.is_pinned() and pinned[50:].is_pinned()
    assert pinned.pin_memory() is pinned
    assert not torch.arange(100.0).is_pinned()


def test_pinned_memory_of_a_copy_is_used_again_when_it_is_done(close_gate):
    pinned, tensor = torch.ones(5000).pin_memory(), torch.empty(5000, device=DEVICE)
    address = pinned.data_ptr()
    gate = close_gate()
    tensor.copy_(pinned, non_blocking=True)
    del pinned
    gate.open()
    module.synchronize()
    assert torch.empty(5000, pin_memory=True).data_ptr() == address
