"""Data loaders feed a device: from this process, from workers, and through pinned memory."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from device import DEVICE, NAME, module

FORKED = f"Cannot re-initialize {NAME} in forked subprocess. To use {NAME} with multiprocessing"


class Rows(Dataset):
    """Rows made on the CPU, as workers must make them."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"row": torch.full((2,), float(index)), "label": index}


class RowsOnADevice(Rows):
    """Uses a device, which a forked worker must not do."""

    def __getitem__(self, index):
        return torch.full((2,), float(index), device=DEVICE)


def test_dataset_on_a_device_returns_batches_on_the_device():
    dataset = TensorDataset(torch.arange(8.0, device=f"{DEVICE}:1"))
    batches = [batch for (batch,) in DataLoader(dataset, batch_size=4)]
    assert {batch.device for batch in batches} == {torch.device(f"{DEVICE}:1")}
    assert torch.cat(batches).tolist() == list(range(8))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pin", [False, True])
def test_batches_reach_the_device(workers, pin):
    module.init()
    loader = DataLoader(Rows(), batch_size=4, num_workers=workers, pin_memory=pin)
    rows, labels = [], []
    for batch in loader:
        assert batch["row"].is_pinned() == batch["label"].is_pinned() == pin
        rows.append(batch["row"].to(f"{DEVICE}:1", non_blocking=True))
        labels.append(batch["label"].to(f"{DEVICE}:1"))
    assert torch.cat(rows)[:, 0].tolist() == list(range(8))
    assert torch.cat(labels).tolist() == list(range(8))


@pytest.mark.filterwarnings("ignore:.*pin_memory_device:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*pin_memory_device:UserWarning")
def test_batches_are_pinned_for_a_device_by_name():
    loader = DataLoader(Rows(), batch_size=4, pin_memory=True, pin_memory_device=DEVICE)
    assert all(batch["row"].is_pinned() for batch in loader)


def test_forked_worker_that_uses_a_device_gets_an_explanation():
    module.init()
    loader = DataLoader(RowsOnADevice(), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(RuntimeError, match=FORKED):
        next(iter(loader))


def test_device_generator_shuffles():
    torch.set_default_device(f"{DEVICE}:1")
    try:
        generator = torch.Generator(f"{DEVICE}:1").manual_seed(3)
        loader = DataLoader(Rows(), batch_size=8, shuffle=True, generator=generator)
        (batch,) = loader
    finally:
        torch.set_default_device(None)
    assert sorted(batch["label"].tolist()) == list(range(8))
