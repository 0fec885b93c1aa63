"""Networks split over the devices of four processes: by features, by layers, or by the sequence.

Results are compared with one device.
"""

import exact
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from ranks import own_device
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    SplitPoint,
    pipeline,
)
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import (
    _cp_options,
    context_parallel_unshard,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

from device import DEVICE, module

pytestmark = pytest.mark.own_processes


def mesh_of_all(name="model"):
    module.set_device(own_device())
    return init_device_mesh(DEVICE, (dist.get_world_size(),), mesh_dim_names=(name,))


def full(network):
    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).detach().cpu()
        for name, value in network.named_parameters()
    }


# ---- features ------------------------------------------------------------------------------------

PLAN = {"layers.0": ColwiseParallel(), "layers.1": RowwiseParallel()}


def split_by_features():
    network = parallelize_module(exact.make(own_device()), mesh_of_all(), PLAN)
    own = [tuple(layer.weight.to_local().shape) for layer in network.layers]
    return full(exact.train(network, own_device())), own


def test_features_in_parallel_train_as_one_device(four_ranks):
    expected = exact.trained_alone()
    for parameters, shapes in four_ranks.call(split_by_features):
        assert exact.differences(parameters, expected) == []
        assert shapes == [(4, 8), (8, 4)]


def split_both_ways():
    """Each pair of ranks splits the features, and two pairs split the batch."""
    module.set_device(own_device())
    mesh = init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("data", "model"))
    network = parallelize_module(exact.make(own_device()), mesh["model"], PLAN)
    for layer in network.layers:
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(network, mesh=mesh["data"])
    index, count = mesh["data"].get_local_rank(), mesh["data"].size()
    return full(exact.train(network, own_device(), index, count))


def test_features_and_batches_in_parallel_train_as_one_device(four_ranks):
    expected = exact.trained_alone()
    for parameters in four_ranks.call(split_both_ways):
        assert exact.differences(parameters, expected) == []


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.wide = nn.Linear(8, 16)
        self.narrow = nn.Linear(16, 8)

    def forward(self, sequence):
        return sequence + self.narrow(F.gelu(self.wide(self.norm(sequence))))


