"""Runs programs in dry runs."""

import json
import os
import subprocess
import sys
import uuid

from device import DEVICE

OPENREG = [
    sys.executable,
    "-c",
    "import sys; del sys.path[0]; import _openreg_command as c; sys.exit(c.main())",
]

START = f"""
import json
import sys
import torch
from torch_openreg import _C
from torch_openreg.dry import reads

DEVICE = {DEVICE!r}
module = torch.get_device_module(DEVICE)

def rand(*sizes):
    return torch.rand(sizes, device=DEVICE)

def peak_resident_mib():
    # Not ru_maxrss, which includes what the parent had when it started this process.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) >> 10

def tell(*values):
    sys.stdout.write(f"told {{json.dumps(values)}}\\n")  # at once: ranks share the pipe
"""

# Joins the ranks. After START.
JOIN = """
import os
import torch.distributed as dist

rank = int(os.environ["RANK"])
module.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if DEVICE == "cuda" else "occl")
size = dist.get_world_size()
"""


def own_devices():
    """Return variables with which a process shares its devices with no other test."""
    return {"OPENREG_GROUP": f"dry-{uuid.uuid4().hex}"}


def run(program, *options, check=True, dry=True, **variables):
    """Run a program, in a dry run or with kernels; return what it told, and the result."""
    environment = {
        **os.environ,
        "OPENREG_MEMORY_PLANS": "builtin",
        "OPENREG_GPU_OVERHEAD": "1",  # also in runs that are compared with dry ones
    }
    environment |= {name: str(value) for name, value in variables.items()}
    result = subprocess.run(
        [*OPENREG, "run", *(["--dry"] if dry else []), *options, "python", "-c", START + program],
        env={"OPENREG_DEVICE_TYPE": DEVICE, **environment, **own_devices()},
        capture_output=True,
        text=True,
    )
    assert not check or result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("told ")]
    return [json.loads(line.removeprefix("told ")) for line in lines], result
