"""The results of the device backend for one, two and three ranks.

They equal the CPU's results, reduced in rank order.
"""

import functools

import pytest
import torch
import torch.distributed as dist
from ranks import BACKEND, own_device, ranks_of

from device import DEVICE

pytestmark = [pytest.mark.own_processes, pytest.mark.ranks_queue]

SHAPE = (5, 3)
REDUCED = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.int8,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]
MOVED = [*REDUCED, torch.bool, torch.complex64, torch.float8_e8m0fnu]
if DEVICE == "openreg":  # NCCL has none of them
    REDUCED += [torch.int16]
    MOVED += [torch.int16, torch.uint16, torch.complex128]


@pytest.fixture(scope="module", params=[1, 2, 3])
def ranks(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("group")
    with ranks_of(folder, size=request.param, devices=3, backend=BACKEND) as ranks:
        yield ranks


def numbers(rank, dtype=torch.float32, shape=SHAPE, seed=0):
    """A rank's values, on the CPU."""
    generator = torch.Generator().manual_seed(100 * seed + rank)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_floating_point or dtype.is_complex:
        real = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(shape, generator=generator, dtype=real).to(dtype)
    return torch.randint(1, 5, shape, generator=generator).to(dtype)


def everyones(*arguments, **options):
    return [numbers(rank, *arguments, **options) for rank in range(dist.get_world_size())]


def own(*arguments, **options):
    return numbers(dist.get_rank(), *arguments, **options).to(own_device())


def same(actual, expected):
    """Return whether the bits are equal; NaN is not expected anywhere."""
    actual = actual.cpu()
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if actual.dtype.is_floating_point and actual.dtype.itemsize == 1:
        actual, expected = actual.view(torch.uint8), expected.view(torch.uint8)
    assert torch.equal(actual, expected), (actual, expected)


def reduced(tensors, operation):
    """Narrower floats are computed in float32 and rounded once."""
    dtype = tensors[0].dtype
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype
    return functools.reduce(operation, [tensor.to(wide) for tensor in tensors]).to(dtype)


# ---- reductions ----------------------------------------------------------------------------------


def check_all_reduce(dtype, name, operation):
    tensor = own(dtype)
    dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
    same(tensor, reduced(everyones(dtype), operation))


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("SUM", torch.add),
        ("PRODUCT", torch.mul),
        ("MIN", torch.minimum),
        ("MAX", torch.maximum),
    ],
)
@pytest.mark.parametrize("dtype", REDUCED, ids=str)
def test_all_reduce(ranks, dtype, name, operation):
    ranks.call(check_all_reduce, dtype, name, operation)


def check_average(dtype):
    tensor = own(dtype)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    total = sum(each.to(wide) for each in everyones(dtype))
    torch.testing.assert_close(tensor.cpu(), (total / dist.get_world_size()).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_average(ranks, dtype):
    ranks.call(check_average, dtype)


def check_bool():
    for name, operation in (("SUM", torch.logical_or), ("MIN", torch.logical_and)):
        tensor = own(torch.bool)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
        same(tensor, reduced(everyones(torch.bool), operation))


def test_bool_is_summed_to_whether_any_is_true(ranks):
    ranks.call(check_bool)


def check_complex():
    tensor = own(torch.complex64)
    dist.all_reduce(tensor)
    same(tensor, reduced(everyones(torch.complex64), torch.add))
    try:
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
    except ValueError as error:
        assert "complex" in str(error)
    else:
        raise AssertionError("MAX of complex numbers")


def test_complex_numbers(ranks):
    ranks.call(check_complex)


def check_bitwise():
    for name, operation in (
        ("BAND", torch.bitwise_and),
        ("BOR", torch.bitwise_or),
        ("BXOR", torch.bitwise_xor),
    ):
        tensor = own(torch.int32)
        if BACKEND == "occl":
            dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
            same(tensor, reduced(everyones(torch.int32), operation))
            continue
        try:
            dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
        except ValueError as error:
            assert f"Cannot use ReduceOp.{name} with NCCL" in str(error)
        else:
            raise AssertionError(name)


def test_bitwise_reductions(ranks):
    """NCCL has none of them."""
    ranks.call(check_bitwise)


def check_factor(as_tensor):
    factor = float(dist.get_rank() + 2)
    given = torch.tensor(factor, device=own_device()) if as_tensor else factor
    tensor = own()
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(given))
    expected = sum(each * (rank + 2) for rank, each in enumerate(everyones()))
    torch.testing.assert_close(tensor.cpu(), expected)


