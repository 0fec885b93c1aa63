"""In a dry run tensors of model size on the host take no memory, and integers stay true."""

import pytest
import torch
from dry_run import run

from device import DEVICE

pytestmark = pytest.mark.own_processes

# The largest resident memory so far, in MiB.
RESIDENT = """
resident = peak_resident_mib
before = resident()
"""


def test_a_model_that_is_made_on_the_host_takes_no_memory_of_the_machine():
    told, _ = run(
        RESIDENT
        + """
model = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192) for _ in range(16)])
model = model.to(torch.bfloat16).to(DEVICE)
tell(module.memory_allocated(), resident() - before < 1000, reads.report())
"""
    )
    assert told == [[16 * (8192 + 1) * 8192 * 2, True, []]]


def test_an_optimizer_on_the_host_takes_no_memory_of_the_machine():
    told, _ = run(
        RESIDENT
        + """
parameters = [torch.nn.Parameter(torch.randn(8192, 8192)) for _ in range(16)]
optimizer = torch.optim.AdamW(parameters)
for _ in range(2):
    for each in parameters:
        each.grad = torch.ones(8192, 8192, device=DEVICE).mul_(2).cpu()
    norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
state = optimizer.state[parameters[0]]
tell(resident() - before < 1000, state["step"].item(), list(state["exp_avg"].shape))
tell(reads.report(), _C.is_known(state["exp_avg"]), _C.is_known(norm), norm.item())
tell([read.operator for read, _ in reads.report()])
"""
    )
    assert told == [
        [True, 2, [8192, 8192]],
        [[], False, False, 0],
        [["aten::item"]],
    ]


def test_integers_are_true_at_any_size():
    told, _ = run(
        """
order = torch.randperm(1_000_000)
tokens = torch.arange(1_000_000) % 1000
tell(order.sort().values.equal(torch.arange(1_000_000)), tokens[order].sum().item())
tell((tokens > 500).sum().item(), _C.is_known(tokens), reads.report())
"""
    )
    assert told == [[True, 499_500_000], [499_000, True, []]]


def test_every_way_to_read_unknown_values_is_recorded():
    told, _ = run(
        """
weights = torch.rand(1000, 1000)
small = torch.ones(3).add_(weights[0, :3])
tell(weights[0, 0].item(), weights[:1, :2].tolist(), small.numpy().tolist())
tell(weights.mean().item(), weights.argmax().item(), bool((weights > 1).any()))
pinned = torch.ones(3).pin_memory().add_(weights[0, :3])
tell(*[(read.operator, read.value, count) for read, count in reads.report()])
"""
    )
    values, more, recorded = told
    assert values == [0, [[0, 0]], [1, 1, 1]]
    assert more == [0, 0, False]
    assert recorded == [
        ["aten::item", "0", 1],
        ["Tensor.tolist", "2 zeros", 1],
        ["Tensor.numpy", "3 zeros", 1],
        ["aten::item", "0", 2],
        ["aten::item", "False", 1],
        ["aten::add_", "zeros", 1],
    ]


def test_what_unknown_values_of_the_host_become_on_the_device_is_unknown():
    told, _ = run(
        """
weights = torch.rand(1000, 1000)
tell(*[_C.is_known(each.to(DEVICE)) for each in (weights, weights[0, :4], torch.rand(4))])
weights[:] = 1
known = torch.zeros(1000, 1000)
tell(_C.is_known(weights), _C.is_known(known.fill_(0)), _C.is_known(known[0].clone()))
"""
    )
    assert told == [[False, False, True], [False, False, False]]


def test_results_are_shaped_as_always():
    told, _ = run(
        """
x = torch.rand(600, 700, dtype=torch.float64)
values, indices = x.sort(dim=0, descending=True)
out = torch.empty(0, dtype=torch.float64)
same = torch.mul(x, 2, out=out)
tell([list(each.shape) for each in (values, indices, out, x.T @ x, x.sum(0))])
tell(str(indices.dtype), same is out, x.t().clone().stride(), x.add_(1) is x)
parts = torch.rand(900, 700).unbind(1)
tell(len(parts), list(torch.stack(parts).shape), list(torch.cat([x, x]).shape))
"""
    )
    assert told == [
        [[[600, 700], [600, 700], [600, 700], [700, 700], [700]]],
        ["torch.int64", True, [1, 700], True],
        [700, [700, 900], [1200, 700]],
    ]


def test_a_gradient_on_the_host():
    told, _ = run(
        """
model = torch.nn.Linear(2000, 2000)
loss = model(torch.rand(300, 2000)).square().mean()
loss.backward()
tell(list(model.weight.grad.shape), list(model.bias.grad.shape), loss.item())
"""
    )
    assert told == [[[2000, 2000], [2000], 0]]


def test_a_large_checkpoint_is_not_read(tmp_path):
    with torch.serialization.skip_data():  # which leaves a hole in the file
        torch.save({"w": torch.empty(1 << 30), "n": torch.empty(3)}, tmp_path / "model.pt")
    told, _ = run(
        RESIDENT
        + f"""
state = torch.load({str(tmp_path / "model.pt")!r}, map_location="cpu")
model = torch.nn.Module()
model.w = torch.nn.Parameter(torch.empty(1 << 30))
model.n = torch.nn.Parameter(torch.empty(3))
model.load_state_dict(state)
on_device = state["w"].to(DEVICE)
tell(resident() - before < 1000, model.n.tolist(), _C.is_known(on_device))
"""
    )
    assert told == [[True, [0, 0, 0], False]]


def test_unknown_values_can_be_refused():
    _, result = run("torch.rand(1000, 1000).sum().item()", "--unknown=error", check=False)
    assert result.returncode == 1
    assert "aten::item reads a value that the dry run did not compute" in result.stderr


def test_parameters_that_fsdp_keeps_on_the_host_take_no_memory_of_the_machine():
    backend = "nccl" if DEVICE == "cuda" else "occl"
    told, _ = run(
        RESIDENT
        + f"""
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
dist.init_process_group("cpu:gloo,{DEVICE}:{backend}")
module.set_device(0)
model = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192) for _ in range(16)])
for layer in (*model, model):
    fully_shard(layer, offload_policy=CPUOffloadPolicy())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(64, 8192, device=DEVICE)).sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
tell(resident() - before < 1000, model[0].weight.device.type, norm.full_tensor().item())
dist.destroy_process_group()
""",
        *("--ranks", "2", "--represent", "0"),
    )
    assert told == [[True, "cpu", 0]]
