"""torch._lazy_clone shares memory with the original until one of them is written to."""

import pytest
import torch

from device import DEVICE, module

is_shared = torch._C._is_cow_tensor

KINDS = {
    "tensor": lambda t: t,
    "transposed": lambda t: t.t(),
    "part": lambda t: t[1:, 1:],
    "expanded": lambda t: t[0].expand(3, 4),
    "empty": lambda t: t[:0],
    "conjugated": lambda t: torch.complex(t, t).conj(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", [f"{DEVICE}:0", f"{DEVICE}:1"])
def test_clone_has_the_metadata_of_the_cpu(kind, device):
    host = KINDS[kind](torch.arange(12.0).view(3, 4))
    tensor = KINDS[kind](torch.arange(12.0, device=device).view(3, 4))
    expected, clone = torch._lazy_clone(host), torch._lazy_clone(tensor)
    assert clone.device == torch.device(device)
    assert torch.equal(clone.cpu(), expected)
    assert (clone.stride(), clone.storage_offset()) == (
        expected.stride(),
        expected.storage_offset(),
    )
    assert clone.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    assert clone.is_conj() == expected.is_conj()


@pytest.mark.parametrize("written", ["source", "clone"])
@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.add_(1),
        lambda t: t.copy_(torch.ones(5)),
        lambda t: t[2:].zero_(),
        lambda t: torch.add(t, 1, out=t),
        lambda t: t.normal_(),
        lambda t: torch._foreach_add_([t], 1),
    ],
)
def test_writes_to_one_do_not_change_the_other(written, write):
    source = torch.arange(5.0, device=DEVICE)
    view = source[:]
    clone = torch._lazy_clone(source)
    write(source if written == "source" else clone)
    kept = clone if written == "source" else source
    assert kept.tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(view, source)


def test_clone_is_made_in_stream_order(close_gate):
    source = torch.zeros(5, device=DEVICE)
    source.add_(1)
    module.synchronize()
    gate = close_gate()
    source.add_(1)
    clone = torch._lazy_clone(source)
    source.add_(1)
    assert not module.current_stream().query()
    gate.open()
    assert (source.unique().item(), clone.unique().item()) == (3, 2)


def test_gradient_flows_through_the_clone():
    source = torch.ones(3, device=DEVICE, requires_grad=True)
    (torch._lazy_clone(source) * 2).sum().backward()
    assert source.grad.tolist() == [2, 2, 2]


def test_memory_is_shared_until_a_write():
    source = torch.arange(1000.0, device=DEVICE)
    before = module.memory_allocated()
    clone = torch._lazy_clone(source)
    assert (clone * 2).sum().item() == 2 * source.sum().item()
    assert is_shared(source) and is_shared(clone)
    assert module.memory_allocated() == before
    clone.add_(1)
    assert is_shared(source) and not is_shared(clone)
    assert module.memory_allocated() == before + 4096
    source.add_(1)  # the last one that shares the memory keeps it
    assert not is_shared(source)
    assert module.memory_allocated() == before + 4096
    assert torch.equal(source, clone)


def test_memory_is_freed_with_its_last_owner():
    before = module.memory_allocated()
    source = torch.ones(1000, device=DEVICE)
    clones = [torch._lazy_clone(source) for _ in range(3)]
    del source
    assert module.memory_allocated() == before + 4096
    clones[0].zero_()
    assert clones[1].sum().item() == 1000
    del clones
    assert module.memory_allocated() == before


def test_batch_norm_writes_to_statistics_of_its_own():
    norm = torch.nn.BatchNorm1d(2, device=DEVICE)
    kept = norm.running_mean
    norm.running_mean = torch._lazy_clone(kept)
    norm(torch.ones(4, 2, device=DEVICE))
    assert kept.tolist() == [0, 0]
    assert torch.allclose(norm.running_mean, torch.full((2,), 0.1, device=DEVICE))


def test_sparse_values_are_not_shared_after_a_write():
    values = torch.ones(2, device=DEVICE)
    indices = torch.tensor([[0, 2]], device=DEVICE)
    sparse = torch.sparse_coo_tensor(
        indices, torch._lazy_clone(values), (3,), is_coalesced=True, check_invariants=True
    )
    sparse.mul_(5)
    assert values.tolist() == [1, 1]
    assert sparse.to_dense().tolist() == [5, 0, 5]


def test_clone_of_another_device_gets_memory_there():
    source = torch.ones(3, device=f"{DEVICE}:1")
    clone = torch._lazy_clone(source)
    with module.device(0):
        clone.add_(1)
    assert module.memory_allocated(1) >= 1024
    assert clone.device.index == 1 and clone.untyped_storage().device.index == 1
    assert (source.tolist(), clone.tolist()) == ([1, 1, 1], [2, 2, 2])


def test_shared_memory_outlives_a_queued_copy(close_gate):
    torch.ones(1000, device=DEVICE).add_(1)  # the first one would be waited for
    source = torch.ones(1000, device=DEVICE)
    clone = torch._lazy_clone(source)
    module.synchronize()
    side = module.Stream()
    gate = close_gate(side)
    with side:
        clone.add_(1)  # copies in the order of the side stream
    del source
    other = torch.full((1000,), 7.0, device=DEVICE)  # must not take the memory
    gate.open()
    side.synchronize()
    assert clone.unique().tolist() == [2]
    assert other.unique().tolist() == [7]


def test_resize_of_a_clone_leaves_the_other():
    source = torch.ones(3, device=DEVICE)
    clone = torch._lazy_clone(source)
    clone.resize_(1000).fill_(2)
    assert source.tolist() == [1, 1, 1]


def test_memory_of_another_library_is_refused():
    tensor = torch.from_dlpack(torch.ones(8, device=DEVICE))
    with pytest.raises(RuntimeError, match="was not allocated by this process's allocator"):
        torch._lazy_clone(tensor)