@pytest.mark.parametrize("as_tensor", [False, True], ids=["number", "tensor"])
def test_premultiplied_sum(ranks, as_tensor):
    ranks.call(check_factor, as_tensor)


def check_reduce(root):
    tensor = own()
    before = tensor.cpu()
    dist.reduce(tensor, root)
    expected = reduced(everyones(), torch.add) if dist.get_rank() == root else before
    same(tensor, expected)


def test_reduce(ranks):
    for root in range(len(ranks.peers)):
        ranks.call(check_reduce, root)


def check_reduce_scatter(dtype):
    size, rank = dist.get_world_size(), dist.get_rank()
    expected = reduced([numbers(each, dtype, seed=rank) for each in range(size)], torch.add)
    inputs = [own(dtype, seed=part) for part in range(size)]
    output = torch.empty_like(inputs[0])
    dist.reduce_scatter(output, inputs)
    same(output, expected)
    output = torch.empty_like(inputs[0])
    dist.reduce_scatter_tensor(output, torch.cat(inputs))
    same(output, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16], ids=str)
def test_reduce_scatter(ranks, dtype):
    ranks.call(check_reduce_scatter, dtype)


def check_uneven_reduce_scatter():
    size, rank = dist.get_world_size(), dist.get_rank()
    inputs = [own(shape=(part + 1, 2), seed=part).t() for part in range(size)]  # not contiguous
    output = torch.empty(2, rank + 1, device=own_device())
    dist.reduce_scatter(output, inputs)
    mine = [numbers(each, shape=(rank + 1, 2), seed=rank).t() for each in range(size)]
    same(output, reduced(mine, torch.add))


def test_reduce_scatter_of_parts_that_differ(ranks):
    ranks.call(check_uneven_reduce_scatter)


# ---- moving data ---------------------------------------------------------------------------------


def check_broadcast(dtype, root):
    tensor = own(dtype)
    dist.broadcast(tensor, root)
    same(tensor, numbers(root, dtype))


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_broadcast(ranks, dtype):
    for root in range(len(ranks.peers)):
        ranks.call(check_broadcast, dtype, root)


def check_all_gather(dtype):
    size = dist.get_world_size()
    tensor = own(dtype)
    outputs = [torch.empty_like(tensor) for _ in range(size)]
    dist.all_gather(outputs, tensor)
    for output, expected in zip(outputs, everyones(dtype), strict=True):
        same(output, expected)
    output = torch.empty((size, *SHAPE), dtype=dtype, device=own_device())
    dist.all_gather_into_tensor(output, tensor)
    for part, expected in zip(output.cpu(), everyones(dtype), strict=True):
        same(part, expected)


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_all_gather(ranks, dtype):
    ranks.call(check_all_gather, dtype)


def check_uneven_all_gather():
    size, rank = dist.get_world_size(), dist.get_rank()
    tensor = own(shape=(rank + 1, 2))
    outputs = [torch.empty(2, each + 1, device=own_device()).t() for each in range(size)]
    dist.all_gather(outputs, tensor)
    for each, output in enumerate(outputs):
        same(output, numbers(each, shape=(each + 1, 2)))


def test_all_gather_of_tensors_that_differ_into_such_that_are_not_contiguous(ranks):
    ranks.call(check_uneven_all_gather)


