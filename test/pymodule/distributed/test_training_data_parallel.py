"""DistributedDataParallel on the devices of four processes.

Results are compared with one device and the whole batch.
"""

import contextlib

import exact
import pytest
import torch
import torch.distributed as dist
from ranks import own_device
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)
from torch.distributed.optim import ZeroRedundancyOptimizer, _apply_optimizer_in_backward
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from device import DEVICE, module

pytestmark = [pytest.mark.own_processes, pytest.mark.ranks_queue]


def wrap(network, **options):
    """A model with many small buckets."""
    module.set_device(own_device())
    options = {"device_ids": [own_device().index], "bucket_cap_mb": 0.0005} | options
    return DistributedDataParallel(network, **options)


def make(**options):
    """All ranks get rank 0's parameters."""
    return wrap(exact.make(own_device(), seed=dist.get_rank()), **options)


def train(network, **options):
    rank, size = dist.get_rank(), dist.get_world_size()
    return exact.train(network, own_device(), rank, size, **options)


# ---- equal bits ----------------------------------------------------------------------------------


def plain():
    return train(make())


def one_bucket():
    return train(make(bucket_cap_mb=25))


def views():
    return train(make(gradient_as_bucket_view=True))


def static():
    return train(make(static_graph=True))


def finding_unused():
    return train(make(find_unused_parameters=True))


def hooked():
    network = make()
    network.register_comm_hook(None, default_hooks.allreduce_hook)
    return train(network)


def hooked_in_cpp():
    network = make()
    network._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    return train(network)


def averaging_within_subgroups():
    """A subgroup that has all ranks."""
    network = make()
    state = post_localSGD_hook.PostLocalSGDState(None, dist.group.WORLD, start_localSGD_iter=1)
    network.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    return train(network)


def stepping_within_backward():
    """Each parameter's optimizer runs after its gradient has been reduced."""
    network = exact.make(own_device())
    _apply_optimizer_in_backward(
        torch.optim.SGD,
        network.parameters(),
        {"lr": exact.LEARNING_RATE, "momentum": 0.5},
        register_hook=False,
    )
    return train(wrap(network), optimizer=Nothing())


class Nothing:
    """Runs in place of an optimizer that the program would call."""

    def step(self):
        pass

    def zero_grad(self):
        pass


