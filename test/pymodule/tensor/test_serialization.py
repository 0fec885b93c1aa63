"""Saving, loading, pickling and deep copies keep values, devices and sharing."""

import copy
import io
import pickle

import pytest
import torch
from modes import openreg_only

from device import DEVICE, module


def saved(thing):
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("device", [f"{DEVICE}:0", f"{DEVICE}:1"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
)
def test_tensor_is_loaded_to_its_device(device, dtype):
    tensor = torch.arange(6).reshape(2, 3).to(dtype).to(device)
    loaded = torch.load(saved(tensor))
    assert loaded.device == torch.device(device) and loaded.dtype == dtype
    assert torch.equal(loaded.cpu(), tensor.cpu())


@pytest.mark.parametrize(
    ("location", "device"),
    [
        ("cpu", "cpu"),
        (f"{DEVICE}:1", f"{DEVICE}:1"),
        (DEVICE, f"{DEVICE}:0"),
        (torch.device(f"{DEVICE}:1"), f"{DEVICE}:1"),
        ({f"{DEVICE}:0": f"{DEVICE}:1"}, f"{DEVICE}:1"),
        ({f"{DEVICE}:0": "cpu"}, "cpu"),
        (lambda storage, location: getattr(storage, DEVICE)(1), f"{DEVICE}:1"),
    ],
)
def test_tensor_is_loaded_to_another_place(location, device):
    loaded = torch.load(saved(torch.arange(3.0, device=f"{DEVICE}:0")), map_location=location)
    assert loaded.device == torch.device(device)
    assert loaded.tolist() == [0.0, 1.0, 2.0]


def test_host_tensor_is_loaded_to_a_device():
    loaded = torch.load(saved(torch.arange(3.0)), map_location=f"{DEVICE}:1")
    assert loaded.device == torch.device(f"{DEVICE}:1")
    assert loaded.tolist() == [0.0, 1.0, 2.0]


def test_location_without_index_is_the_current_device():
    buffer = saved(torch.arange(3.0))
    module.set_device(1)
    assert torch.load(buffer, map_location=DEVICE).get_device() == 1


def test_loading_to_a_device_that_does_not_exist_is_refused():
    sentence = f"on {DEVICE.upper()} device 2 but torch.{DEVICE}.device_count\\(\\) is 2"
    with pytest.raises(RuntimeError, match=sentence):
        torch.load(saved(torch.ones(1)), map_location=f"{DEVICE}:2")


def test_views_share_their_storage_after_loading():
    base = torch.arange(6.0, device=DEVICE)
    first, second = torch.load(saved([base, base[2:4]]))
    second.zero_()
    assert first.tolist() == [0.0, 1.0, 0.0, 0.0, 4.0, 5.0]


def test_strides_survive():
    tensor = torch.arange(6.0, device=DEVICE).reshape(2, 3).t()
    loaded = torch.load(saved(tensor))
    assert loaded.stride() == (1, 3)
    assert torch.equal(loaded, tensor)


def test_state_of_model_and_optimizer_survives():
    model = torch.nn.Linear(3, 2).to(f"{DEVICE}:1")
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3, device=f"{DEVICE}:1")).sum().backward()
    optimizer.step()
    other = torch.nn.Linear(3, 2)
    other.load_state_dict(torch.load(saved(model.state_dict()), map_location="cpu"))
    assert torch.equal(other.weight, model.weight.cpu())
    state = torch.load(saved(optimizer.state_dict()))["state"][0]
    assert state["exp_avg"].device == torch.device(f"{DEVICE}:1")


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("location", [f"{DEVICE}:1", "cpu", {f"{DEVICE}:0": f"{DEVICE}:1"}])
def test_training_continues_from_a_checkpoint_on_another_device(kind, location):
    def steps(model, optimizer, count):
        for _ in range(count):
            optimizer.zero_grad()
            rows = torch.linspace(-1, 1, 6, device=model.weight.device).view(2, 3)
            model(rows).square().sum().backward()
            optimizer.step()

    def make(device):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2).to(device)
        settings = {"lr": 0.1} | ({"momentum": 0.9} if kind == "SGD" else {})
        return model, getattr(torch.optim, kind)(model.parameters(), **settings)

    model, optimizer = make(f"{DEVICE}:0")
    steps(model, optimizer, 3)
    file = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    checkpoint = torch.load(file, map_location=location, weights_only=True)
    device = checkpoint["model"]["weight"].device
    assert device != torch.device(f"{DEVICE}:0")
    resumed, its_optimizer = make(device)
    resumed.load_state_dict(checkpoint["model"])
    its_optimizer.load_state_dict(checkpoint["optimizer"])
    steps(model, optimizer, 3)
    steps(resumed, its_optimizer, 3)
    assert resumed.weight.device == device
    torch.testing.assert_close(resumed.weight.cpu(), model.weight.cpu())