def check_gather(root):
    tensor = own()
    is_root = dist.get_rank() == root
    outputs = [torch.empty_like(tensor) for _ in everyones()] if is_root else None
    dist.gather(tensor, outputs, dst=root)
    for output, expected in zip(outputs or [], everyones() if is_root else [], strict=True):
        same(output, expected)


def check_scatter(root):
    size, rank = dist.get_world_size(), dist.get_rank()
    inputs = [own(seed=part) for part in range(size)] if rank == root else None
    output = torch.empty(SHAPE, device=own_device())
    dist.scatter(output, inputs, src=root)
    same(output, numbers(root, seed=rank))


@pytest.mark.parametrize("check", [check_gather, check_scatter])
def test_gather_and_scatter(ranks, check):
    for root in range(len(ranks.peers)):
        ranks.call(check, root)


def check_all_to_all():
    size, rank = dist.get_world_size(), dist.get_rank()
    inputs = [own(seed=part, shape=(part + 1, 2)) for part in range(size)]
    expected = [numbers(each, seed=rank, shape=(rank + 1, 2)) for each in range(size)]
    outputs = [torch.empty(rank + 1, 2, device=own_device()) for _ in range(size)]
    dist.all_to_all(outputs, inputs)
    for output, part in zip(outputs, expected, strict=True):
        same(output, part)
    output = torch.empty(size * (rank + 1), 2, device=own_device())
    dist.all_to_all_single(output, torch.cat(inputs), [rank + 1] * size, list(range(1, size + 1)))
    same(output, torch.cat(expected))
    output = torch.empty(size * 2, 3, device=own_device())
    dist.all_to_all_single(output, own(shape=(size * 2, 3)))
    mine = [numbers(each, shape=(size * 2, 3)).chunk(size)[rank] for each in range(size)]
    same(output, torch.cat(mine))


def test_all_to_all(ranks):
    ranks.call(check_all_to_all)


def check_empty():
    size = dist.get_world_size()
    tensor = torch.empty(0, 3, device=own_device())
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    dist.all_gather([torch.empty_like(tensor) for _ in range(size)], tensor)
    dist.all_to_all_single(torch.empty_like(tensor), tensor)
    dist.reduce_scatter_tensor(torch.empty_like(tensor), tensor)
    outputs = [torch.empty(each, device=own_device()) for each in range(size)]
    dist.all_gather(outputs, own(shape=(dist.get_rank(),)))
    for each, output in enumerate(outputs):
        same(output, numbers(each, shape=(each,)))


def test_empty_tensors(ranks):
    ranks.call(check_empty)


def check_memory_format():
    tensor = own(shape=(2, 3, 4, 5)).to(memory_format=torch.channels_last)
    dist.all_reduce(tensor)
    same(tensor, reduced(everyones(shape=(2, 3, 4, 5)), torch.add))


def test_channels_last_counts_as_contiguous(ranks):
    ranks.call(check_memory_format)


def check_objects():
    size, rank = dist.get_world_size(), dist.get_rank()
    torch.get_device_module(DEVICE).set_device(own_device())
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank})
    assert gathered == [{"rank": each} for each in range(size)]
    chosen = ["of 0" if rank == 0 else None]
    dist.broadcast_object_list(chosen, 0)
    assert chosen == ["of 0"]


def test_objects(ranks):
    ranks.call(check_objects)


def check_parameters():
    model = torch.nn.Linear(3, 2).to(own_device())
    group = dist.group.WORLD
    dist._verify_params_across_processes(group, list(model.parameters()), None)
    tensors = [parameter.detach() for parameter in model.parameters()]
    dist._broadcast_coalesced(group, tensors, 1 << 20, 0)
    model(own(shape=(2, 3))).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    for gradient in gradients:
        dist.all_reduce(gradient, async_op=True).wait()


def test_calls_of_data_parallel_modules(ranks):
    ranks.call(check_parameters)
