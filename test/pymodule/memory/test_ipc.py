"""Tensors and storages that are sent to another process: contents, and shared memory."""

from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from modes import openreg_only
from peers import Peer, drop, keep, kept, values

from device import DEVICE, NAME, module

CASES = {
    "contiguous": lambda: torch.arange(6.0, device=DEVICE).reshape(2, 3),
    "transposed": lambda: torch.arange(6.0, device=DEVICE).reshape(2, 3).t(),
    "strided": lambda: torch.arange(20, device=DEVICE)[3::4],
    "expanded": lambda: torch.ones(1, 3, device=DEVICE).expand(4, 3),
    "overlapping": lambda: torch.arange(8, device=DEVICE).as_strided((3, 3), (2, 1), 1),
    "scalar": lambda: torch.tensor(3.5, device=DEVICE),
    "second device": lambda: torch.arange(4, device=f"{DEVICE}:1"),
    "no elements": lambda: torch.empty(0, 3, device=f"{DEVICE}:1"),
    "no elements of some": lambda: torch.ones(4, device=DEVICE)[2:2],
    "one byte": lambda: torch.ones(1, dtype=torch.bool, device=DEVICE),
    "large": lambda: torch.arange(3 << 20, device=DEVICE, dtype=torch.int32)[-5:],
    "requires grad": lambda: torch.ones(2, device=DEVICE, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2, device=DEVICE)),
    "integer parameter": lambda: torch.nn.Parameter(
        torch.ones(2, dtype=torch.int8, device=DEVICE), requires_grad=False
    ),
    "conjugate": lambda: torch.tensor([1 + 2j, 3 - 4j], device=DEVICE).conj(),
    "negative": lambda: torch.tensor([1 + 2j, 3 - 4j], device=DEVICE).conj().imag,
}
DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.uint32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
)


of_storages = openreg_only("storages on cuda, which torch.multiprocessing refuses to send")


@pytest.fixture(scope="module")
def peer():
    with Peer() as peer:
        yield peer


def describe(tensor):
    return {
        "type": type(tensor).__name__,
        "device": str(tensor.device),
        "dtype": str(tensor.dtype),
        "size": tuple(tensor.size()),
        "stride": tensor.stride(),
        "offset": tensor.storage_offset(),
        "storage": tensor.untyped_storage().nbytes(),
        "requires_grad": tensor.requires_grad,
        "is_leaf": tensor.is_leaf,
        "conjugate": tensor.is_conj(),
        "negative": tensor.is_neg(),
        "values": tensor.tolist(),
    }


def lazily(case):
    """Mark properties of tensors on cuda that torch.multiprocessing loses."""
    return pytest.param(case, marks=openreg_only("lazy conjugation and negation are not sent"))


@pytest.mark.parametrize(
    "case", [lazily(each) if each in ("conjugate", "negative") else each for each in CASES]
)
def test_tensor_arrives_as_it_is(peer, case):
    tensor = CASES[case]()
    assert peer.call(describe, tensor) == describe(tensor)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_arrives(peer, dtype):
    tensor = torch.tensor([0, 1, 2], device=DEVICE).to(dtype)
    assert peer.call(describe, tensor) == describe(tensor)


def add(tensor, value):
    tensor.add_(value)
    module.synchronize()


def test_memory_is_the_same(peer):
    tensor = torch.zeros(3, device=DEVICE)
    peer.call(keep, "tensor", tensor)
    tensor[0] = 1
    module.synchronize()
    peer.call(add, tensor, 2)
    assert tensor.tolist() == [3, 2, 2]
    assert peer.call(values, "tensor") == [3, 2, 2]


def share_memory(one, other):
    kept["tensor"] = one
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


def shares_memory_with_kept(tensor):
    return share_memory(kept["tensor"], tensor)


def test_views_of_one_storage_arrive_as_views_of_one_storage(peer):
    tensor = torch.arange(4, device=DEVICE)
    assert peer.call(share_memory, tensor, tensor[1:])
    assert peer.call(shares_memory_with_kept, tensor.view(2, 2).t())
    assert not peer.call(share_memory, tensor, tensor.clone())


def test_storage_that_is_sent_again_after_the_receiver_dropped_it_arrives_again(peer):
    tensor = torch.arange(4, device=DEVICE)
    for _ in range(3):
        peer.call(keep, "tensor", tensor)
        tensor += 1
        module.synchronize()
        assert peer.call(values, "tensor") == tensor.tolist()
        peer.call(drop, "tensor")


def describe_storage(storage):
    untyped = storage if isinstance(storage, torch.UntypedStorage) else storage._untyped_storage
    tensor = torch.empty(0, dtype=torch.uint8, device=untyped.device).set_(untyped)
    return type(storage).__name__, str(untyped.device), untyped.nbytes(), tensor.tolist()


@of_storages
@pytest.mark.parametrize("device", [f"{DEVICE}:0", f"{DEVICE}:1"])
def test_untyped_storage_arrives(peer, device):
    storage = torch.arange(5, dtype=torch.uint8, device=device).untyped_storage()
    assert peer.call(describe_storage, storage) == describe_storage(storage)


def storage_dtype(storage):
    return storage.dtype


@of_storages
def test_typed_storage_arrives(peer):
    storage = torch.arange(5.0, device=DEVICE)._typed_storage()
    assert peer.call(describe_storage, storage) == describe_storage(storage)
    assert peer.call(storage_dtype, storage) == torch.float32


