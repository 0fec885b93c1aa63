"""Training over process groups with the backend "gloo": DistributedDataParallel and others.

Devices must give the same bits as the CPU.
"""

import contextlib

import pytest
import torch
import torch.distributed as dist
from ranks import own_device
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from device import DEVICE, module

pytestmark = pytest.mark.own_processes

STEPS = 4


class Network(nn.Module):
    """Two branches; a step uses one or both of them."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.BatchNorm1d(16))
        self.branches = nn.ModuleList([nn.Linear(16, 3), nn.Linear(16, 3)])

    def forward(self, batch, branches=(0, 1)):
        hidden = self.shared(batch)
        return sum(self.branches[index](hidden) for index in branches)


def batches(count=STEPS):
    generator = torch.Generator().manual_seed(10 + dist.get_rank())
    return [torch.randn(5, 6, generator=generator) for _ in range(count)]


def make(device, **options):
    torch.manual_seed(dist.get_rank())  # all ranks get rank 0's parameters
    network = Network().to(device)
    if device.type != "cpu":
        module.set_device(device)
        options = {"device_ids": [device.index]} | options
    return DistributedDataParallel(network, bucket_cap_mb=0.0005, **options)


def train(network, device, optimizer=None, branches=lambda step: (0, 1), steps=STEPS):
    optimizer = optimizer or torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for step, batch in enumerate(batches(steps)):
        optimizer.zero_grad()
        network(batch.to(device), branches(step)).square().mean().backward()
        optimizer.step()


def flat(tensors):
    return torch.cat([tensor.detach().cpu().double().reshape(-1) for tensor in tensors])


def trained(kind):
    """Parameters and statistics after some steps, on the CPU and on the device."""
    networks = [KINDS[kind](device).module for device in (torch.device("cpu"), own_device())]
    return [
        (flat(network.parameters()), flat(network.state_dict().values())) for network in networks
    ]


def plain(device):
    network = make(device)
    train(network, device)
    return network


def static(device):
    network = make(device, static_graph=True)
    train(network, device)
    return network


def unused(device):
    network = make(device, find_unused_parameters=True)
    train(network, device, branches=lambda step: (step % 2,))
    return network


def views(device):
    network = make(device, gradient_as_bucket_view=True)
    train(network, device)
    return network


def accumulating(device):
    network = make(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for step, batch in enumerate(batches()):
        with network.no_sync() if step % 2 == 0 else contextlib.nullcontext():
            network(batch.to(device)).square().mean().backward()
        if step % 2 == 1:
            optimizer.step()
            optimizer.zero_grad()
    return network


def uneven(device):
    network = make(device, broadcast_buffers=False)
    with network.join():
        train(network, device, steps=STEPS + dist.get_rank())
    return network


def hooked(device):
    network = make(device)
    network.register_comm_hook(None, default_hooks.allreduce_hook)
    train(network, device)
    return network


def half_hooked(device):
    network = make(device)
    network.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(network, device)
    return network


def sharded_optimizer(device):
    network = make(device)
    train(network, device, ZeroRedundancyOptimizer(network.parameters(), torch.optim.Adam, lr=0.01))
    return network


KINDS = {
    function.__name__: function
    for function in (
        plain,
        static,
        unused,
        views,
        accumulating,
        uneven,
        hooked,
        half_hooked,
        sharded_optimizer,
    )
}


@pytest.mark.parametrize("kind", KINDS)
def test_trains_as_on_the_cpu(ranks, kind):
    answers = ranks.call(trained, kind)
    (first, first_all), (_, first_there) = answers[0]
    (second, second_all), (_, second_there) = answers[1]
    assert torch.equal(first_all, first_there) and torch.equal(second_all, second_there)
    assert torch.equal(first, second) and first.abs().sum() > 0  # each rank has its own statistics


def measured():
    network = make(own_device())
    train(network, own_device())
    data = network._get_ddp_logging_data()
    return data["backend_name"], data["avg_forward_compute_time"] > 0


def test_steps_are_measured_on_the_device(ranks):
    for backend, measures in ranks.call(measured):
        assert (backend, measures) == ("gloo", True)


def sampled():
    sampler = DistributedSampler(range(10), shuffle=True, seed=1)
    loader = torch.utils.data.DataLoader(range(10), batch_size=5, sampler=sampler)
    (batch,) = loader
    tensor = batch.to(own_device())
    dist.all_reduce(tensor)
    return tensor.sum().item()


def test_sampler_gives_each_rank_its_part(ranks):
    assert ranks.call(sampled) == [45, 45]


# ---- meshes --------------------------------------------------------------------------------------


def on_mesh():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    sums = []
    for device in "cpu", DEVICE:
        mesh = init_device_mesh(device, (2,), mesh_dim_names=("model",))
        whole = torch.arange(24.0, device=device).view(6, 4)
        rows = distribute_tensor(whole, mesh, [Shard(0)])
        columns = rows.redistribute(mesh, [Shard(1)])
        product = (rows.t() @ rows).redistribute(mesh, [Replicate()])
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        network = parallelize_module(
            network.to(device), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}
        )
        network(whole).sum().backward()
        gradient = network[0].weight.grad.full_tensor()
        sums.append([t.cpu() for t in (columns.full_tensor(), product.to_local(), gradient)])
    return sums


def test_tensors_of_a_mesh(ranks):
    for on_cpu, on_device in ranks.call(on_mesh):
        assert all(map(torch.equal, on_cpu, on_device))


def fully_sharded():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    results = []
    for device in torch.device("cpu"), own_device():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).to(device)
        mesh = init_device_mesh(device.type, (2,))
        for layer in network[0], network[2]:
            fully_shard(layer, mesh=mesh)
        fully_shard(network, mesh=mesh)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for batch in batches():
            network(batch.to(device)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append([p.full_tensor().detach().cpu() for p in network.parameters()])
    return results


def test_sharded_parameters(ranks):
    for on_cpu, on_device in ranks.call(fully_sharded):
        assert all(map(torch.equal, on_cpu, on_device))
