"""Features of distributed programs besides training, on four devices.

DTensor, functional collectives, objects, monitored barriers, checks, RPC.
"""

import datetime

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ranks import own_device
from torch.distributed import rpc
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    empty,
    rand,
)
from torch.distributed.tensor import _random as mesh_random
from torch.distributed.tensor.experimental import local_map

from device import DEVICE, module

pytestmark = pytest.mark.own_processes


def mesh_of_all():
    module.set_device(own_device())
    return init_device_mesh(DEVICE, (dist.get_world_size(),))


def square():
    module.set_device(own_device())
    return init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("rows", "columns"))


# ---- DTensor -------------------------------------------------------------------------------------

PLACEMENTS = [
    [Shard(0), Shard(1)],
    [Shard(1), Shard(0)],
    [Shard(0), Shard(0)],
    [Replicate(), Shard(1)],
    [Replicate(), Replicate()],
]


def redistributed():
    """Redistribute between all pairs of placements on a 2x2 mesh."""
    mesh = square()
    whole = torch.arange(7 * 5.0).view(7, 5)  # the shards differ in size
    differing = []
    for source in PLACEMENTS:
        tensor = distribute_tensor(whole.to(own_device()), mesh, source)
        for target in PLACEMENTS:
            moved = tensor.redistribute(mesh, target)
            if not torch.equal(moved.full_tensor().cpu(), whole) or moved.placements != tuple(
                target
            ):
                differing.append((source, target))
    return differing


def test_tensors_are_redistributed(four_ranks):
    assert four_ranks.call(redistributed) == [[]] * 4


def computed():
    """Partial sums, matrix products, and pointwise operators."""
    mesh = mesh_of_all()
    left, right = torch.arange(32.0).view(8, 4), torch.arange(24.0).view(4, 6)
    on_mesh = [
        distribute_tensor(tensor.to(own_device()), mesh, [Shard(dim)])
        for tensor, dim in ((left, 1), (right, 0))
    ]
    product = torch.mm(*on_mesh)
    pending = product.placements == (Partial(),)
    scattered = product.redistribute(mesh, [Shard(0)])

    def rank_times(part):
        return part * (dist.get_rank() + 1)

    mapped = local_map(
        rank_times, out_placements=[Shard(0)], in_placements=([Shard(0)],), device_mesh=mesh
    )(scattered)
    expected = left @ right
    factors = torch.arange(1, 5).repeat_interleave(2).view(8, 1)
    return (
        pending,
        torch.equal(scattered.full_tensor().cpu(), expected),
        torch.equal(mapped.full_tensor().cpu(), expected * factors),
        scattered.max().full_tensor().item() == expected.max().item(),
        torch.equal(torch.softmax(scattered, 1).full_tensor().cpu(), torch.softmax(expected, 1)),
    )


def test_tensors_of_a_mesh_compute(four_ranks):
    assert four_ranks.call(computed) == [(True,) * 5] * 4


def drawn():
    """A sharded tensor has the random numbers of an unsharded one."""
    mesh = mesh_of_all()
    results = []
    for placement in Shard(0), Shard(1), Replicate():
        mesh_random.manual_seed(1234, mesh)
        results.append(rand(8, 8, device_mesh=mesh, placements=[placement]).full_tensor().cpu())
    mesh_random.manual_seed(1234, mesh)
    tensor = empty(64, 64, device_mesh=mesh, placements=[Shard(0)])
    torch.nn.init.normal_(tensor)
    mask = torch.nn.functional.dropout(torch.ones_like(tensor), 0.5)
    return results, tensor.full_tensor().cpu(), mask.full_tensor().cpu()


def test_random_numbers_of_a_mesh(four_ranks):
    first, *others = four_ranks.call(drawn)
    for other in others:
        torch.testing.assert_close(other, first, rtol=0, atol=0)
    (rows, columns, same), normal, mask = first
    for tensor in rows, columns, same:
        assert len(set(tensor.flatten().tolist())) > 60  # the shards differ from each other
    torch.manual_seed(1234)
    alone = torch.rand(8, 8, device=DEVICE).cpu()
    assert torch.equal(same, alone)
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1
    assert set(mask.flatten().tolist()) == {0, 2} and abs(mask.mean() - 1) < 0.1


# ---- functional collectives ----------------------------------------------------------------------


def functions():
    module.set_device(own_device())
    group, rank, size = dist.group.WORLD, dist.get_rank(), dist.get_world_size()
    tensor = (torch.arange(8.0, device=own_device()) + rank).requires_grad_()
    outputs = {
        "all_reduce": functional.all_reduce(tensor, "sum", group),
        "all_gather": functional.all_gather_tensor_autograd(tensor, 0, group),
        "reduce_scatter": functional.reduce_scatter_tensor_autograd(tensor, "sum", 0, group),
        "all_to_all": functional.all_to_all_single_autograd(tensor, [2] * size, [2] * size, group),
        "broadcast": functional.broadcast(tensor, 2, group),
        "permuted": functional.permute_tensor(tensor, [1, 2, 3, 0], group),
        "coalesced": functional.all_reduce_coalesced([tensor, tensor * 2], "sum", group)[1]
        if dist.get_backend(group) != "gloo"
        else tensor,
    }
    gradients = {}
    for name in "all_gather", "reduce_scatter", "all_to_all":
        output = outputs[name]
        weights = torch.arange(float(output.numel()), device=output.device) * (rank + 1)
        (gradient,) = torch.autograd.grad((output * weights).sum(), tensor)
        gradients[name] = gradient.cpu()
    return {name: output.detach().cpu() for name, output in outputs.items()}, gradients