def test_whole_module_is_saved_and_loaded():
    model = torch.nn.Linear(3, 2).to(f"{DEVICE}:1")
    loaded = torch.load(saved(model), map_location=f"{DEVICE}:0", weights_only=False)
    assert loaded.weight.get_device() == 0
    assert torch.equal(loaded.weight.cpu(), model.weight.cpu())


def test_parameter_keeps_its_kind():
    loaded = torch.load(saved(torch.nn.Parameter(torch.ones(2, device=DEVICE))))
    assert (
        isinstance(loaded, torch.nn.Parameter)
        and loaded.device.type == DEVICE
        and loaded.requires_grad
    )


def test_loading_onto_a_device_by_context():
    with torch.device(f"{DEVICE}:1"):
        assert torch.load(saved(torch.ones(2))).device == torch.device(f"{DEVICE}:1")


def test_pickle_keeps_the_device():
    tensor = torch.arange(3.0, device=f"{DEVICE}:1", requires_grad=True)
    loaded = pickle.loads(pickle.dumps(tensor))
    assert loaded.device == torch.device(f"{DEVICE}:1") and loaded.requires_grad
    assert loaded.tolist() == [0.0, 1.0, 2.0]


def test_deep_copy_is_on_the_same_device_and_apart():
    tensor = torch.arange(3.0, device=f"{DEVICE}:1")
    duplicate = copy.deepcopy(tensor)
    duplicate.zero_()
    assert duplicate.device == torch.device(f"{DEVICE}:1")
    assert tensor.tolist() == [0.0, 1.0, 2.0]


def test_deep_copy_of_a_module_is_on_the_same_device():
    module = copy.deepcopy(torch.nn.Linear(2, 2).to(f"{DEVICE}:1"))
    assert {parameter.get_device() for parameter in module.parameters()} == {1}


def test_deep_copy_keeps_views_together():
    base = torch.arange(4.0, device=DEVICE)
    first, second = copy.deepcopy([base, base[1:]])
    second.fill_(9)
    assert first.tolist() == [0.0, 9.0, 9.0, 9.0]


def test_storage_has_its_location():
    storage = torch.UntypedStorage(4, device=f"{DEVICE}:1")
    assert torch.serialization.location_tag(storage) == f"{DEVICE}:1"
    restored = torch.serialization.default_restore_location(torch.UntypedStorage(4), f"{DEVICE}:1")
    assert restored.device.type == DEVICE and restored.device.index == 1


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_untyped_storage_survives():
    storage = torch.arange(4, dtype=torch.uint8, device=f"{DEVICE}:1").untyped_storage()
    loaded = torch.load(saved(storage), weights_only=False)
    assert loaded.device == torch.device(f"{DEVICE}:1")
    assert list(loaded.cpu()) == [0, 1, 2, 3]


