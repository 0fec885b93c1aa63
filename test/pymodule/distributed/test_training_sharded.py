"""Parameters sharded over the devices of four processes: both forms of FSDP.

Results are compared with one device and the whole batch.
"""

import copy
import gc

import exact
import pytest
import torch
import torch.distributed as dist
from ranks import own_device
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffload,
    CPUOffloadPolicy,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor

from device import DEVICE, module

pytestmark = [pytest.mark.own_processes, pytest.mark.ranks_queue]


def train(network, **options):
    return exact.train(network, own_device(), dist.get_rank(), dist.get_world_size(), **options)


def mesh(*shape, names=None):
    return init_device_mesh(DEVICE, shape or (dist.get_world_size(),), mesh_dim_names=names)


# ---- FullyShardedDataParallel --------------------------------------------------------------------


def wrap(network=None, **options):
    module.set_device(own_device())
    network = network or exact.make(own_device(), seed=dist.get_rank())
    options = {
        "auto_wrap_policy": ModuleWrapPolicy({nn.Linear}),
        "device_id": own_device(),
        "sync_module_states": True,  # all ranks get rank 0's parameters
        "use_orig_params": True,
    } | options
    return FSDP(network, **options)


def whole(network):
    with FSDP.summon_full_params(network):
        return {
            name.replace("_fsdp_wrapped_module.", ""): value.detach().cpu().clone()
            for name, value in network.named_parameters()
        }


def hybrid():
    return {
        "sharding_strategy": ShardingStrategy.HYBRID_SHARD,
        "device_mesh": mesh(2, 2, names=("replicate", "shard")),
    }


WRAPPED = {
    "full": lambda: {},
    "flat parameters": lambda: {"use_orig_params": False},
    "gradients and optimizer": lambda: {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP},
    "nothing sharded": lambda: {"sharding_strategy": ShardingStrategy.NO_SHARD},
    "hybrid": hybrid,
    "on the host between uses": lambda: {
        "cpu_offload": CPUOffload(offload_params=True),
        "device_id": own_device(),
    },
    "fetched late": lambda: {"backward_prefetch": None, "limit_all_gathers": False},
}


def trained_wrapped(kind):
    network = wrap(**WRAPPED[kind]())
    own = sum(parameter.numel() for parameter in network.parameters())
    return whole(train(network)), own


@pytest.mark.parametrize("kind", WRAPPED)
def test_fsdp_trains_as_one_device(four_ranks, kind):
    expected = exact.trained_alone()
    count = sum(map(torch.numel, expected.values()))
    parts = {"nothing sharded": 1, "hybrid": 2}.get(kind, 4)
    for parameters, own in four_ranks.call(trained_wrapped, kind):
        assert exact.differences(parameters, expected) == []
        assert own == count / parts


def trained_in_halves():
    """The numbers of the first step fit into bfloat16."""
    network = wrap(
        mixed_precision=MixedPrecision(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16
        )
    )
    inputs, _ = next(exact.batches(own_device()))
    with torch.no_grad():
        dtype = network(inputs).dtype
    return whole(train(network, steps=1)), dtype, {p.dtype for p in network.parameters()}


def test_fsdp_computes_in_halves(four_ranks):
    expected = exact.trained_alone(steps=1)
    for parameters, dtype, dtypes in four_ranks.call(trained_in_halves):
        assert exact.differences(parameters, expected) == []
        assert dtype == torch.bfloat16 and dtypes == {torch.float64}


