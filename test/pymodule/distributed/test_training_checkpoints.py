"""Checkpoints of torch.distributed.checkpoint that four devices save and other layouts load."""

import copy

import exact
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ranks import own_device
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from device import DEVICE, module

pytestmark = pytest.mark.own_processes


class Program(Stateful):
    """A network, sharded over a mesh or whole, and its optimizer."""

    def __init__(self, seed=0, mesh=None):
        self.network = exact.make(own_device(), seed=seed)
        if mesh is not None:
            for layer in self.network.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(self.network, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=0.01)
        self.mesh = mesh

    def train(self, steps):
        index, count = 0, 1
        if (
            self.mesh and exact.BATCH % self.mesh.size() == 0
        ):  # otherwise each rank has the whole batch
            index, count = self.mesh.get_local_rank(), self.mesh.size()
        exact.train(self.network, own_device(), index, count, self.optimizer, steps)
        return self.values()

    def values(self):
        return {
            name: (value.full_tensor() if isinstance(value, DTensor) else value).detach().cpu()
            for name, value in self.network.named_parameters()
        }

    def state_dict(self):
        network, optimizer = get_state_dict(self.network, self.optimizer)
        return {"network": network, "optimizer": optimizer}

    def load_state_dict(self, state):
        set_state_dict(
            self.network,
            self.optimizer,
            model_state_dict=state["network"],
            optim_state_dict=state["optimizer"],
        )


def mesh_of(count):
    """A mesh of the first ranks; None on the other ranks."""
    module.set_device(own_device())
    mesh = torch.arange(count)
    mesh = dist.device_mesh.DeviceMesh(DEVICE, mesh)
    return mesh if dist.get_rank() < count else None


def save(folder, asynchronously):
    """Train, save, and train on: the checkpoint has the state at the time of the call.

    Asynchronous saving uses its own process group.
    """
    group = dist.new_group(backend="gloo")
    program = Program(mesh=mesh_of(4))
    program.train(1)
    if asynchronously:
        pending = dcp.async_save({"program": program}, checkpoint_id=folder, process_group=group)
        program.train(1)
        pending.result()
    else:
        dcp.save({"program": program}, checkpoint_id=folder)
        program.train(1)
    return program.values()


def load_and_train(folder, count):
    """Load into other parameters, sharded over some ranks or whole, and train."""
    mesh = mesh_of(count) if count > 1 else None
    if count in (2, 3) and mesh is None:
        return None
    program = Program(seed=9, mesh=mesh)
    group = mesh.get_group() if mesh is not None else None
    dcp.load({"program": program}, checkpoint_id=folder, process_group=group)
    return program.train(1)


@pytest.mark.parametrize("asynchronously", [False, True], ids=["waiting", "asynchronously"])
def test_a_loaded_state_trains_on(four_ranks, tmp_path, asynchronously):
    folder = str(tmp_path / "checkpoint")
    expected = four_ranks.call(save, folder, asynchronously)[0]
    assert len(list((tmp_path / "checkpoint").glob("*.distcp"))) == 4
    for count in 4, 3, 2, 1:
        answers = [a for a in four_ranks.call(load_and_train, folder, count) if a is not None]
        assert len(answers) == (4 if count == 1 else count)
        for parameters in answers:
            torch.testing.assert_close(parameters, expected, rtol=1e-12, atol=1e-12)


def load_on_the_host(folder):
    """Load in a process without a group and without a device."""
    network = exact.make("cpu", seed=3)
    state = {"program": {"network": network.state_dict()}}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    return exact.parameters_of(network)


def save_once(folder):
    program = Program(mesh=mesh_of(4))
    program.train(2)
    dcp.save({"program": program}, checkpoint_id=folder)
    return program.values()


def test_checkpoint_is_of_no_device(four_ranks, tmp_path):
    """Load on the CPU, and convert to one file."""
    folder = str(tmp_path / "checkpoint")
    expected = four_ranks.call(save_once, folder)[0]
    assert exact.differences(load_on_the_host(folder), expected) == []
    file = tmp_path / "whole.pt"
    dcp_to_torch_save(folder, file)
    loaded = torch.load(file, weights_only=False)["program"]["network"]
    assert exact.differences(loaded, expected) == []


def gathered():
    """The first rank loads the whole state on its host and sends it to all."""
    mesh = mesh_of(4)
    program, other = Program(mesh=mesh), Program(seed=9, mesh=mesh)
    program.train(1)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    # Copies, because a tensor that is on the host already belongs to the optimizer.
    network, optimizer = copy.deepcopy(
        get_state_dict(program.network, program.optimizer, options=options)
    )
    found = dict(network), {value.device.type for value in network.values()}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(other.network, network, options=options)
    set_optimizer_state_dict(other.network, other.optimizer, optimizer, options=options)
    own = get_model_state_dict(other.network)
    assert all(isinstance(value, DTensor) for value in own.values())
    return found, program.train(1), other.train(1)


def test_whole_states_are_on_the_first_rank(four_ranks):
    answers = four_ranks.call(gathered)
    for rank, ((state, devices), trained, other) in enumerate(answers):
        assert (len(state), devices) == ((2, {"cpu"}) if rank == 0 else (0, set()))
        torch.testing.assert_close(other, trained, rtol=1e-12, atol=1e-12)


def loaded_otherwise(folder):
    """A tensor is saved sharded by rows over all ranks, and loaded by columns over a 2x2 mesh."""
    module.set_device(own_device())
    whole = torch.arange(96.0).view(8, 12)
    rows = distribute_tensor(whole.to(own_device()), init_device_mesh(DEVICE, (4,)), [Shard(0)])
    dcp.save({"tensor": rows}, checkpoint_id=folder)
    mesh = init_device_mesh(DEVICE, (2, 2))
    blank = torch.zeros(8, 12, device=own_device())
    state = {"tensor": distribute_tensor(blank, mesh, [Shard(1), Shard(0)])}
    dcp.load(state, checkpoint_id=folder)
    return torch.equal(state["tensor"].full_tensor().cpu(), whole), state["tensor"].to_local().shape


def test_tensors_are_loaded_in_other_parts(four_ranks, tmp_path):
    for equal, shape in four_ranks.call(loaded_otherwise, str(tmp_path / "checkpoint")):
        assert equal and shape == (4, 6)
