"""torch._lazy_clone makes a tensor that is independent of the original."""

import pytest
import torch

from device import DEVICE, module

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
