"""Dry runs of several ranks: all of them, and one that stands for the others."""

import pytest
from dry_run import JOIN, run

pytestmark = pytest.mark.own_processes


def test_small_known_tensors_are_communicated():
    told, _ = run(
        JOIN
        + """
x = torch.full((4,), float(rank), device=DEVICE)
dist.all_reduce(x)
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
tell(x.tolist(), objects)
""",
        "--ranks=2",
    )
    assert told == [[[1, 1, 1, 1], [{"rank": 0}, {"rank": 1}]]] * 2


def test_large_tensors_are_compared_but_not_moved():
    told, _ = run(
        JOIN
        + """
x = torch.full((1 << 20,), 1.0, device=DEVICE)
dist.all_reduce(x)
work = dist.all_reduce(x, async_op=True)
work.wait()
module.synchronize()
if rank == 0:
    dist.send(x, 1)
else:
    dist.recv(x, 0)
tell(_C.is_known(x), x[0].item())
""",
        "--ranks=2",
    )
    assert told == [[False, 0]] * 2


def test_different_sizes_are_found():
    _, result = run(
        JOIN
        + """
dist.all_reduce(torch.zeros((1 << 20) + rank, device=DEVICE))
module.synchronize()
""",
        "--ranks=2",
        check=False,
    )
    assert result.returncode != 0
    assert "1048576" in result.stderr and "1048577" in result.stderr


def test_a_rank_that_skips_a_collective_is_found():
    _, result = run(
        JOIN
        + """
x = torch.zeros(1 << 20, device=DEVICE)
if rank == 0:
    dist.all_reduce(x)
dist.broadcast(x, 0)
module.synchronize()
""",
        "--ranks=2",
        check=False,
    )
    assert result.returncode != 0
    assert "all_reduce" in result.stderr and "broadcast" in result.stderr


COLLECTIVES = (
    JOIN
    + """
def numbers(*values):
    return torch.tensor(values, dtype=torch.float32, device=DEVICE)

x = numbers(1, 2)
found = {}
for name in ("SUM", "AVG", "PRODUCT", "MAX"):
    y = numbers(1, 2)
    dist.all_reduce(y, getattr(dist.ReduceOp, name))
    found[name] = y.tolist()
out = torch.empty(2 * size, device=DEVICE)
dist.all_gather_into_tensor(out, x)
found["gathered"] = out.tolist()
part = torch.empty(1, device=DEVICE)
dist.reduce_scatter_tensor(part, torch.arange(size, dtype=torch.float32, device=DEVICE))
found["part"] = part.tolist()
exchanged = torch.empty(size, device=DEVICE)
dist.all_to_all_single(exchanged, torch.arange(size, dtype=torch.float32, device=DEVICE))
found["exchanged"] = exchanged.tolist()
objects = [None] * size
dist.all_gather_object(objects, rank)
found["objects"] = objects.copy()
dist.barrier()
y = numbers(5)
dist.broadcast(y, 0)
received = numbers(7)
dist.recv(received, (rank + 1) % size)
tell(rank, size, found, y.tolist(), _C.is_known(received))
"""
)


def test_one_rank_stands_for_all():
    told, result = run(COLLECTIVES, "--ranks=4", "--represent=1")
    found = {
        "SUM": [4, 8],
        "AVG": [1, 2],
        "PRODUCT": [1, 16],
        "MAX": [1, 2],
        "gathered": [1, 2, 1, 2, 1, 2, 1, 2],
        "part": [4],
        "exchanged": [1, 1, 1, 1],
        "objects": [1, 1, 1, 1],
    }
    assert told == [[1, 4, found, [5], False]]
    assert "Rank 1 stood for all 4 ranks" in result.stderr
    assert "No report" not in result.stderr


