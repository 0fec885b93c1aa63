"""Operators that write in place, to `out=`, through views, and to buffers."""

import pytest
import samples
import torch
import torch.nn.functional as F

from device import DEVICE

IN_PLACE = {
    "add_": lambda s: s.x.add_(s.y, alpha=2),
    "add_broadcast": lambda s: s.x.add_(s.row),
    "addcmul_": lambda s: s.x.addcmul_(s.y, s.z),
    "addmm_": lambda s: s.square.addmm_(s.square, s.square),
    "bitwise_or_": lambda s: s.i.bitwise_or_(s.j),
    "clamp_": lambda s: s.x.clamp_(0, 1),
    "copy_": lambda s: s.x.copy_(s.i),
    "cumsum_": lambda s: s.x.cumsum_(0),
    "div_": lambda s: s.x.div_(s.p),
    "exp_": lambda s: s.x.exp_(),
    "fill_": lambda s: s.x.fill_(3),
    "index_add_": lambda s: s.x.index_add_(0, s.index, s.y[:3]),
    "index_fill_": lambda s: s.x.index_fill_(0, s.index, 5),
    "index_put_": lambda s: s.x.index_put_((s.index,), s.y[:3]),
    "lerp_": lambda s: s.x.lerp_(s.y, 0.5),
    "masked_fill_": lambda s: s.x.masked_fill_(s.b, 9),
    "mul_": lambda s: s.x.mul_(s.y),
    "neg_": lambda s: s.x.neg_(),
    "pow_": lambda s: s.p.pow_(2),
    "relu_": lambda s: s.x.relu_(),
    "scatter_": lambda s: s.x.scatter_(0, s.places, s.y),
    "scatter_add_": lambda s: s.x.scatter_add_(0, s.places, s.y),
    "sub_": lambda s: s.x.sub_(s.y),
    "transpose_": lambda s: s.x.transpose_(0, 1),
    "tril_": lambda s: s.x.tril_(),
    "unsqueeze_": lambda s: s.x.unsqueeze_(0),
    "zero_": lambda s: s.x.zero_(),
    "foreach_add_": lambda s: torch._foreach_add_([s.x, s.y], 1.0)[1],
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_operator_agrees_with_the_cpu(name):
    host, device = samples.make(), samples.make(DEVICE)
    addresses = {
        value.data_ptr() for value in vars(device).values() if isinstance(value, torch.Tensor)
    }
    expected, actual = IN_PLACE[name](host), IN_PLACE[name](device)
    assert actual.data_ptr() in addresses
    torch.testing.assert_close(actual.cpu(), expected)
    for key, value in vars(host).items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(getattr(device, key).cpu(), value)


OUT = {
    "add": lambda s, out: torch.add(s.x, s.y, out=out),
    "arange": lambda s, out: torch.arange(6.0, out=out),
    "bmm": lambda s, out: torch.bmm(s.batch, s.batch2, out=out),
    "cat": lambda s, out: torch.cat([s.x, s.y], out=out),
    "cumsum": lambda s, out: torch.cumsum(s.x, 1, out=out),
    "index_select": lambda s, out: torch.index_select(s.x, 0, s.index, out=out),
    "masked_select": lambda s, out: torch.masked_select(s.x, s.b, out=out),
    "mean": lambda s, out: torch.mean(s.x, 0, out=out),
    "mm": lambda s, out: torch.mm(s.x, s.w, out=out),
    "mul": lambda s, out: torch.mul(s.x, s.y, out=out),
    "sigmoid": lambda s, out: torch.sigmoid(s.x, out=out),
    "sum": lambda s, out: torch.sum(s.x, 1, out=out),
    "tril": lambda s, out: torch.tril(s.x, out=out),
}


@pytest.mark.parametrize("name", OUT)
def test_out_argument_of_the_right_size_is_written(name):
    host = samples.make()
    expected = OUT[name](host, torch.empty(0))
    out = torch.full_like(expected, 7, device=DEVICE)
    address = out.data_ptr()
    assert OUT[name](samples.make(DEVICE), out) is out
    assert out.data_ptr() == address
    torch.testing.assert_close(out.cpu(), expected)


@pytest.mark.parametrize("name", OUT)
def test_empty_out_argument_grows(name):
    expected = OUT[name](samples.make(), torch.empty(0))
    out = torch.empty(0, device=DEVICE)
    assert OUT[name](samples.make(DEVICE), out) is out
    assert out.device.type == DEVICE and out.untyped_storage().nbytes() >= expected.numel() * 4
    torch.testing.assert_close(out.cpu(), expected)
    torch.testing.assert_close((out + 1).cpu(), expected + 1)


def test_strided_out_argument_keeps_its_strides():
    s = samples.make(DEVICE)
    out = torch.zeros(5, 4, device=DEVICE).t()
    torch.mul(s.x, s.y, out=out)
    assert out.stride() == (1, 4)
    torch.testing.assert_close(out.cpu(), (s.x * s.y).cpu())


def test_several_out_arguments_are_written():
    s = samples.make(DEVICE)
    values = torch.empty(0, device=DEVICE)
    indices = torch.empty(0, dtype=torch.long, device=DEVICE)
    torch.sort(s.x, dim=1, out=(values, indices))
    expected = samples.make().x.sort(1)
    assert torch.equal(values.cpu(), expected.values)
    assert torch.equal(indices.cpu(), expected.indices)


def test_resize_keeps_elements_and_grows_the_storage():
    x = torch.arange(4.0, device=DEVICE)
    x.resize_(2, 4)
    assert x.flatten()[:4].tolist() == [0.0, 1.0, 2.0, 3.0]
    x.fill_(1)
    assert x.sum().item() == 8


VIEWS = {
    "as_strided": lambda x: x.as_strided((2, 2), (5, 1), 3),
    "detach": lambda x: x.detach(),
    "diagonal": lambda x: x.diagonal(),
    "expand": lambda x: x[:1].expand(3, 5),
    "narrow": lambda x: x.narrow(1, 1, 3),
    "permute": lambda x: x.permute(1, 0),
    "reshape": lambda x: x.reshape(2, 10),
    "select": lambda x: x[2],
    "slice": lambda x: x[1:3, ::2],
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1),
    "t": lambda x: x.t(),
    "unbind": lambda x: x.unbind(0)[1],
    "unflatten": lambda x: x.unflatten(0, (2, 2)),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "view": lambda x: x.view(20),
    "view_dtype": lambda x: x.view(torch.int32),
    "split": lambda x: x.split(2)[1],
    "swapaxes": lambda x: x.swapaxes(0, 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_view_shares_its_storage(name):
    base, host = samples.make(DEVICE).x, samples.make().x
    view, expected = VIEWS[name](base), VIEWS[name](host)
    assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    assert view.stride() == expected.stride()
    assert view.storage_offset() == expected.storage_offset()
    assert view.data_ptr() - base.data_ptr() == expected.data_ptr() - host.data_ptr()
    assert torch.equal(view.cpu(), expected)


@pytest.mark.parametrize("name", sorted(set(VIEWS) - {"expand", "unfold", "detach"}))
def test_writing_to_a_view_is_seen_by_its_base(name):
    base, host = samples.make(DEVICE).x, samples.make().x
    VIEWS[name](base).mul_(3)
    VIEWS[name](host).mul_(3)
    torch.testing.assert_close(base.cpu(), host)
    torch.testing.assert_close((base + 1).cpu(), host + 1)


def test_writing_to_the_base_is_seen_by_its_views():
    base = torch.zeros(4, device=DEVICE)
    view = base[1:3]
    assert view.sum().item() == 0
    base.fill_(2)
    assert view.sum().item() == 4


def test_tensor_given_a_new_storage_uses_it():
    x, other = torch.zeros(2, device=DEVICE), torch.ones(3, device=DEVICE)
    assert x.sum().item() == 0
    x.set_(other)
    assert x.sum().item() == 3
    x.data = torch.full((4,), 2.0, device=DEVICE)
    assert (x + 0).sum().item() == 8


def test_running_statistics_are_written():
    device, host = torch.nn.BatchNorm2d(4).to(DEVICE), torch.nn.BatchNorm2d(4)
    device(samples.make(DEVICE).image)
    host(samples.make().image)
    torch.testing.assert_close(device.running_mean.cpu(), host.running_mean)
    torch.testing.assert_close(device.running_var.cpu(), host.running_var)
    assert device.num_batches_tracked.item() == 1


def test_embedding_renormalises_its_table_in_place():
    device, host = samples.make(DEVICE), samples.make()
    for s in (device, host):
        F.embedding(s.tokens, s.table, max_norm=0.5)
    torch.testing.assert_close(device.table.cpu(), host.table)


def test_result_that_overlaps_its_input_is_refused():
    x = torch.ones(10, device=DEVICE)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.add(x[:-1], 1, out=x[1:])


def test_writing_to_an_expanded_tensor_is_refused():
    x = torch.ones(1, 3, device=DEVICE).expand(2, 3)
    with pytest.raises(RuntimeError, match="single memory location"):
        x.add_(1)


def test_in_place_operators_count_versions():
    x = torch.ones(2, device=DEVICE)
    version = x._version
    x.add_(1)
    torch.mul(x, 2, out=x)
    assert x._version == version + 2


def test_out_that_a_kernel_leaves_conjugated_is_marked():
    factors, pivots = torch.linalg.lu_factor(torch.randn(3, 3, dtype=torch.complex64))
    right = torch.randn(4, 3, dtype=torch.complex64)
    expected = torch.linalg.lu_solve(factors, pivots, right, adjoint=True, left=False)
    for _ in range(2):  # the second launch has an output plan
        out = torch.empty(4, 3, dtype=torch.complex64, device=DEVICE)
        torch.linalg.lu_solve(
            factors.to(DEVICE),
            pivots.to(DEVICE),
            right.to(DEVICE),
            adjoint=True,
            left=False,
            out=out,
        )
        assert out.is_conj() == expected.is_conj()
        assert torch.equal(out.cpu(), expected)
        assert torch.equal((out + 1).cpu(), expected + 1)


def test_sums_by_index_are_added_in_the_order_of_the_values():
    values = torch.randn(200_000, 2, generator=torch.Generator().manual_seed(0))
    index = torch.arange(len(values)) % 10
    in_order = torch.zeros(10, 2)
    for block in values.view(-1, 10, 2):
        in_order += block
    for _ in range(3):
        sums = torch.zeros(10, 2, device=DEVICE)
        sums.index_put_((index.to(DEVICE),), values.to(DEVICE), accumulate=True)
        assert torch.equal(sums.cpu(), in_order)
