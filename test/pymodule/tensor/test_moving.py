"""Moving tensors, modules, storages and packed sequences by methods such as `cuda()`."""

import pytest
import torch
from modes import openreg_only

from device import DEVICE, module

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]


def move(thing, *arguments, **keywords):
    """Call the method with the device's name, such as `cuda()`."""
    return getattr(thing, DEVICE)(*arguments, **keywords)


def is_there(thing):
    return getattr(thing, f"is_{DEVICE}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensor_survives_a_round_trip(dtype):
    host = torch.arange(12).reshape(3, 4).to(dtype)
    there = move(host)
    assert is_there(there) and not there.is_cpu and not is_there(host)
    assert there.dtype == dtype
    torch.testing.assert_close(there.cpu(), host, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("device", "index"),
    [
        (None, 0),
        (0, 0),
        (1, 1),
        (DEVICE, 0),
        (f"{DEVICE}:1", 1),
        (torch.device(f"{DEVICE}:1"), 1),
        (torch.device(DEVICE), 0),
    ],
)
def test_tensor_method_accepts_every_spelling_of_a_device(device, index):
    assert move(torch.ones(2), device).device == torch.device(DEVICE, index)


def test_tensor_method_uses_the_current_device():
    module.set_device(1)
    assert move(torch.ones(2)).get_device() == 1
    assert move(torch.ones(2), DEVICE).get_device() == 1


def test_tensor_on_the_device_is_returned_unchanged():
    tensor = torch.ones(2, device=f"{DEVICE}:1")
    assert move(tensor, 1) is tensor


def test_tensor_moves_across_devices():
    tensor = torch.arange(5.0, device=f"{DEVICE}:0")
    moved = move(tensor, 1)
    assert moved.device == torch.device(f"{DEVICE}:1")
    assert moved.tolist() == tensor.tolist()


def test_tensor_method_keeps_memory_format_on_request():
    host = torch.ones(2, 3, 4, 5)
    moved = move(host, 0, memory_format=torch.channels_last)
    assert moved.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("device", ["cpu", "meta", torch.device("cpu")])
def test_tensor_method_refuses_another_type_of_device(device):
    with pytest.raises(RuntimeError, match=f"Invalid device, must be {DEVICE} device"):
        move(torch.ones(2), device)


def test_tensor_method_refuses_a_device_out_of_range():
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        move(torch.ones(2), 2)


def test_gradient_flows_through_the_move():
    host = torch.ones(3, requires_grad=True)
    (move(host) * 2).sum().backward()
    assert host.grad.tolist() == [2.0, 2.0, 2.0]


def test_module_moves_with_parameters_and_buffers():
    layer = torch.nn.BatchNorm1d(4)
    assert move(layer, 1) is layer
    assert {t.device for t in layer.state_dict().values()} == {torch.device(f"{DEVICE}:1")}


def test_module_moves_across_devices_and_back():
    layer = torch.nn.Linear(2, 2)
    weight = layer.weight.detach().clone()
    move(move(layer, 0), f"{DEVICE}:1").cpu()
    assert torch.equal(layer.weight, weight)


def test_module_keeps_its_parameters_for_their_optimizer():
    layer = torch.nn.Linear(2, 2)
    before = list(layer.parameters())
    for step in (lambda: move(layer), lambda: move(layer, 1), layer.cpu):
        step()
        assert all(new is old for new, old in zip(layer.parameters(), before, strict=True))


def test_module_keeps_shared_parameters_shared():
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    second.weight = first.weight
    layer = move(torch.nn.Sequential(first, second))
    assert layer[0].weight is layer[1].weight


def test_lazy_module_moves_before_its_shapes_are_known():
    layer = move(torch.nn.LazyLinear(3))
    assert layer(torch.ones(1, 2, device=DEVICE)).shape == (1, 3)


def test_module_refuses_another_type_of_device():
    with pytest.raises(RuntimeError, match=f"Invalid device, must be {DEVICE} device"):
        move(torch.nn.Linear(2, 2), "cpu")


def test_untyped_storage_moves():
    storage = torch.arange(4.0).untyped_storage()
    moved = move(storage, 1)
    assert is_there(moved) and not is_there(storage)
    assert moved.device == torch.device(f"{DEVICE}:1")
    assert list(moved.cpu()) == list(storage)


def test_untyped_storage_on_the_device_is_returned_unchanged():
    storage = torch.ones(2, device=f"{DEVICE}:1").untyped_storage()
    assert move(storage, 1) is storage
    assert move(storage, 0) is not storage


def test_untyped_storage_refuses_another_type_of_device():
    refused = (RuntimeError, f"Invalid device, must be {DEVICE} device")
    if DEVICE == "cuda":
        refused = (TypeError, "must be int, not str")
    with pytest.raises(refused[0], match=refused[1]):
        move(torch.UntypedStorage(4), "cpu")


@openreg_only("torch.cuda looks for a class torch.cuda.sparse.SparseStorage")
def test_sparse_storage_is_refused():
    class SparseStorage(torch.UntypedStorage):
        is_sparse = True

    with pytest.raises(RuntimeError, match=f"Can not support a sparse storage move to {DEVICE}"):
        move(SparseStorage(4))


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_typed_storage_moves_and_keeps_its_dtype():
    storage = torch.arange(4, dtype=torch.int16).storage()
    moved = move(storage)
    assert is_there(moved) and not is_there(storage)
    assert moved.dtype == torch.int16
    assert moved.cpu().tolist() == [0, 1, 2, 3]


@openreg_only("PyTorch makes these methods for a device type of another name")
def test_typed_storage_of_an_unsupported_dtype_is_refused(python):
    result = python(
        """
        import torch
        for owner in (torch.storage._StorageBase, torch.TypedStorage):
            del owner.openreg, owner.is_openreg
        torch.utils.generate_methods_for_privateuse1_backend(
            for_tensor=False, for_module=False, for_packed_sequence=False, for_storage=True,
            unsupported_dtype=[torch.int8],
        )
        print(torch.ones(2).storage().openreg().is_openreg)
        try:
            torch.ones(2, dtype=torch.int8).storage().openreg()
        except RuntimeError as error:
            print(error)
        """
    )
    assert result.stdout == (
        "True\nCannot create openreg storage as torch.int8 dtype is not supported by this backend\n"
    )


def test_storage_is_shared_by_views():
    tensor = torch.arange(6.0, device=DEVICE)
    assert tensor[2:].untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


def test_storage_can_be_resized():
    tensor = torch.arange(4.0, device=DEVICE)
    tensor.untyped_storage().resize_(64)
    assert tensor.untyped_storage().nbytes() == 64
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]


def packed_sequence():
    rows = [torch.arange(3.0), torch.arange(2.0), torch.arange(1.0)]
    return torch.nn.utils.rnn.pack_sequence([row.unsqueeze(1) for row in rows])


def test_packed_sequence_moves_but_for_its_batch_sizes():
    moved = move(packed_sequence())
    assert is_there(moved) and not is_there(packed_sequence())
    assert moved.batch_sizes.is_cpu
    torch.testing.assert_close(moved.data.cpu(), packed_sequence().data)


def test_packed_sequence_moves_to_the_given_device():
    assert move(packed_sequence(), f"{DEVICE}:1").data.get_device() == 1


def test_packing_and_padding_on_the_device_agree_with_the_cpu():
    padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(move(packed_sequence()))
    expected, expected_lengths = torch.nn.utils.rnn.pad_packed_sequence(packed_sequence())
    torch.testing.assert_close(padded.cpu(), expected)
    assert torch.equal(lengths, expected_lengths)


def test_tensor_type_names_the_device():
    assert torch.ones(1, device=DEVICE).type() == f"torch.{DEVICE}.FloatTensor"
    assert torch.ones(1).type(f"torch.{DEVICE}.LongTensor").device.type == DEVICE