@pytest.mark.parametrize("device", ["cpu", "DEVICE"])
def test_one_rank_stands_for_all_in_a_group_of_gloo(device):
    told, _ = run(
        JOIN
        + f"device = {'DEVICE' if device == 'DEVICE' else repr(device)}"
        + """
gloo = dist.new_group(backend="gloo")
numbers = torch.arange(1.0, 5, device=device)  # one for each rank
found = {}
for name in ("SUM", "PRODUCT", "MAX"):
    y = numbers[:2].clone()
    dist.all_reduce(y, getattr(dist.ReduceOp, name), group=gloo)
    found[name] = y.tolist()
lists = [torch.zeros(1, device=device) for _ in range(size)]
dist.all_gather(lists, numbers[1:2], group=gloo)
found["gathered"] = torch.cat(lists).tolist()
both = torch.empty(size, 2, device=device)
dist.all_gather_into_tensor(both, numbers[:2], group=gloo)
found["both"] = both.tolist()
part = torch.empty(1, device=device)
dist.reduce_scatter_tensor(part, numbers, group=gloo)
found["part"] = part.item()
uneven = torch.empty(8, device=device)
dist.all_to_all_single(uneven, numbers, [1, 2, 2, 3], [0, 2, 1, 1], group=gloo)
found["uneven"] = uneven[[0, 1, 2, 3, 4, 5, 6]].tolist()
dist.scatter(part, None if rank else list(numbers.split(1)), 0, group=gloo)
found["scattered"] = part.item()
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank}, group=gloo)
found["objects"] = objects.copy()
shared = [rank, "shared"]
dist.broadcast_object_list(shared, 1, group=gloo)
dist.gather_object(rank, objects if rank == 1 else None, 1, group=gloo)
found["shared"] = [shared, objects]
dist.recv(part, 2, group=gloo)
dist.send(part, 2, group=gloo)
found["received"] = part.item()
dist.monitored_barrier(gloo)
dist.barrier(gloo)
tell(dist.get_world_size(gloo), found)
""",
        "--ranks=4",
        "--represent=1",
    )
    found = {
        "SUM": [4, 8],
        "PRODUCT": [1, 16],
        "MAX": [1, 2],
        "gathered": [2, 2, 2, 2],
        "both": [[1, 2]] * 4,
        "part": 8,
        "uneven": [1, 1, 2, 1, 2, 1, 2],
        "scattered": 0,
        "objects": [{"rank": 1}] * 4,
        "shared": [[1, "shared"], [1] * 4],
        "received": 0,
    }
    assert told == [[4, found]]


def test_only_a_dry_run_has_ranks_that_stand_for_others():
    told, _ = run(
        JOIN + "x = torch.ones(1, device=DEVICE) + rank; dist.all_reduce(x); tell(x.item())",
        "--ranks=2",
        dry=False,
        OPENREG_DRY_REPRESENT="0",
    )
    assert told == [[3], [3]]


def test_the_rank_that_stands_for_others_takes_the_memory_of_its_communicator():
    told, result = run(
        JOIN
        + """
before = module.mem_get_info()[0]
dist.all_reduce(torch.ones(1, device=DEVICE))
tell((before - module.mem_get_info()[0]) >> 20)
""",
        "--ranks=4",
        "--represent=0",
        OPENREG_GPU_OVERHEAD="1",
        OPENREG_NCCL_MEMORY="100",
    )
    assert told in ([[100]], [[102]])  # with a segment of the allocator
    assert "100.00 MiB" in result.stderr


def test_two_ranks_stand_for_their_groups_each():
    told, _ = run(JOIN + "tell(rank, size)", "--ranks=16", "--represent=0,15")
    assert sorted(told) == [[0, 16], [15, 16]]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--represent=0"], "argument --represent: requires --ranks"),
        (["--ranks=2", "--represent=2"], "argument --represent: 2: expected ranks from 0 to 1"),
        (
            ["--ranks=2", "--represent=x"],
            "argument --represent: x: expected ranks such as 0 or 0,7",
        ),
    ],
)
def test_wrong_options_are_refused(options, sentence):
    _, result = run("", *options, check=False)
    assert result.returncode == 2
    assert sentence in result.stderr


def test_sharded_training():
    """FSDP2 on four ranks, one of them running: its memory is that of a rank of a real run."""
    program = (
        JOIN
        + """
from torch import nn
from torch.distributed.fsdp import fully_shard

torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 512), nn.Linear(512, 256)) for _ in range(3)))
model.to(DEVICE)
for part in model:
    fully_shard(part)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(rand(64, 256)).square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
module.synchronize()
if rank == 0:
    tell(module.max_memory_allocated(), module.max_memory_reserved())
"""
    )
    known = {"OPENREG_DRY_KNOWN_BYTES": "0"}
    one, _ = run(program, "--ranks=4", "--represent=0", **known)
    all_, _ = run(program, "--ranks=4", **known)
    real, _ = run(program, "--ranks=4", dry=False)
    assert one == all_
    assert one == real


@pytest.mark.parametrize(
    ("are_joined", "message"),
    [
        (False, "did not join the group within 4 s"),
        (True, "did not reach all_reduce #2 (sum, float32, 1048576 elements) of group"),
    ],
)
def test_a_rank_that_calls_another_group_is_found(are_joined, message):
    _, result = run(
        JOIN
        + f"""
import datetime

timeout = datetime.timedelta(seconds={15 if are_joined else 4})
groups = [dist.new_group([0, 1], timeout=timeout) for _ in range(2)]
for group in groups if {are_joined} else ():
    dist.all_reduce(torch.zeros(1, device=DEVICE), group=group)
dist.all_reduce(torch.zeros(1 << 20, device=DEVICE), group=groups[rank])
module.synchronize()
""",
        "--ranks=2",
        check=False,
    )
    assert result.returncode != 0
    assert message in result.stderr
