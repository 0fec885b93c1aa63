"""The Python operators of torch.ops.symm_mem: matrix products that overlap with communication.

The results are compared with those of one rank that has all data.
"""

import os

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed._symmetric_memory as symm_mem
from ranks import own_device
from symmetric import of_rank, sum_of_all, symmetric, world

pytestmark = pytest.mark.own_processes

SIZE = 4
operators = torch.ops.symm_mem


def close(result, expected, dtype=torch.float32):
    torch.testing.assert_close(result.cpu().to(dtype), expected.to(dtype), rtol=2e-5, atol=2e-5)
    return True


def gather_and_multiply(dimension):
    rank = dist.get_rank()
    shape = (4, 8, 12) if dimension < 2 else (4, 8, 3)
    shards = [of_rank(other, shape) for other in range(SIZE)]
    factors = [of_rank(10 + index, (12, 6 + index)) for index in range(2)]
    gathered, products = operators.fused_all_gather_matmul(
        shards[rank].to(own_device()),
        [factor.to(own_device()) for factor in factors],
        gather_dim=dimension,
        group_name=world(),
    )
    whole = torch.cat(shards, dimension)
    return torch.equal(gathered.cpu(), whole), [
        close(product, whole @ factor) for product, factor in zip(products, factors, strict=True)
    ]


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_fused_all_gather_and_product(symmetric_ranks, dimension):
    assert symmetric_ranks.call(gather_and_multiply, dimension) == [(True, [True, True])] * SIZE


def gather_and_multiply_large():
    """Matrices of a size for which PyTorch overlaps the product with communication, if enabled."""
    rank = dist.get_rank()
    shards = [of_rank(other, (600, 32)) for other in range(SIZE)]
    factor = of_rank(10, (32, 16))
    gathered, (product,) = operators.fused_all_gather_matmul(
        shards[rank].to(own_device()), [factor.to(own_device())], gather_dim=0, group_name=world()
    )
    whole = torch.cat(shards)
    return torch.equal(gathered.cpu(), whole), close(product, whole @ factor)


@pytest.mark.parametrize("is_native", [True, False])
def test_product_that_begins_before_all_was_gathered(symmetric_ranks, is_native):
    symmetric_ranks.call(set_native, is_native)
    assert symmetric_ranks.call(gather_and_multiply_large) == [(True, True)] * SIZE


def set_native(is_native):
    name = "TORCH_SYMM_MEM_ENABLE_NATIVE_ASYNC_TP"
    os.environ.pop(name, None)
    if is_native:
        os.environ[name] = "1"


def multiply_and_scatter(dimension, reduction):
    rank = dist.get_rank()
    lefts = [of_rank(other, (8, 12, 6)) for other in range(SIZE)]
    rights = [of_rank(other + 10, (6, 4)) for other in range(SIZE)]
    result = operators.fused_matmul_reduce_scatter(
        lefts[rank].to(own_device()),
        rights[rank].to(own_device()),
        reduction,
        scatter_dim=dimension,
        group_name=world(),
    )
    whole = sum(left @ right for left, right in zip(lefts, rights, strict=True))
    whole = whole / SIZE if reduction == "avg" else whole
    return close(result, whole.chunk(SIZE, dimension)[rank])


@pytest.mark.parametrize("reduction", ["sum", "avg"])
@pytest.mark.parametrize("dimension", [0, 1])
def test_fused_product_and_reduce_scatter(symmetric_ranks, dimension, reduction):
    assert all(symmetric_ranks.call(multiply_and_scatter, dimension, reduction))


def gather_without_contention(is_symmetric):
    rank = dist.get_rank()
    own = of_rank(rank, (3, 4))
    tensor = symmetric(own) if is_symmetric else own.to(own_device())
    result = funcol.wait_tensor(operators._low_contention_all_gather(tensor, world()))
    gathered = torch.equal(result.cpu(), torch.cat([of_rank(each, (3, 4)) for each in range(SIZE)]))
    own = of_rank(rank, (2 * SIZE, 4))
    tensor = symmetric(own) if is_symmetric else own.to(own_device())
    result = funcol.wait_tensor(operators._low_contention_reduce_scatter(tensor, "sum", world()))
    return gathered, close(result, sum_of_all((2 * SIZE, 4)).chunk(SIZE)[rank])


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_collectives_of_low_contention(symmetric_ranks, is_symmetric):
    assert symmetric_ranks.call(gather_without_contention, is_symmetric) == [(True, True)] * SIZE


def look_at_all():
    tensor = symmetric(torch.full((3,), float(dist.get_rank())))
    symm_mem.rendezvous(tensor, dist.group.WORLD).barrier()
    values = [each.tolist() for each in operators.get_remote_tensors(tensor, world())]
    dist.barrier()
    return values


def test_tensors_of_all_ranks(symmetric_ranks):
    assert symmetric_ranks.call(look_at_all) == [[[float(rank)] * 3 for rank in range(SIZE)]] * SIZE


class Split(torch.nn.Module):
    """Two layers with split features, and split rows between them.

    The layers compute while the ranks exchange rows.
    """

    def __init__(self, first, second, group_name):
        super().__init__()
        self.first, self.second, self.group_name = first, second, group_name

    def forward(self, rows):
        _, (hidden,) = operators.fused_all_gather_matmul(
            rows, [self.first.t()], gather_dim=0, group_name=self.group_name, return_A=False
        )
        return operators.fused_matmul_reduce_scatter(
            torch.relu(hidden), self.second.t(), "sum", scatter_dim=0, group_name=self.group_name
        )


def run_split_layers(part):
    """Run in the world, or in each half of it."""
    group = dist.group.WORLD
    if part:
        group, _ = dist.new_subgroups(2)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    first, second, rows = of_rank(1, (16, 12)), of_rank(2, (12, 16)), of_rank(3, (8 * size, 12))
    layers = Split(
        first.chunk(size)[rank].to(own_device()),
        second.chunk(size, 1)[rank].to(own_device()),
        group.group_name,
    )
    expected = (torch.relu(rows @ first.t()) @ second.t()).chunk(size)[rank]
    own = rows.chunk(size)[rank].to(own_device())
    with torch.no_grad():
        return [close(layers(own), expected) for _ in range(5)]


@pytest.mark.parametrize("part", [False, True])
def test_layers_split_by_asynchronous_tensor_parallelism(symmetric_ranks, part):
    assert symmetric_ranks.call(run_split_layers, part) == [[True] * 5] * SIZE


def gather_scaled():
    """float8 values from a small set, so that products are exact."""
    rank = dist.get_rank()
    shards = [of_rank(each, (16, 32)).sign().to(torch.float8_e4m3fn) for each in range(SIZE)]
    factor = of_rank(9, (16, 32)).sign().to(torch.float8_e4m3fn).t()
    scale = torch.tensor(0.5, device=own_device())
    _, (product,) = operators.fused_all_gather_scaled_matmul(
        shards[rank].to(own_device()),
        [factor.to(own_device())],
        scale,
        [scale],
        gather_dim=0,
        group_name=world(),
        biases=[None],
        result_scales=[None],
        out_dtypes=[torch.bfloat16],
        use_fast_accum=[False],
    )
    expected = torch.cat(shards).float() @ factor.float() / 4
    return torch.equal(product.cpu().float(), expected)


def test_fused_all_gather_and_scaled_product(symmetric_ranks):
    assert all(symmetric_ranks.call(gather_scaled))