def test_functional_collectives(four_ranks):
    answers = four_ranks.call(functions)
    inputs = torch.stack([torch.arange(8.0) + rank for rank in range(4)])
    for rank, (outputs, gradients) in enumerate(answers):
        assert torch.equal(outputs["all_reduce"], inputs.sum(0))
        assert torch.equal(outputs["all_gather"], inputs.flatten())
        assert torch.equal(outputs["reduce_scatter"], inputs.sum(0)[2 * rank : 2 * rank + 2])
        own = inputs.view(4, 4, 2)[:, rank]
        assert torch.equal(outputs["all_to_all"], own.flatten())
        assert torch.equal(outputs["broadcast"], inputs[2])
        assert torch.equal(outputs["permuted"], inputs[(rank - 1) % 4])
        # Each weight came back to the rank that sent the element.
        weights = torch.arange(32.0).view(4, 8)[rank]
        assert torch.equal(gradients["all_gather"], weights * 10)
        factors = torch.arange(1.0, 5).repeat_interleave(2)
        assert torch.equal(gradients["reduce_scatter"], torch.arange(2.0).repeat(4) * factors)
        there = torch.arange(8.0).view(4, 2)[rank].repeat(4)
        assert torch.equal(gradients["all_to_all"], there * factors)


# ---- objects -------------------------------------------------------------------------------------


def objects():
    """Any Python object; the group moves it in device tensors if it has no other backend."""
    module.set_device(own_device())
    rank, size = dist.get_rank(), dist.get_world_size()
    own = {"rank": rank, "text": "x" * (rank * 1000), "tensor": torch.full((2,), rank)}
    gathered, at_root = [None] * size, [None] * size if rank == 1 else None
    dist.all_gather_object(gathered, own)
    dist.gather_object(own, at_root, dst=1)
    several = [own, "second"] if rank == 2 else [None, None]
    dist.broadcast_object_list(several, src=2)
    received = [None]
    dist.scatter_object_list(
        received, [f"for {i}" for i in range(size)] if rank == 3 else None, src=3
    )
    messages = [None, None]
    if rank == 0:
        dist.send_object_list([own, [1, 2]], dst=3)
    elif rank == 3:
        dist.recv_object_list(messages, src=0)
    ranks = [
        None if entries is None else [e["rank"] for e in entries] for entries in (gathered, at_root)
    ]
    same = all(torch.equal(e["tensor"], torch.full((2,), e["rank"])) for e in gathered)
    return ranks, same, (several[0]["rank"], several[1]), received, messages[1]


def test_objects(four_ranks):
    for rank, answer in enumerate(four_ranks.call(objects)):
        ranks, same, several, received, message = answer
        assert ranks == [[0, 1, 2, 3], [0, 1, 2, 3] if rank == 1 else None] and same
        assert several == (2, "second") and received == [f"for {rank}"]
        assert message == ([1, 2] if rank == 3 else None)


# ---- missing and mismatched calls ----------------------------------------------------------------


def missing():
    """A barrier of Gloo, besides the device backend."""
    group = dist.new_group(backend="gloo")
    dist.monitored_barrier(group)
    if dist.get_rank() == 2:
        return None
    try:
        dist.monitored_barrier(group, timeout=datetime.timedelta(seconds=1), wait_all_ranks=True)
    except RuntimeError as error:
        return str(error)


def test_a_barrier_names_missing_ranks(four_ranks):
    answers = four_ranks.call(missing)
    assert answers[2] is None
    assert "Ranks 2 failed to pass monitoredBarrier" in answers[0]


def mismatched():
    """In a group that is created with TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group(backend=dist.get_backend_config())
    dist.set_debug_level(dist.DebugLevel.OFF)
    tensor = torch.ones(3 + (dist.get_rank() == 1), device=own_device())
    good = torch.ones(3, device=own_device())
    dist.all_reduce(good, group=group)
    messages = []
    for call in (
        lambda: dist.all_reduce(tensor, group=group),
        lambda: (
            dist.broadcast(good, 0, group=group)
            if dist.get_rank() == 3
            else dist.all_reduce(good, group=group)
        ),
    ):
        try:
            call()
            messages.append(None)
        except RuntimeError as error:
            messages.append(str(error))
    return good.tolist(), messages


def test_calls_that_differ_are_found(four_ranks):
    for good, (shapes, calls) in four_ranks.call(mismatched):
        assert good == [4, 4, 4]
        assert "Detected mismatch between collectives on ranks" in shapes and "Tensor" in shapes
        assert "Detected mismatch between collectives on ranks" in calls


# ---- RPC -----------------------------------------------------------------------------------------


def twice(tensor):
    return tensor * 2


def remote(store):
    """Return the other process's result for a CPU tensor, and the error for a device tensor."""
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"file://{store}", _transports=["uv"], rpc_timeout=30
    )
    rank = dist.get_rank()
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=4, rpc_backend_options=options)
    answers = []
    if rank == 0:
        answers.append(rpc.rpc_sync("worker1", twice, args=(torch.ones(2),)).tolist())
        try:
            answers.append(rpc.rpc_sync("worker1", twice, args=(torch.ones(2).to(own_device()),)))
        except RuntimeError as error:
            answers.append(str(error))
    rpc.shutdown()
    return answers


def test_remote_calls_take_host_tensors(four_ranks, tmp_path):
    """PyTorch's CPU build lacks the component that sends device tensors."""
    doubled, refused = four_ranks.call(remote, str(tmp_path / "store"))[0]
    assert doubled == [2, 2]
    assert "only supports CPU tensors by default" in refused and f"{DEVICE}:0" in refused
