"""Dry runs in which some ranks run: their groups, and the objects of those that do not run."""

import pytest
from dry_run import JOIN, run

pytestmark = pytest.mark.own_processes


def test_groups_whose_ranks_all_run_are_joined():
    """Of four ranks two run. They are a group of their own, and stand for the others in all."""
    told, result = run(
        JOIN
        + """
groups = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3], [0, 1], [2, 3])]
pair, part = groups[0], groups[2 if rank == 0 else 3]
sums = []
for group in (pair, part, None):
    x = torch.full((1,), float(rank + 1), device=DEVICE)
    dist.all_reduce(x, group=group)
    sums.append(x.item())
x = torch.full((1,), float(rank), device=DEVICE)
send, receive = (dist.P2POp(each, x, 2 - rank, pair) for each in (dist.isend, dist.irecv))
for work in dist.batch_isend_irecv([send if rank == 0 else receive]):
    work.wait()
objects = [{"rank": rank}]
dist.broadcast_object_list(objects, 2, group=pair)
tell(rank, sums, x.item(), objects)
""",
        *("--ranks=4", "--represent=0,2"),
    )
    assert sorted(told) == [
        [0, [4, 2, 4], 0, [{"rank": 2}]],
        [2, [4, 6, 12], 0, [{"rank": 2}]],
    ]
    assert "Groups whose ranks all ran were compared" in result.stderr


def test_ranks_that_run_are_compared_in_their_group():
    _, result = run(
        JOIN
        + """
pair = dist.new_group([0, 2])
dist.all_reduce(torch.zeros((1 << 20) + rank, device=DEVICE), group=pair)
module.synchronize()
""",
        *("--ranks=4", "--represent=0,2"),
        check=False,
    )
    assert result.returncode != 0
    assert "1048576" in result.stderr and "1048578" in result.stderr


@pytest.mark.parametrize("backend", ["None", "'gloo'"])
def test_objects_of_a_rank_that_does_not_run(backend):
    told, _ = run(
        JOIN
        + f"group = dist.new_group(backend={backend})"
        + """
own = [{"rank": rank}, None]
dist.broadcast_object_list(own, 0, group=group)
sent = [{"rank": rank}]
dist.broadcast_object_list(sent, rank, group=group)
scattered = [None]
dist.scatter_object_list(scattered, ["a", "b", "c", "d"], 0, group=group)
unknown = ["before"]
dist.scatter_object_list(unknown, None, 0, group=group)
try:
    dist.recv_object_list([None], 0, group=group)
except RuntimeError as error:
    tell(str(error))
tell(own, sent, scattered, unknown, [(read.operator, read.value) for read, _ in reads.report()])
""",
        *("--ranks=4", "--represent=1"),
    )
    (refusal,), found = told
    assert refusal.startswith("openreg: recv_object_list: rank 0, which sends the objects,")
    assert found == [
        [{"rank": 1}, None],
        [{"rank": 1}],
        ["b"],
        ["before"],
        [
            ["broadcast_object_list", "own list, not that of rank 0"],
            ["scatter_object_list", "own object, not that of rank 0"],
            ["scatter_object_list", "own object, not that of rank 0"],
        ],
    ]


def test_unknown_error_refuses_objects_of_a_rank_that_does_not_run():
    _, result = run(
        JOIN + "dist.broadcast_object_list([None], 1)",
        *("--ranks=2", "--represent=0", "--unknown=error"),
        check=False,
    )
    assert result.returncode != 0
    assert "broadcast_object_list reads a value that the dry run did not compute" in result.stderr


def test_objects_of_any_size_stay_true():
    told, _ = run(
        JOIN
        + """
text = "x" * 3_000_000
objects = [None] * size
dist.all_gather_object(objects, text + str(rank))
shared = [text if rank == 0 else None]
dist.broadcast_object_list(shared, 0)
large = torch.zeros(3_000_000, dtype=torch.uint8).to(DEVICE)
are_true = [each == text + str(i) for i, each in enumerate(objects)]
tell(are_true, shared == [text], _C.is_known(large))
""",
        "--ranks=2",
    )
    assert told == [[[True, True], True, False]] * 2


PIPELINE = """
from torch import nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("pipeline", "data"))
number = mesh["pipeline"].get_local_rank()
device = torch.device(DEVICE, module.current_device())
part = nn.Linear(512, 512, device=DEVICE)
stage = pipelining.PipelineStage(part, number, 2, device, group=mesh["pipeline"].get_group())
schedule = pipelining.Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(part.parameters())
for _ in range(3):
    if number == 0:
        schedule.step(rand(256, 512))
    else:
        schedule.step(target=rand(256, 512))
    for each in part.parameters():
        dist.all_reduce(each.grad, group=mesh["data"].get_group())
    optimizer.step()
    optimizer.zero_grad()
module.synchronize()
if mesh["data"].get_local_rank() == 0:
    tell(number, module.max_memory_allocated(), module.max_memory_reserved())
"""


def test_a_pipeline_whose_stages_all_run():
    """Of two replicas of a pipeline with two stages the stages of the first one run."""
    real, _ = run(JOIN + PIPELINE, "--ranks=4", dry=False)
    stages, _ = run(JOIN + PIPELINE, "--ranks=4", "--represent=0,2", OPENREG_DRY_KNOWN_BYTES="0")
    assert sorted(stages) == sorted(real)


def test_a_stage_whose_neighbour_does_not_run_is_refused():
    _, result = run(JOIN + PIPELINE, "--ranks=4", "--represent=0", check=False)
    assert result.returncode != 0
    assert "recv_object_list: rank 2, which sends the objects" in result.stderr


def test_shards_are_parameters_wherever_they_are_made():
    told, _ = run(
        JOIN
        + """
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from torch_openreg.dry import report

model = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 2048, bias=False))
model.to(DEVICE)
model[0].requires_grad_(False)
for part in (*model, model):
    fully_shard(part)
last = model[1].weight  # now as accelerate does it
whole = torch.zeros(2048, 1024, device=DEVICE)
shards = distribute_tensor(whole, last.device_mesh, last.placements)
model.load_state_dict({"1.weight": shards}, strict=False, assign=True)
del whole, last, shards
optimizer = torch.optim.AdamW(model[1].parameters())
for _ in range(2):
    model(rand(16, 1024)).square().mean().backward()
    optimizer.step()
(device,) = report.finish().ranks[0].devices
tell({group.name: group.bytes >> 20 for group in device.groups})
""",
        *("--ranks=2", "--represent=0"),
    )
    (groups,) = told[0]
    assert groups["parameters"] == 2 + 4
    assert groups["optimizer state"] == 8
