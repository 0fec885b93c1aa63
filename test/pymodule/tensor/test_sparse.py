"""Sparse tensors on a device: COO and the compressed layouts, against the CPU."""

import pytest
import torch
from torch.testing import assert_close

from device import DEVICE, module

LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]


def matrix() -> torch.Tensor:
    return torch.tensor([[0.0, 3, 0], [4, 0, 5]])


def members(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout is torch.sparse_csc:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_moving_keeps_layout_and_values(layout):
    host = matrix().to_sparse(layout=layout)
    device = host.to(f"{DEVICE}:1")
    assert device.device == torch.device(f"{DEVICE}:1") and device.layout is layout
    assert all(member.device == device.device for member in members(device))
    assert_close(device.cpu(), host)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_conversion_on_the_device_agrees_with_the_cpu(layout):
    device = matrix().to(DEVICE).to_sparse(layout=layout)
    assert all(member.device.type == DEVICE for member in members(device))
    assert_close(device.cpu(), matrix().to_sparse(layout=layout))
    assert_close(device.to_dense().cpu(), matrix())


def test_moves_between_devices_and_back():
    sparse = matrix().to_sparse().to(f"{DEVICE}:0")
    there = sparse.to(f"{DEVICE}:1")
    assert there.device.index == 1 and members(there)[1].device.index == 1
    assert_close(there.to(f"{DEVICE}:0").to_dense().cpu(), matrix())


def test_host_copy_of_a_sparse_tensor_is_host_memory():
    before = module.memory_allocated()
    copy = matrix().to_sparse().to(DEVICE).cpu()
    assert copy.device.type == "cpu"
    assert module.memory_allocated() == before


def test_indices_and_values_make_a_tensor_that_shares_them():
    indices, values = torch.tensor([[0, 1], [1, 0]]).to(DEVICE), torch.tensor([1.0, 2]).to(DEVICE)
    sparse = torch.sparse_coo_tensor(indices, values, (2, 2))
    assert sparse._values().data_ptr() == values.data_ptr()
    values.mul_(2)
    assert sparse.to_dense().cpu().tolist() == [[0, 2], [4, 0]]


def test_coalesce_sums_duplicates():
    indices = torch.tensor([[0, 0, 1], [1, 1, 0]])
    host = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2, 4]), (2, 2))
    device = host.to(DEVICE)
    assert not device.is_coalesced()
    coalesced = device.coalesce()
    assert coalesced.is_coalesced() and coalesced._nnz() == 2
    assert_close(coalesced.cpu(), host.coalesce())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_product_with_a_dense_matrix(layout):
    dense = torch.arange(6.0).reshape(3, 2)
    product = matrix().to_sparse(layout=layout).to(DEVICE) @ dense.to(DEVICE)
    assert product.device.type == DEVICE
    assert_close(product.cpu(), matrix() @ dense)


def test_in_place_arithmetic_changes_the_tensor():
    host = matrix().to_sparse()
    device = host.to(DEVICE)
    same = device
    device.mul_(3).add_(host.to(DEVICE))
    assert same is device
    assert_close(device.to_dense().cpu(), matrix() * 4)


def test_embedding_with_sparse_gradients_trains_as_on_the_cpu():
    torch.manual_seed(0)
    host = torch.nn.Embedding(5, 3, sparse=True)
    device = torch.nn.Embedding(5, 3, sparse=True)
    device.load_state_dict(host.state_dict())
    device.to(DEVICE)
    for layer in (host, device):
        optimizer = torch.optim.SparseAdam(layer.parameters(), lr=0.1)
        layer(torch.tensor([1, 3, 1], device=layer.weight.device)).pow(2).sum().backward()
        assert layer.weight.grad.layout is torch.sparse_coo
        optimizer.step()
    assert_close(device.weight.cpu(), host.weight)


def test_a_sparse_and_a_dense_tensor_on_two_devices_are_refused():
    with pytest.raises(RuntimeError, match="same device"):
        matrix().to_sparse().to(f"{DEVICE}:0") @ torch.ones(3, 2, device=f"{DEVICE}:1")


@pytest.mark.parametrize("reduction", ["sum", "mean", "amax"])
def test_gradients_of_a_reduced_product_agree_with_the_cpu(reduction):
    dense = torch.arange(6.0).reshape(3, 2)
    gradients = []
    for device in ("cpu", DEVICE):
        left = matrix().to_sparse_csr().to(device).requires_grad_()
        right = dense.to(device, copy=True).requires_grad_()
        torch.sparse.mm(left, right, reduction).pow(2).sum().backward()
        gradients.append((left.grad.to_dense().cpu(), right.grad.cpu()))
    assert_close(gradients[1], gradients[0])


def uncoalesced(device):
    indices = torch.tensor([[0, 1, 0], [2, 0, 2]], device=device)
    return torch.sparse_coo_tensor(indices, torch.tensor([5.0, -3, 4], device=device), (2, 3))


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.div_(-2, rounding_mode="floor"),
        lambda tensor: tensor.floor_divide_(2),
        lambda tensor: torch.abs(uncoalesced(tensor.device), out=tensor),
    ],
)
def test_changes_in_place_that_join_elements_reach_indices_and_values(change):
    host, device = uncoalesced("cpu"), uncoalesced(DEVICE)
    change(host)
    change(device)
    assert device._nnz() == host._nnz() == 2
    for ours, theirs in zip(members(device), members(host), strict=True):
        assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc])
def test_resizing_like_a_smaller_compressed_tensor_resizes_its_members(layout):
    smaller = torch.tensor([[0.0, 7, 0], [0, 0, 0]]).to_sparse(layout=layout)
    host = matrix().to_sparse(layout=layout)
    device = host.to(DEVICE)
    host.resize_as_sparse_(smaller)
    device.resize_as_sparse_(smaller.to(DEVICE))
    for ours, theirs in zip(members(device), members(host), strict=True):
        assert ours.shape == theirs.shape


def test_a_tensor_that_claims_to_be_coalesced_is_checked():
    with torch.sparse.check_sparse_tensor_invariants():
        indices = torch.tensor([[0, 1], [2, 0]], device=DEVICE)
        values = torch.tensor([3.0, 4], device=DEVICE)
        tensor = torch.sparse_coo_tensor(indices, values, (2, 3), is_coalesced=True)
        assert_close(tensor.to_dense().cpu(), torch.tensor([[0.0, 0, 3], [4, 0, 0]]))
        with pytest.raises(RuntimeError, match="uncoalesced"):
            torch.sparse_coo_tensor(indices.flip(1), values, (2, 3), is_coalesced=True)


LIKE = {
    "empty_like": torch.empty_like,
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "randn_like": torch.randn_like,
}


# PyTorch has no ones_like and randn_like of COO tensors.
@pytest.mark.parametrize(
    ("layout", "name"),
    [(torch.sparse_coo, "empty_like"), (torch.sparse_coo, "zeros_like")]
    + [(layout, name) for layout in (*LAYOUTS[1:], torch.sparse_bsr) for name in LIKE],
)
def test_tensor_like_a_sparse_one_is_made_where_it_is_asked_for(layout, name):
    blocks = (1, 3) if layout is torch.sparse_bsr else None
    sparse = matrix().to(DEVICE).to_sparse(layout=layout, blocksize=blocks)
    before = module.memory_allocated()
    host = LIKE[name](sparse, device="cpu")
    assert (host.device.type, host.layout) == ("cpu", layout)
    assert host.shape == sparse.shape
    assert module.memory_allocated() == before
    assert LIKE[name](sparse, device=f"{DEVICE}:1").device.index == 1
    assert LIKE[name](sparse).device == sparse.device