class Language(nn.Module):
    """An embedding, a block whose sequence is split over the ranks, and a vocabulary."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(24, 8)
        self.block = Block()
        self.head = nn.Linear(8, 24)

    def forward(self, words):
        return self.head(self.block(self.embedding(words)))


def language(device):
    torch.manual_seed(1)
    return Language().double().to(device)


def words():
    generator = torch.Generator().manual_seed(2)
    return torch.randint(24, (3, 8), generator=generator)


def learn(network, device, shards_loss=False):
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        inputs = words().to(device)
        logits = network(inputs)
        with loss_parallel() if shards_loss else torch.enable_grad():
            loss = F.cross_entropy(logits.flatten(0, 1), inputs.roll(1, 1).flatten())
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append((loss.full_tensor() if shards_loss else loss).item())
    return losses


def split_by_sequence():
    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "block.norm": SequenceParallel(),
        "block.wide": ColwiseParallel(input_layouts=Shard(1)),
        "block.narrow": RowwiseParallel(output_layouts=Shard(1)),
        "head": ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
        ),
    }
    network = parallelize_module(language(own_device()), mesh_of_all(), plan)
    losses = learn(network, own_device(), shards_loss=True)
    return losses, full(network)


def test_sequences_and_vocabularies_in_parallel(four_ranks):
    network = language("cpu")
    expected = learn(network, "cpu"), exact.parameters_of(network)
    assert expected[0][0] > expected[0][-1]
    for answer in four_ranks.call(split_by_sequence):
        torch.testing.assert_close(answer, expected, rtol=1e-9, atol=1e-11)


def prepared():
    """A module that needs its whole input gets a shard of it."""
    mesh = mesh_of_all()
    layer = nn.Linear(4, 4, bias=False).to(own_device())
    nn.init.ones_(layer.weight)
    parallelize_module(
        layer,
        mesh,
        PrepareModuleInput(
            input_layouts=Shard(0), desired_input_layouts=Replicate(), use_local_output=True
        ),
    )
    part = torch.full((1, 4), float(dist.get_rank()), device=own_device())
    return layer(part).detach().cpu()


def test_inputs_are_redistributed(four_ranks):
    expected = torch.arange(4.0).view(4, 1).expand(4, 4) * 4
    for whole in four_ranks.call(prepared):
        assert torch.equal(whole, expected)


# ---- layers --------------------------------------------------------------------------------------

MICRO_BATCHES = 4
LAYERS = 8
STEPS_OF_LAYERS = 1  # with more steps the numbers would not be exact


class Chunk(nn.Module):
    """Some layers of a network."""

    def __init__(self, network, layers):
        super().__init__()
        self.layers = nn.ModuleDict({str(i): network.layers[i] for i in layers})

    def forward(self, batch):
        for layer in self.layers.values():
            batch = torch.relu(layer(batch))
        return batch


SCHEDULES = {
    "GPipe": (ScheduleGPipe, 1),
    "1F1B": (Schedule1F1B, 1),
    "interleaved": (ScheduleInterleaved1F1B, 2),
    "interleaved, zero bubble": (ScheduleInterleavedZeroBubble, 2),
}


def piped(name):
    """Each rank has one or two stages; the first one gets the inputs, the last one has the loss."""
    module.set_device(own_device())
    schedule_class, chunks = SCHEDULES[name]
    rank, size = dist.get_rank(), dist.get_world_size()
    network = exact.make(own_device(), layers=LAYERS)
    per_stage = LAYERS // (size * chunks)
    stages = []
    for chunk in range(chunks):
        index = chunk * size + rank
        layers = range(index * per_stage, (index + 1) * per_stage)
        stages.append(PipelineStage(Chunk(network, layers), index, size * chunks, own_device()))
    schedule = schedule_class(
        stages if chunks > 1 else stages[0],
        n_microbatches=MICRO_BATCHES,
        loss_fn=exact.loss_of,
        scale_grads=True,
    )
    parameters = [parameter for stage in stages for parameter in stage.submod.parameters()]
    optimizer = exact.sgd(parameters)
    losses = []
    for inputs, targets in exact.batches(own_device(), steps=STEPS_OF_LAYERS):
        arguments = (inputs,) if rank == 0 else ()
        options = {"target": targets, "losses": losses} if rank == size - 1 else {}
        schedule.step(*arguments, **options)
        optimizer.step()
        optimizer.zero_grad()
    states = [exact.parameters_of(stage.submod) for stage in stages]
    return {name: value for state in states for name, value in state.items()}, torch.tensor(losses)


@pytest.mark.parametrize("name", SCHEDULES)
def test_stages_train_as_one_device(four_ranks, name):
    expected = exact.trained_alone(steps=STEPS_OF_LAYERS, layers=LAYERS)
    answers = four_ranks.call(piped, name)
    found = {}
    for parameters, _ in answers:
        assert not found.keys() & parameters.keys()
        found |= {
            f"{name}.weight" if "weight" not in name else name: v for name, v in parameters.items()
        }
    assert exact.differences(found, expected) == []
    inputs, targets = next(exact.batches())
    loss = exact.loss_of(exact.make("cpu", layers=LAYERS)(inputs), targets)
    assert answers[-1][1].double().mean().item() == pytest.approx(loss.item(), rel=1e-6)


def traced():
    """PyTorch cuts the network where the program says."""
    module.set_device(own_device())
    rank, size = dist.get_rank(), dist.get_world_size()
    network = exact.make("cpu", layers=4)
    inputs, _ = next(exact.batches())
    points = {f"layers.{index}": SplitPoint.BEGINNING for index in range(1, 4)}
    pipe = pipeline(network, mb_args=(inputs.chunk(MICRO_BATCHES)[0],), split_spec=points)
    stage = pipe.build_stage(rank, own_device())
    schedule = ScheduleGPipe(stage, MICRO_BATCHES)
    outputs = schedule.step(*((inputs.to(own_device()),) if rank == 0 else ()))
    return outputs.detach().cpu() if rank == size - 1 else None


def test_network_that_pytorch_cuts(four_ranks):
    inputs, _ = next(exact.batches())
    expected = exact.make("cpu", layers=4)(inputs)
    *others, last = four_ranks.call(traced)
    assert others == [None] * 3 and torch.equal(last, expected)


# ---- the sequence --------------------------------------------------------------------------------


def attended(causal, backend, dtype):
    """Attention over a split sequence: shards of keys and values go around the ranks."""
    mesh = mesh_of_all("sequence")
    parts = [tensor.to(own_device(), dtype) for tensor in projections()]
    results = []
    _cp_options.enable_load_balance = causal  # the other variants do not support it
    with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 3):
        own = [part.detach().clone().requires_grad_() for part in parts]
        with sdpa_kernel([getattr(SDPBackend, backend)]):
            output = F.scaled_dot_product_attention(*own, is_causal=causal)
            output.square().sum().backward()
        results = [output.detach(), *(part.grad for part in own)]
    whole = context_parallel_unshard(mesh, results, [2] * 4)
    return [tensor.cpu().float() for tensor in whole]


def projections():
    generator = torch.Generator().manual_seed(4)
    # The memory-efficient kernel pads its sums of exponentials to 32.
    return [torch.randn(2, 4, 256, 8, generator=generator) for _ in range(3)]


@pytest.mark.skipif(DEVICE != "cuda", reason="PyTorch has it for the attention of CUDA alone")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "backend, dtype, tolerance",
    [
        ("FLASH_ATTENTION", torch.bfloat16, 0.05),
        ("EFFICIENT_ATTENTION", torch.float32, 1e-4),
    ],
    ids=["flash", "efficient"],
)
def test_sequences_in_parallel_attend_as_one(four_ranks, backend, dtype, tolerance, causal):
    tensors = [tensor.requires_grad_() for tensor in projections()]
    output = F.scaled_dot_product_attention(*tensors, is_causal=causal)
    output.square().sum().backward()
    expected = [output.detach(), *(tensor.grad for tensor in tensors)]
    for answer in four_ranks.call(attended, causal, backend, dtype):
        torch.testing.assert_close(answer, expected, rtol=tolerance, atol=tolerance)