def accumulating():
    """Only the last micro-batch communicates."""
    network = make()
    optimizer = exact.sgd(network.parameters())
    rank, size = dist.get_rank(), dist.get_world_size()
    for inputs, targets in exact.batches(own_device()):
        own = list(
            zip(*(exact.part(t, rank, size).chunk(2) for t in (inputs, targets)), strict=True)
        )
        for index, (some_inputs, some_targets) in enumerate(own):
            last = index == len(own) - 1
            with contextlib.nullcontext() if last else network.no_sync():
                (exact.loss_of(network(some_inputs), some_targets) / len(own)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return network


def sharded_optimizer():
    network = make()
    optimizer = ZeroRedundancyOptimizer(
        network.parameters(), torch.optim.SGD, lr=exact.LEARNING_RATE, momentum=0.5
    )
    return train(network, optimizer=optimizer)


def sharded_optimizer_with_views():
    network = make(gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(
        network.parameters(),
        torch.optim.SGD,
        parameters_as_bucket_view=True,
        lr=exact.LEARNING_RATE,
        momentum=0.5,
    )
    return train(network, optimizer=optimizer)


EXACT = {
    function.__name__: function
    for function in (
        plain,
        one_bucket,
        views,
        static,
        finding_unused,
        hooked,
        hooked_in_cpp,
        accumulating,
        averaging_within_subgroups,
        stepping_within_backward,
        sharded_optimizer,
        sharded_optimizer_with_views,
    )
}


def trained(kind):
    return exact.parameters_of(EXACT[kind]().module)


@pytest.mark.parametrize("kind", EXACT)
def test_trains_as_one_device(four_ranks, kind):
    expected = exact.trained_alone()
    for parameters in four_ranks.call(trained, kind):
        assert exact.differences(parameters, expected) == []


def uneven(divide_by_initial_world_size):
    """Each rank runs one step more than the previous rank."""
    network = make()
    with network.join(divide_by_initial_world_size=divide_by_initial_world_size):
        train(network, steps=dist.get_rank() + 1)
    return exact.parameters_of(network.module)


def uneven_alone(divide_by_initial_world_size, size=4):
    network = exact.make("cpu")
    optimizer = exact.sgd(network.parameters())
    for step, (inputs, targets) in enumerate(exact.batches(steps=size)):
        ranks = range(step, size)
        divisor = size if divide_by_initial_world_size else len(ranks)
        for rank in ranks:
            loss = exact.loss_of(
                network(exact.part(inputs, rank, size)), exact.part(targets, rank, size)
            )
            (loss / divisor).backward()
        optimizer.step()
        optimizer.zero_grad()
    return exact.parameters_of(network)


@pytest.mark.parametrize("by_all", [True, False])
def test_ranks_may_end_early(four_ranks, by_all):
    expected = uneven_alone(by_all)
    for parameters in four_ranks.call(uneven, by_all):
        if by_all:  # a third is not a multiple of a power of two
            assert exact.differences(parameters, expected) == []
        torch.testing.assert_close(parameters, expected, rtol=1e-12, atol=1e-12)


# ---- close results -------------------------------------------------------------------------------

HOOKS = {
    "float16": (lambda: None, default_hooks.fp16_compress_hook, 2e-3),
    "bfloat16": (lambda: None, lambda *bucket: default_hooks.bf16_compress_hook(*bucket), 2e-2),
    "low rank": (lambda: low_rank(), powerSGD_hook.powerSGD_hook, 1e-5),
    "low rank of float16": (
        lambda: low_rank(),
        default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook),
        5e-2,
    ),
}


def low_rank():
    """A rank as high as that of the gradients, so only rounding errors remain."""
    return powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=16, start_powerSGD_iter=2, min_compression_rate=0.01
    )


def compressed(name):
    make_state, hook, _ = HOOKS[name]
    # Gloo's threads start the next collective of these hooks, and with several buckets their order
    # differs between ranks.
    network = make(bucket_cap_mb=25 if dist.get_backend() == "gloo" else 0.0005)
    network.register_comm_hook(make_state(), hook)
    return exact.parameters_of(train(network).module)


@pytest.mark.parametrize("name", HOOKS)
def test_compressed_gradients(four_ranks, name):
    expected = exact.trained_alone()
    tolerance = HOOKS[name][2]
    first, *others = four_ranks.call(compressed, name)
    torch.testing.assert_close(first, expected, rtol=0, atol=tolerance)
    assert all(exact.differences(other, first) == [] for other in others)


def with_adam():
    network = make()
    optimizer = ZeroRedundancyOptimizer(network.parameters(), torch.optim.Adam, lr=0.01)
    train(network, optimizer=optimizer)
    optimizer.consolidate_state_dict(to=0)
    state = optimizer.state_dict()["state"] if dist.get_rank() == 0 else {}
    moments = [entry["exp_avg"].cpu() for entry in state.values()]
    return exact.parameters_of(network.module), moments


def test_sharded_adam(four_ranks):
    network = exact.make("cpu")
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    exact.train(network, "cpu", optimizer=optimizer)
    expected = exact.parameters_of(network)
    answers = four_ranks.call(with_adam)
    for parameters, _ in answers:
        torch.testing.assert_close(parameters, expected, rtol=1e-12, atol=1e-12)
    moments = [entry["exp_avg"] for entry in optimizer.state_dict()["state"].values()]
    torch.testing.assert_close(answers[0][1], moments, rtol=1e-12, atol=1e-12)


# ---- statistics of batches -----------------------------------------------------------------------


class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.BatchNorm1d(36)
        )

    def forward(self, batch):
        return self.network(batch)


def normalized_alone():
    torch.manual_seed(0)
    network = Normalized().double()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for batch in images():
        network(batch).pow(3).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: value.detach() for name, value in network.state_dict().items()}


def images():
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(12, 2, 5, 5, dtype=torch.float64, generator=generator) for _ in range(3)]


