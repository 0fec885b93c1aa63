"""The ways in which programs start processes and send tensors to them."""

import pytest
import torch
from peers import serve  # noqa: F401 - makes the forkserver load PyTorch
from torch.utils.data import DataLoader, Dataset

from device import DEVICE, module


def double_and_wait(inbox, outbox, done):
    for tensor in iter(inbox.get, None):
        outbox.put(tensor * 2)
        del tensor
    done.wait()  # a process that ends takes unopened tensors with it


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue"])
def test_queues_carry_tensors(method, kind):
    context = torch.multiprocessing.get_context(method)
    inbox, outbox, done = getattr(context, kind)(), getattr(context, kind)(), context.Event()
    process = context.Process(target=double_and_wait, args=(inbox, outbox, done))
    process.start()
    for index in range(2):
        tensor = torch.arange(4, device=f"{DEVICE}:{index}")
        inbox.put(tensor)
        answer = outbox.get()
        assert answer.device == tensor.device
        assert answer.tolist() == [0, 2, 4, 6]
    inbox.put(None)
    done.set()
    process.join()
    assert process.exitcode == 0


def write(tensor, view, value):
    tensor.fill_(value)
    assert view.data_ptr() == tensor.data_ptr()
    module.synchronize()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_arguments_of_a_process_are_tensors(method):
    context = torch.multiprocessing.get_context(method)
    tensor = torch.zeros(4, device=DEVICE)
    process = context.Process(target=write, args=(tensor, tensor.view(2, 2), 7))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert tensor.tolist() == [7] * 4


def write_row(index, tensor):
    tensor[index] = index + 1
    module.synchronize()


def test_processes_that_are_spawned_together_write_to_one_tensor():
    tensor = torch.zeros(2, 3, device=f"{DEVICE}:1")
    torch.multiprocessing.spawn(write_row, args=(tensor,), nprocs=2)
    assert tensor.tolist() == [[1] * 3, [2] * 3]


def square(tensor):
    return tensor.square()


def test_pool_maps_over_tensors():
    tensors = [torch.full((2,), float(index), device=f"{DEVICE}:{index % 2}") for index in range(6)]
    with torch.multiprocessing.get_context("forkserver").Pool(2) as pool:
        squares = pool.map(square, tensors)
        assert [result.tolist() for result in squares] == [[i * i] * 2 for i in range(6)]
        assert [result.device for result in squares] == [tensor.device for tensor in tensors]


class Rows(Dataset):
    """Rows that workers create on a device."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.full((2,), float(index), device=f"{DEVICE}:1"), index


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_a_loader_make_batches_on_a_device(persistent):
    loader = DataLoader(
        Rows(),
        batch_size=4,
        num_workers=2,
        multiprocessing_context="forkserver" if persistent else "spawn",
        persistent_workers=persistent,
    )
    for _ in range(1 + persistent):
        batches = list(loader)
        assert {rows.device for rows, _ in batches} == {torch.device(f"{DEVICE}:1")}
        assert torch.cat([rows for rows, _ in batches])[:, 0].tolist() == list(range(12))
        assert torch.cat([labels for _, labels in batches]).tolist() == list(range(12))
