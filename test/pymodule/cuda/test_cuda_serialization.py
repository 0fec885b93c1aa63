"""torch.save, torch.load and pickle for tensors on cuda."""

import copy
import io
import pickle

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")


def saved(value, **arguments):
    file = io.BytesIO()
    torch.save(value, file, **arguments)
    file.seek(0)
    return file


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("map_location", "expected"),
    [
        (None, "cuda:1"),
        ("cpu", "cpu"),
        ("cuda", "cuda:0"),
        ("cuda:0", "cuda:0"),
        (torch.device("cuda", 1), "cuda:1"),
        ({"cuda:1": "cuda:0"}, "cuda:0"),
        (lambda storage, location: storage, "cpu"),
        (lambda storage, location: storage.cuda(0), "cuda:0"),
    ],
)
def test_map_location_selects_the_device(zipped, map_location, expected):
    tensor = torch.arange(6.0, device="cuda:1").reshape(2, 3).t()
    file = saved(tensor, _use_new_zipfile_serialization=zipped)
    loaded = torch.load(file, map_location=map_location)
    assert str(loaded.device) == expected
    assert loaded.tolist() == tensor.tolist() and loaded.stride() == tensor.stride()


def test_tensors_of_one_storage_are_loaded_as_that():
    tensor = torch.arange(6.0, device="cuda")
    first, second = torch.load(saved([tensor[:3], tensor[2:]]))
    first[2] = 9
    assert second[0].item() == 9


def test_storages_are_loaded():
    storage = torch.UntypedStorage([1, 2, 3], device="cuda:1")
    loaded = torch.load(saved(storage), weights_only=False)
    assert (loaded.tolist(), loaded.get_device()) == ([1, 2, 3], 1)
    typed = torch.load(saved(torch.ones(2, device="cuda").storage()), weights_only=False)
    assert typed.tolist() == [1.0, 1.0] and typed.is_cuda


@pytest.mark.parametrize("mmap", [True, False])
def test_state_of_a_module_is_loaded(tmp_path, mmap):
    module = torch.nn.Linear(3, 2, device="cuda:1")
    torch.save(module.state_dict(), tmp_path / "state")
    state = torch.load(tmp_path / "state", map_location="cuda:0", mmap=mmap)
    assert {str(value.device) for value in state.values()} == {"cuda:0"}
    assert state["weight"].tolist() == module.weight.tolist()


def test_device_that_is_not_there_is_refused():
    file = saved(torch.ones(2, device="cuda:1"))
    with pytest.raises(RuntimeError, match=r"CUDA device 7 but torch.cuda.device_count\(\) is 2"):
        torch.load(file, map_location="cuda:7")


def test_pickled_tensors_come_back():
    tensor = torch.nn.Parameter(torch.arange(3.0, device="cuda:1"))
    loaded = pickle.loads(pickle.dumps(tensor))
    assert isinstance(loaded, torch.nn.Parameter) and loaded.requires_grad
    assert (loaded.get_device(), loaded.tolist()) == (1, [0.0, 1.0, 2.0])


@pytest.mark.parametrize("make", [torch.cuda.Event, torch.cuda.Stream])
def test_streams_and_events_are_not_pickled(make):
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(make())


def test_copied_module_is_on_the_same_device():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).cuda(1)
    twin = copy.deepcopy(module)
    for one, other in zip(module.state_dict().values(), twin.state_dict().values(), strict=True):
        assert one.device == other.device and one.data_ptr() != other.data_ptr()
        assert torch.equal(one, other)