def test_file_written_with_a_device_is_mapped_from_disk(tmp_path):
    torch.save(torch.arange(3.0, device=DEVICE), tmp_path / "tensor.pt")
    loaded = torch.load(tmp_path / "tensor.pt", map_location=f"{DEVICE}:1", mmap=True)
    assert loaded.get_device() == 1
    assert loaded.tolist() == [0.0, 1.0, 2.0]


# ---- a backend's metadata ------------------------------------------------------------------------

METADATA = {"version_number": True, "format_number": True}
metadata_test = openreg_only("metadata of tensors, which PyTorch's own device types have not")


def with_metadata(tensor):
    torch._utils.set_tensor_metadata(tensor, METADATA)
    return tensor


MADE = {
    "tensor": lambda: torch.ones(3, device=DEVICE),
    "view": lambda: torch.ones(3, 3, device=DEVICE).t(),
    # moved in place, so that it keeps the TensorImpl of the host tensor
    "of a moved parameter": lambda: torch.nn.Linear(3, 2).to(DEVICE).weight.data,
}


@metadata_test
@pytest.mark.parametrize("kind", MADE)
def test_metadata_is_kept_by_its_tensor(kind):
    tensor = MADE[kind]()
    assert torch._utils.get_tensor_metadata(tensor) == {}
    with_metadata(tensor)
    assert torch._utils.get_tensor_metadata(tensor) == METADATA
    tensor.add_(1)
    (tensor * 2).sum().item()
    assert torch._utils.get_tensor_metadata(tensor) == METADATA
    torch._utils.set_tensor_metadata(tensor, {"version_number": True})
    assert torch._utils.get_tensor_metadata(tensor) == {"version_number": True}
    torch._utils.set_tensor_metadata(tensor, {})
    assert torch._utils.get_tensor_metadata(tensor) == {}
    assert torch.equal(tensor.cpu() * 2, (tensor * 2).cpu())


@metadata_test
@pytest.mark.parametrize("kind", MADE)
def test_only_shallow_copies_keep_metadata(kind):
    tensor = with_metadata(MADE[kind]())
    assert torch._utils.get_tensor_metadata(tensor.data) == METADATA
    assert torch.equal(tensor.data.cpu(), tensor.cpu())
    for other in (tensor.clone(), tensor + 1, tensor[0], tensor.cpu(), tensor.to(f"{DEVICE}:1")):
        assert torch._utils.get_tensor_metadata(other) == {}


@metadata_test
def test_replacing_data_moves_metadata_to_the_tensor():
    parameter = torch.nn.Linear(3, 2).weight
    parameter.data = with_metadata(torch.ones(2, 3, device=DEVICE))
    assert torch._utils.get_tensor_metadata(parameter) == METADATA
    assert (parameter * 2).sum().item() == 12
    assert torch._utils.get_tensor_metadata(parameter) == METADATA


@metadata_test
@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("location", [None, f"{DEVICE}:1", {f"{DEVICE}:0": f"{DEVICE}:1"}])
@pytest.mark.parametrize("weights_only", [True, False])
def test_metadata_is_saved_and_loaded(kind, location, weights_only):
    tensor = with_metadata(MADE[kind]())
    loaded = torch.load(saved(tensor), map_location=location, weights_only=weights_only)
    assert torch._utils.get_tensor_metadata(loaded) == METADATA
    assert loaded.get_device() == (0 if location is None else 1)
    assert torch.equal(loaded.cpu(), tensor.cpu())


def test_metadata_is_not_loaded_to_the_host():
    tensor = with_metadata(torch.ones(3, device=DEVICE))
    loaded = torch.load(saved(tensor), map_location="cpu")
    assert torch._utils.get_tensor_metadata(loaded) == {}
    assert loaded.tolist() == [1, 1, 1]


@metadata_test
def test_metadata_is_saved_with_conjugate_and_negative_bits():
    tensor = with_metadata(torch.ones(3, dtype=torch.complex64, device=DEVICE).conj())
    loaded = torch.load(saved(tensor))
    assert torch._utils.get_tensor_metadata(loaded) == METADATA | {"conj": True}