def normalized_together():
    """The ranks' parts differ in size."""
    torch.manual_seed(0)
    network = nn.SyncBatchNorm.convert_sync_batchnorm(Normalized()).double().to(own_device())
    network = wrap(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for batch in images():
        own = batch.split([2, 5, 1, 4])[dist.get_rank()].to(own_device())
        # The mean of the batch; DistributedDataParallel divides by the number of ranks.
        (network(own).pow(3).sum() / (12 * 36) * dist.get_world_size()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: value.cpu() for name, value in network.module.state_dict().items()}


def test_batch_norm_over_all_ranks(four_ranks):
    expected = normalized_alone()
    for state in four_ranks.call(normalized_together):
        torch.testing.assert_close(state, expected, rtol=1e-9, atol=1e-11)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.register_buffer("count", torch.tensor(100.0 * dist.get_rank()))

    def forward(self, batch):
        self.count += dist.get_rank() + 1
        return self.layer(batch)


def counted(broadcast_buffers):
    network = wrap(Counting().to(own_device()), broadcast_buffers=broadcast_buffers)
    for _ in range(2):
        network(torch.ones(1, 1, device=own_device())).sum().backward()
    return network.module.count.item()


def test_buffers_are_those_of_the_first_rank(four_ranks):
    assert four_ranks.call(counted, True) == [2, 3, 4, 5]
    assert four_ranks.call(counted, False) == [2, 104, 206, 308]


# ---- other features ------------------------------------------------------------------------------


def scaled():
    """In float16; in the second step one rank's gradient overflows."""
    torch.manual_seed(0)
    network = wrap(nn.Linear(4, 4).to(own_device()))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0)
    scales, steps = [], []
    for step in range(3):
        before = network.module.weight.detach().clone()
        inputs = torch.ones(2, 4, device=own_device())
        if step == 1 and dist.get_rank() == 2:
            inputs *= 6e4
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = network(inputs).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
        steps.append(not torch.equal(before, network.module.weight))
    return scales, steps, network.module.weight.detach().cpu()


def test_an_overflow_is_of_all_ranks(four_ranks):
    answers = four_ranks.call(scaled)
    for scales, steps, weight in answers:
        assert scales == [1024, 512, 512] and steps == [True, False, True]
        assert torch.equal(weight, answers[0][2])


def sampled():
    data = TensorDataset(torch.arange(22))
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=3, sampler=sampler, pin_memory=True)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        batches = [batch.to(own_device(), non_blocking=True) for (batch,) in loader]
        own = torch.cat(batches)
        gathered = torch.empty(len(own) * dist.get_world_size(), dtype=own.dtype, device=own.device)
        dist.all_gather_into_tensor(gathered, own)
        epochs.append(gathered.tolist())
    return epochs


def test_samplers_divide_the_data(four_ranks):
    for first, second in four_ranks.call(sampled):
        assert set(first) == set(second) == set(range(22))
        assert len(first) == 24 and first != second


def measured():
    network = make()
    module.synchronize()
    train(network)
    data = network._get_ddp_logging_data()
    times = [data[f"avg_{name}_time"] for name in ("forward_compute", "backward_compute")]
    return data["world_size"], data["device_ids"], data["num_buckets_reduced"], min(times) > 0


def test_steps_are_measured(four_ranks):
    for rank, (size, devices, buckets, measures) in enumerate(four_ranks.call(measured)):
        assert (size, devices, measures) == (4, str(rank), True)
        assert buckets > 1


def averaged():
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    network = exact.make(own_device(), seed=dist.get_rank())
    for parameter in network.parameters():  # skips parameters without a gradient
        parameter.grad = torch.zeros_like(parameter)
    averager = PeriodicModelAverager(period=1)
    averager.average_parameters(network.parameters())
    return exact.parameters_of(network)


def test_models_are_averaged(four_ranks):
    networks = [exact.parameters_of(exact.make("cpu", seed=seed)) for seed in range(4)]
    expected = {name: sum(n[name] for n in networks) / 4 for name in networks[0]}
    for parameters in four_ranks.call(averaged):
        assert exact.differences(parameters, expected) == []