@of_storages
def test_storage_of_no_bytes_arrives(peer):
    storage = torch.UntypedStorage(0, device=f"{DEVICE}:1")
    assert peer.call(describe_storage, storage) == ("UntypedStorage", f"{DEVICE}:1", 0, [])


def resize(storage):
    storage.resize_(storage.nbytes() * 2)


@of_storages
def test_storage_that_was_received_keeps_its_size(peer):
    with pytest.raises(RuntimeError, match="storage that is not resizable"):
        peer.call(resize, torch.ones(2, device=DEVICE).untyped_storage())


class Marked(torch.Tensor):
    """A subclass that adds nothing."""


@of_storages
def test_subclass_arrives_as_what_it_is(peer):
    tensor = torch.arange(3.0, device=DEVICE).as_subclass(Marked)
    peer.call(keep, "tensor", tensor)
    tensor += 1
    module.synchronize()
    assert peer.call(describe, tensor)["type"] == "Marked"
    assert peer.call(values, "tensor") == [1, 2, 3]


def members(tensor):
    if tensor.layout is torch.sparse_coo:
        parts = tensor._indices(), tensor._values()
    elif tensor.layout is torch.sparse_csr:
        parts = tensor.crow_indices(), tensor.col_indices(), tensor.values()
    else:
        parts = tensor.unbind()
    return str(tensor.layout), [(str(part.device), part.tolist()) for part in parts]


@pytest.mark.filterwarnings("ignore:.*[Ss]parse")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda t: t.to_sparse(), id="coo"),
        pytest.param(lambda t: t.to_sparse_csr(), id="csr"),
        pytest.param(lambda t: torch.nested.nested_tensor([t, t[:1]]), id="nested"),
        pytest.param(
            lambda t: torch.nested.nested_tensor([t, t[:1]], layout=torch.jagged), id="jagged"
        ),
    ],
)
def test_tensor_of_tensors_arrives(peer, make):
    tensor = make(torch.eye(2, device=DEVICE))
    assert peer.call(members, tensor) == members(tensor)


def test_module_arrives_with_its_memory(peer):
    layer = torch.nn.Linear(2, 2).to(DEVICE).share_memory()
    peer.call(train, layer)
    assert all((parameter == 1).all() for parameter in layer.parameters())


def train(layer):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1)
    module.synchronize()


def test_tensors_of_other_devices_go_with_them(peer):
    mixed = {"host": torch.arange(3), "device": torch.arange(3, device=DEVICE)}
    answer = peer.call(same_but_new, mixed)
    assert answer["host"].tolist() == answer["device"].tolist() == [0, 1, 2]
    assert answer["device"].device.type == DEVICE


def same_but_new(tensors):
    kept["new"] = {name: tensor.clone() for name, tensor in tensors.items()}
    return kept["new"]


def test_everything_is_shared_already():
    tensor = torch.ones(2, device=DEVICE)
    address = tensor.data_ptr()
    assert tensor.is_shared() and tensor.untyped_storage().is_shared()
    assert tensor.share_memory_() is tensor
    assert tensor.untyped_storage().share_memory_().is_shared()
    assert tensor.data_ptr() == address


# ---- errors --------------------------------------------------------------------------------------


def test_tensor_with_a_history_is_refused(peer):
    tensor = torch.ones(2, device=DEVICE, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        peer.start(describe, tensor)
    assert peer.call(describe, tensor.detach())["values"] == [2, 2]


def send_on(tensor):
    with pytest.raises(RuntimeError) as error:
        ForkingPickler.dumps(tensor)
    return str(error.value)


def test_tensor_that_was_received_cannot_be_sent_on_but_its_clone_can(peer):
    tensor = torch.arange(3, device=DEVICE)
    assert peer.call(send_on, tensor) == (
        f"Attempted to send {NAME} tensor received from another process; this is not currently "
        "supported. Consider cloning before sending."
    )
    answer = peer.call(same_but_new, {"tensor": tensor})
    assert answer["tensor"].tolist() == [0, 1, 2]


def test_memory_that_came_from_another_library_is_refused():
    tensor = torch.from_dlpack(torch.arange(600, device=DEVICE)[300:].__dlpack__())
    with pytest.raises(RuntimeError, match="Consider cloning before sending"):
        ForkingPickler.dumps(tensor)


FORK_SENTENCE = f"Cannot re-initialize {NAME} in forked subprocess"


def test_forked_child_gets_an_error_that_it_has_no_devices(python):
    result = python(
        """
        import torch
        from device import DEVICE
        def receive(connection):
            try:
                connection.recv()
            except RuntimeError as error:
                connection.send(str(error))
        context = torch.multiprocessing.get_context("fork")
        tensor = torch.ones(2, device=DEVICE)
        ours, theirs = context.Pipe()
        process = context.Process(target=receive, args=(theirs,))
        process.start()
        ours.send(tensor)
        print(ours.recv())
        process.join()
        """
    )
    assert result.stdout.startswith(FORK_SENTENCE)


def send_after_fork(connection, tensor):
    try:
        connection.send(tensor)
    except RuntimeError as error:
        connection.send(str(error))


def test_forked_child_cannot_send_what_its_parent_has():
    context = torch.multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    tensor = torch.ones(2, device=DEVICE)
    process = context.Process(target=send_after_fork, args=(theirs, tensor))
    process.start()
    assert ours.recv().startswith(FORK_SENTENCE)
    process.join()
