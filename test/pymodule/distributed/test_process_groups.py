"""How a program creates a process group for devices, and which backends it has."""

import subprocess
import sys
import textwrap

import pytest
import torch
import torch.distributed as dist
from ranks import own_device, ranks_of

from device import DEVICE

pytestmark = pytest.mark.own_processes


def sums():
    tensors = [torch.ones(2, device=device) for device in ("cpu", own_device())]
    for tensor in tensors:
        dist.all_reduce(tensor)
    group = dist.group.WORLD
    backends = [group._get_backend(torch.device(device)) for device in ("cpu", DEVICE)]
    return [tensor.tolist() for tensor in tensors], [
        isinstance(backend, dist.ProcessGroupGloo) for backend in backends
    ]


@pytest.mark.parametrize("backend", ["gloo", f"cpu:gloo,{DEVICE}:gloo"])
def test_names_of_the_backend(tmp_path, backend):
    with ranks_of(tmp_path, backend=backend) as ranks:
        assert ranks.call(sums) == [([[2, 2], [2, 2]], [True, True])] * 2


def sum_on_device():
    tensor = torch.ones(2, device=own_device())
    dist.all_reduce(tensor)
    gathered = [None, None]
    torch.get_device_module(DEVICE).set_device(own_device())
    dist.all_gather_object(gathered, dist.get_rank())
    return tensor.tolist(), gathered


def test_backend_for_the_device_alone(tmp_path):
    with ranks_of(tmp_path, backend=f"{DEVICE}:gloo") as ranks:
        assert ranks.call(sum_on_device) == [([2, 2], [0, 1])] * 2


def sum_in_split():
    """Passes Gloo's options, because PyTorch cannot copy them."""
    backend = dist.group.WORLD._get_backend(own_device())
    own = dist.split_group(split_ranks=[[0, 1]], pg_options=backend.options)
    tensor = torch.ones(2, device=own_device())
    dist.all_reduce(tensor, group=own)
    dist.all_reduce(tensor, group=dist.new_group([0, 1]))
    return tensor.tolist(), type(own._get_backend(own_device())) is type(backend)


def test_group_that_is_bound_to_a_device_is_split(tmp_path):
    with ranks_of(tmp_path, bound=True, backend="gloo") as ranks:
        assert ranks.call(sum_in_split) == [([4, 4], True)] * 2


PROGRAM = f"""
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = int(os.environ["LOCAL_RANK"])
tensor = torch.ones(2, device=torch.device("{DEVICE}", rank)) * (rank + 1)
dist.all_reduce(tensor)
pending = dist.all_reduce(tensor, async_op=True)
assert tensor.device.index == rank
line = "rank %d sum %d\\n" % (rank, pending.get_future().wait()[0][0].item())
sys.stdout.write(line)  # at once: both ranks write to one pipe
sys.stdout.flush()
if {{end}}:
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("end", [True, False], ids=["destroyed", "left"])
def test_torchrun(tmp_path, own_group, end):
    """Covers a program that does not destroy its group before it exits."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM.format(end=end)))
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        + [str(program)],
        env=own_group(),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["rank 0 sum 6", "rank 1 sum 6"]


LEFT = """
import torch, torch.distributed as dist, torch_openreg._C as C
C.set_queues_everything(True)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
tensor = torch.ones(4, device="{device}")
tensor += 1
torch.get_device_module("{device}").synchronize()
gate = C._Gate(0, 0)
tensor += 1
work = dist.all_reduce(tensor, async_op=True)
{release}
print("end")
"""


@pytest.mark.parametrize("release", ["gate.open()", "gate.open(); del work, tensor"])
def test_program_that_waits_for_nothing_ends(python, release):
    result = python(LEFT.format(device=DEVICE, release=release))
    assert result.stdout == "end\n"


def test_checks_of_collectives(python):
    """With TORCH_DISTRIBUTED_DEBUG=DETAIL the group is wrapped in another."""
    code = f"""
        import os, torch, torch.distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        tensor = torch.ones(4, device="{DEVICE}")
        dist.all_reduce(tensor)
        print(type(dist.group.WORLD._get_backend(tensor.device)).__name__, tensor.sum().item())
        """
    result = python(code, fresh=True, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert result.stdout == "_ProcessGroupWrapper 4.0\n"