def accumulated():
    """The gradients of the first half of a batch stay unsharded on their rank."""
    network = wrap()
    optimizer = exact.sgd(network.parameters())
    rank, size = dist.get_rank(), dist.get_world_size()
    for inputs, targets in exact.batches(own_device()):
        first, second = (
            [
                part.chunk(2)[half]
                for part in (exact.part(inputs, rank, size), exact.part(targets, rank, size))
            ]
            for half in (0, 1)
        )
        with network.no_sync():
            (exact.loss_of(network(first[0]), first[1]) / 2).backward()
        (exact.loss_of(network(second[0]), second[1]) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    return whole(network)


def test_fsdp_accumulates(four_ranks):
    expected = exact.trained_alone()
    for parameters in four_ranks.call(accumulated):
        assert exact.differences(parameters, expected) == []


def norms():
    """Gradients are scaled to a norm over the shards of all ranks."""
    network = wrap(exact.make(own_device()).float())
    inputs, targets = next(exact.batches(own_device()))
    exact.loss_of(network(inputs.float()), targets).backward()
    norm = network.clip_grad_norm_(0.5)
    own = sum(p.grad.square().sum() for p in network.parameters() if p.grad is not None)
    own = torch.as_tensor(own, device=own_device(), dtype=torch.float64)
    dist.all_reduce(own)
    return norm.item(), own.sqrt().item()


def test_fsdp_clips_gradients(four_ranks):
    network = exact.make("cpu")
    inputs, targets = next(exact.batches())
    exact.loss_of(network(inputs), targets).backward()
    expected = nn.utils.clip_grad_norm_(network.parameters(), 0.5).item()
    for norm, clipped in four_ranks.call(norms):
        assert norm == pytest.approx(expected, rel=1e-6) and norm > 1
        assert clipped == pytest.approx(0.5, rel=1e-5)


def kept_states():
    """Train a step, save, load into another model, and train on; for each form of state."""
    results = {}
    for kind in StateDictType:
        network = wrap(use_orig_params=False)
        optimizer = exact.sgd(network.parameters())
        train(network, optimizer=optimizer, steps=1)
        other = wrap(exact.make(own_device(), seed=9), use_orig_params=False)
        other_optimizer = exact.sgd(other.parameters())
        configs = {}
        if kind is StateDictType.FULL_STATE_DICT:
            configs = {
                "state_dict_config": FullStateDictConfig(offload_to_cpu=True, rank0_only=False),
                "optim_state_dict_config": FullOptimStateDictConfig(rank0_only=False),
            }
        with FSDP.state_dict_type(network, kind, **configs):
            state = copy.deepcopy(network.state_dict())
            of_optimizer = FSDP.optim_state_dict(network, optimizer)
        with FSDP.state_dict_type(other, kind, **configs):
            other.load_state_dict(state)
            other_optimizer.load_state_dict(
                FSDP.optim_state_dict_to_load(other, other_optimizer, of_optimizer)
            )
        again = [
            train(n, optimizer=o, steps=2)
            for n, o in ((network, optimizer), (other, other_optimizer))
        ]
        first, second = (whole(n) for n in again)
        results[kind.name] = [
            torch.equal(a, b) for a, b in zip(first.values(), second.values(), strict=True)
        ]
    return results


def test_fsdp_states_are_kept(four_ranks):
    for results in four_ranks.call(kept_states):
        assert len(results) == 3
        assert all(all(equal) for equal in results.values()), results


# ---- fully_shard ---------------------------------------------------------------------------------


def shard(**options):
    module.set_device(own_device())
    network = exact.make(own_device())
    options = {"mesh": mesh()} | options
    for layer in network.layers:
        fully_shard(layer, **options)
    return fully_shard(network, **options)


def full(network):
    return {name: value.full_tensor().detach().cpu() for name, value in network.named_parameters()}


SHARDED = {
    "whole mesh": lambda: {},
    "kept after forward": lambda: {"reshard_after_forward": False},
    "resharded to pairs after forward": lambda: {"reshard_after_forward": 2},
    "hybrid": lambda: {"mesh": mesh(2, 2, names=("replicate", "shard"))},
    "on the host between uses": lambda: {"offload_policy": CPUOffloadPolicy()},
    "by columns": lambda: {"shard_placement_fn": lambda parameter: by_columns()},
}


def by_columns():
    from torch.distributed.tensor import Shard

    return Shard(1)


def trained_sharded(kind):
    network = shard(**SHARDED[kind]())
    assert all(isinstance(parameter, DTensor) for parameter in network.parameters())
    own = sum(parameter.to_local().numel() for parameter in network.parameters())
    devices = {parameter.to_local().device.type for parameter in network.parameters()}
    train(network)
    if "cpu" in devices:
        network = network.to(own_device())
    return full(network), own, devices


@pytest.mark.parametrize("kind", SHARDED)
def test_sharded_parameters_train_as_one_device(four_ranks, kind):
    expected = exact.trained_alone()
    count = sum(map(torch.numel, expected.values()))
    for parameters, own, devices in four_ranks.call(trained_sharded, kind):
        assert exact.differences(parameters, expected) == []
        assert own == count / (2 if kind == "hybrid" else 4)
        assert devices == {"cpu" if "host" in kind else DEVICE}


def trained_with_factors(kind):
    """Gradients are summed, not averaged; the loss is divided instead."""
    network = shard(**SHARDED[kind]())
    for part in (*network.layers, network):
        part.set_gradient_divide_factor(2.0)
    rank, size = dist.get_rank(), dist.get_world_size()
    optimizer = exact.sgd(network.parameters())
    for inputs, targets in exact.batches(own_device()):
        loss = exact.loss_of(
            network(exact.part(inputs, rank, size)), exact.part(targets, rank, size)
        )
        (loss * 2 / size).backward()
        optimizer.step()
        optimizer.zero_grad()
    return full(network)


@pytest.mark.parametrize("kind", ["whole mesh", "hybrid"])
def test_gradients_are_divided_by_the_given_factor(four_ranks, kind):
    expected = exact.trained_alone()
    for parameters in four_ranks.call(trained_with_factors, kind):
        assert exact.differences(parameters, expected) == []


def trained_in_halves_sharded():
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    network = shard(mp_policy=policy)
    inputs, _ = next(exact.batches(own_device()))
    with torch.no_grad():
        dtype = network(inputs).dtype
    return full(train(network, steps=1)), dtype


def test_sharded_parameters_compute_in_halves(four_ranks):
    expected = exact.trained_alone(steps=1)
    for parameters, dtype in four_ranks.call(trained_in_halves_sharded):
        assert exact.differences(parameters, expected) == []
        assert dtype == torch.bfloat16


def accumulated_sharded():
    network = shard()
    optimizer = exact.sgd(network.parameters())
    rank, size = dist.get_rank(), dist.get_world_size()
    for inputs, targets in exact.batches(own_device()):
        own = [exact.part(tensor, rank, size).chunk(2) for tensor in (inputs, targets)]
        for index, (some_inputs, some_targets) in enumerate(zip(*own, strict=True)):
            network.set_requires_gradient_sync(index == 1)
            network.set_is_last_backward(index == 1)
            (exact.loss_of(network(some_inputs), some_targets) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    return full(network)


def test_sharded_parameters_accumulate(four_ranks):
    expected = exact.trained_alone()
    for parameters in four_ranks.call(accumulated_sharded):
        assert exact.differences(parameters, expected) == []


def memory_while_sharded():
    """A rank holds its shard of large parameters, and all of one layer while that computes."""
    module.set_device(own_device())
    layers = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(4)))
    network = layers.to(own_device())
    gc.collect()  # frees garbage of other tests
    before = module.memory_allocated()
    for layer in network:
        fully_shard(layer, mesh=mesh())
    fully_shard(network, mesh=mesh())
    after = module.memory_allocated()
    with torch.no_grad():
        network(torch.ones(1, 512, device=own_device()))
    module.synchronize()
    resident = module.memory_allocated()
    return before - after, resident - after


def test_a_rank_has_its_part_in_memory(four_ranks):
    layer = 512 * 512 * 4
    for freed, more in four_ranks.call(memory_while_sharded):
        assert freed == 3 * layer  # of four layers
        assert more < 2 * layer
