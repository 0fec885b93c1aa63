"""Storages on cuda: creation, resizing, copies and properties."""

import copy

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode


@pytest.mark.parametrize(
    ("device", "expected"), [("cuda", "cuda:0"), ("cuda:1", "cuda:1"), (1, "cuda:1")]
)
def test_storage_is_made_where_it_is_asked_for(device, expected):
    storage = torch.UntypedStorage(5, device=device)
    assert (storage.nbytes(), str(storage.device)) == (5, expected)
    assert storage.is_cuda and storage.get_device() == int(expected[-1])
    assert storage.resizable() and storage.is_shared()


def test_storage_is_on_the_current_device():
    with torch.cuda.device(1):
        assert torch.UntypedStorage(5, device="cuda").get_device() == 1


def test_storage_without_a_size_is_empty():
    storage = torch.UntypedStorage(device="cuda")
    assert (storage.nbytes(), storage.device.type) == (0, "cuda")


def test_storage_of_a_sequence_holds_it():
    assert torch.UntypedStorage([1, 2, 255], device="cuda:1").tolist() == [1, 2, 255]


@pytest.mark.parametrize("arguments", [(3.5,), (True,), (["a"],), (3, 4)])
def test_wrong_arguments_are_refused_as_elsewhere(arguments):
    with pytest.raises((RuntimeError, TypeError)) as elsewhere:
        torch.UntypedStorage(*arguments, device="cpu")
    with pytest.raises(elsewhere.type) as here:
        torch.UntypedStorage(*arguments, device="cuda")
    assert str(here.value) == str(elsewhere.value)


def test_storages_elsewhere_are_as_before():
    assert torch.UntypedStorage([1, 2]).tolist() == [1, 2]
    assert torch.UntypedStorage(3, device="meta").device.type == "meta"
    assert torch.UntypedStorage(3).resize_(0).nbytes() == 0


def test_storage_is_real_among_fake_tensors():
    with FakeTensorMode():
        storage = torch.UntypedStorage(3, device="cuda")
    assert storage.device.type == "cuda" and storage.data_ptr() != 0


def test_storage_counts_as_memory():
    before = torch.cuda.memory_allocated()
    storage = torch.UntypedStorage(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() - before == 1 << 20
    del storage
    assert torch.cuda.memory_allocated() == before


def test_elements_are_read_and_written():
    storage = torch.UntypedStorage([1, 2, 3], device="cuda")
    storage[1] = 9
    assert (storage[1], storage.tolist()) == (9, [1, 9, 3])
    assert storage.fill_(4).tolist() == [4, 4, 4]


# ---- resizing ------------------------------------------------------------------------------------


def test_longer_storage_keeps_its_bytes_and_its_tensors():
    tensor = torch.tensor([1.0, 2.0], device="cuda")
    storage = tensor.untyped_storage()
    assert storage.resize_(4096) is storage
    assert (storage.nbytes(), tensor.untyped_storage().nbytes()) == (4096, 4096)
    assert tensor.data_ptr() == storage.data_ptr()
    assert tensor.tolist() == [1.0, 2.0]
    assert torch.empty(0, device="cuda").set_(storage)[:2].tolist() == [1.0, 2.0]


def test_compiled_programs_resize_by_an_operator():
    tensor = torch.tensor([1.0, 2.0], device="cuda:1")
    torch.ops.inductor.resize_storage_bytes_(tensor, 1024)
    assert tensor.untyped_storage().nbytes() == 1024 and tensor.tolist() == [1.0, 2.0]


def test_storage_of_the_other_device_grows_there():
    storage = torch.UntypedStorage([5], device="cuda:1").resize_(1024)
    assert (storage.get_device(), storage.nbytes(), storage[0]) == (1, 1024, 5)


@pytest.mark.parametrize("size", [0, 8])
def test_shorter_storage_gives_its_memory_back(size):
    before = torch.cuda.memory_allocated()
    storage = torch.UntypedStorage(4096, device="cuda").fill_(7)
    storage.resize_(size)
    assert storage.tolist() == [7] * size
    assert torch.cuda.memory_allocated() - before <= 512


def test_invalid_sizes_are_refused():
    for device in ("cpu", "cuda"):
        with pytest.raises(RuntimeError, match="resize_ expects an int, but got float"):
            torch.UntypedStorage(4, device=device).resize_(1.5)


# ---- copies --------------------------------------------------------------------------------------


def test_storage_moves_between_devices():
    storage = torch.UntypedStorage([1, 2, 3])
    there = storage.cuda(1)
    assert (there.device.index, there.tolist()) == (1, [1, 2, 3])
    assert there.cuda(1) is there
    assert there.cpu().device.type == "cpu" and there.cpu().tolist() == [1, 2, 3]
    assert torch.UntypedStorage(3, device="cuda").copy_(there).tolist() == [1, 2, 3]
    assert torch.UntypedStorage(3).copy_(there).tolist() == [1, 2, 3]


def test_copies_have_memory_of_their_own():
    storage = torch.UntypedStorage([1, 2, 3], device="cuda:1")
    for other in (storage.clone(), copy.copy(storage), copy.deepcopy(storage)):
        assert other.data_ptr() != storage.data_ptr()
        assert (other.device, other.tolist()) == (storage.device, [1, 2, 3])


def test_pinned_storage_is_pinned():
    assert torch.UntypedStorage(4).pin_memory().is_pinned()
    assert not torch.UntypedStorage(4).is_pinned()


# ---- storages with a dtype -----------------------------------------------------------------------

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")


def test_typed_storage_counts_elements():
    storage = torch.TypedStorage(3, dtype=torch.float64, device="cuda:1")
    assert (storage.size(), storage.nbytes(), storage.get_device()) == (3, 24, 1)
    assert storage.is_cuda and storage.type() == "torch.cuda.DoubleStorage"
    storage.resize_(6)
    assert (storage.size(), storage.nbytes()) == (6, 48)


LEGACY = [name for name in dir(torch.cuda) if name.endswith("Storage") and name[0] != "_"]


@pytest.mark.parametrize("name", LEGACY)
def test_legacy_storage_is_made(name):
    cls = getattr(torch.cuda, name)
    storage = cls([0, 1])
    assert (storage.dtype, storage.device.type) == (cls.dtype, "cuda")
    assert storage.tolist() == [0, 1]
    assert isinstance(storage, cls) and not isinstance(storage, getattr(torch, name))
    assert (cls(3).size(), cls().size()) == (3, 0)


def test_legacy_storage_moves():
    assert torch.FloatStorage([1, 2]).cuda().tolist() == [1.0, 2.0]
    assert torch.tensor([1.0, 2.0], device="cuda").storage().cpu().tolist() == [1.0, 2.0]


def test_tensor_looks_at_a_storage():
    tensor = torch.empty(0, device="cuda").set_(torch.cuda.FloatStorage([1, 2]))
    assert tensor.tolist() == [1.0, 2.0]
