#!/usr/bin/env python3
"""Record what a GPU says of itself, and the memory of its contexts and libraries.

On a machine with an NVIDIA GPU, PyTorch for CUDA and nvidia-ml-py, from the root of the source
tree:

    python tools/record_cuda_device.py

writes test/fixtures/device-<GPU>.json.gz. Nothing else should use the GPU meanwhile.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpu_records
import torch

# Each program prints a JSON object. It runs in a process of its own.
MEASURED = """
import json, pynvml, torch
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
found, before = {}, None
def used(name):
    global before
    torch.cuda.synchronize() if before is not None else None
    now = pynvml.nvmlDeviceGetMemoryInfo(handle).used
    if before is not None:
        reserved = torch.cuda.memory_reserved() if torch.cuda.is_initialized() else 0
        found[name] = now - before - reserved
    else:
        before = now
        found["used by the driver"] = now
used("")
torch.cuda.init()
torch.cuda.synchronize()
used("after synchronize")
torch.zeros(1, device="cuda")
used("after a kernel")
x = torch.rand(1024, 1024, device="cuda")
used("after random numbers")
x @ x
used("after a product")
found["workspace of cuBLAS"] = torch.cuda.memory_allocated() - 512 - 4 * 2**20
x.half() @ x.half()
used("after a product of float16")
torch.nn.functional.linear(x, x, x[0])
used("after a linear layer")
found["allocated after a linear layer"] = torch.cuda.memory_allocated()
torch.nn.functional.conv2d(x[None, None], x[None, None, :3, :3])
used("after a convolution")
torch.fft.fft(x)
used("after a Fourier transform")
torch.linalg.svd(x[:64, :64])
used("after a decomposition")
q = torch.rand(1, 8, 256, 64, device="cuda").half()
torch.nn.functional.scaled_dot_product_attention(q, q, q)
used("after attention")
torch.sparse.mm(torch.eye(64, device="cuda").to_sparse_csr(), x[:64])
used("after a sparse product")
found["mem_get_info"] = torch.cuda.mem_get_info()
print(json.dumps(found))
"""

EAGER = "import os; os.environ['CUDA_MODULE_LOADING'] = 'EAGER'\n" + MEASURED

NCCL = """
import json, os, pynvml, torch
import torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533", RANK="0", WORLD_SIZE="1")
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
x = torch.zeros(1 << 20, device="cuda")
torch.cuda.synchronize()
before = pynvml.nvmlDeviceGetMemoryInfo(handle).used
dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
torch.cuda.synchronize()
middle = pynvml.nvmlDeviceGetMemoryInfo(handle).used
dist.all_reduce(x)
torch.cuda.synchronize()
after = pynvml.nvmlDeviceGetMemoryInfo(handle).used
found = {"communicator": middle - before, "after all_reduce": after - before}
for name in ("second communicator", "third communicator"):
    group = dist.new_group([0], use_local_synchronization=True)
    dist.all_reduce(x, group=group)
    torch.cuda.synchronize()
    found[name] = pynvml.nvmlDeviceGetMemoryInfo(handle).used - before
print(json.dumps(found | {"version": torch.cuda.nccl.version()}))
dist.destroy_process_group()
"""

WORKSPACES = """
import json, os, torch
found = {}
x = torch.rand(256, 256, device="cuda", requires_grad=True)
def grows(name, call):
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    found[name] = torch.cuda.memory_allocated() - before
with torch.no_grad():
    grows("mm", lambda: x @ x)
    grows("mm again", lambda: x @ x)
    grows("addmm", lambda: torch.addmm(x[0], x, x))
    grows("bmm", lambda: torch.bmm(x[None], x[None]))
    grows("mm of bfloat16", lambda: x.bfloat16() @ x.bfloat16())
    with torch.cuda.stream(torch.cuda.Stream()):
        grows("mm on another stream", lambda: x @ x)
        grows("addmm on another stream", lambda: torch.addmm(x[0], x, x))
def backward():
    (x @ x).sum().backward()
    x.grad = None
grows("backward", backward)
grows("backward again", backward)
with torch.no_grad():
    grows("convolution", lambda: torch.nn.functional.conv2d(x[None, None], x[None, None, :3, :3]))
    grows("inverse", lambda: torch.linalg.inv(x + 300 * torch.eye(256, device="cuda")))
    grows("svd", lambda: torch.linalg.svd(x[:32, :32]))
    grows("fft", lambda: torch.fft.fft(x))
    grows("lstm", lambda: torch.nn.LSTM(256, 256).cuda()(x))
    scale = torch.ones((), device="cuda")
    y = x.to(torch.float8_e4m3fn)
    grows("scaled_mm", lambda: torch._scaled_mm(y, y.t(), scale, scale, out_dtype=torch.bfloat16))
    grows("int8 product", lambda: torch._int_mm(x.to(torch.int8), x.to(torch.int8)))
torch._C._cuda_clearCublasWorkspaces()
found["after clearing"] = torch.cuda.memory_allocated()
found["x"] = x.numel() * 4
print(json.dumps(found))
"""

# Products of matrices in captures, with the memory that the allocator then has.
CAPTURES = """
import json, torch
found = {}
x = torch.rand(256, 256, device="cuda")
def note(name):
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    found[name] = [stats[f"{what}_bytes.all.current"] for what in ("allocated", "reserved")]
    found[name] += [stats[f"{what}_bytes.all.peak"] for what in ("allocated", "reserved")]
note("start")
x @ x
note("a product")
first, second, third = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
with torch.cuda.graph(first):
    y = x @ x
note("a capture")
first.replay()
note("a replay")
with torch.cuda.graph(second, pool=first.pool()):
    z = (y @ x).relu()
note("a second capture in its pool")
with torch.cuda.graph(third):
    w = torch.nn.functional.linear(x, x, x[0]).sum()
note("a capture of a linear layer")
with torch.cuda.stream(torch.cuda.Stream()):
    x @ x
note("a product on a stream")
del y, z, w
note("results freed")
del first, second, third
note("graphs freed")
torch.cuda.empty_cache()
note("cache emptied")
torch._C._cuda_clearCublasWorkspaces()
torch.cuda.empty_cache()
note("workspaces cleared")
print(json.dumps(found))
"""

# What the first call takes, in processes of their own.
FIRST = """
import json, torch
x = torch.rand(256, 256, device="cuda", requires_grad={gradients})
bias = torch.rand(256, device="cuda")
before = torch.cuda.memory_allocated()
result = {call}
torch.cuda.synchronize()
del result
print(json.dumps(torch.cuda.memory_allocated() - before))
"""

PROGRAMS = {
    "memory": MEASURED,
    "memory, eager loading": EAGER,
    "nccl": NCCL,
    "workspaces": WORKSPACES,
    "captures": CAPTURES,
}
PROGRAMS |= {
    f"first {name}": FIRST.format(call=call, gradients=gradients)
    for name, call, gradients in (
        ("product", "x @ x", False),
        ("linear layer", "torch.nn.functional.linear(x, x, bias)", False),
        ("sum", "x.sum()", False),
        ("convolution", "torch.nn.functional.conv2d(x[None, None], x[None, None, :3, :3])", False),
        ("backward of a product", "(x @ x).sum().backward()", True),
        (
            "backward of a linear layer",
            "torch.nn.functional.linear(x, x, bias).sum().backward()",
            True,
        ),
        ("inverse", "torch.linalg.inv(x)", False),
        ("lstm", "torch.nn.LSTM(256, 8, device='cuda')(x)", False),
    )
}


def run(arguments: list[str]) -> dict[str, Any]:
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    return {"status": result.returncode, "output": result.stdout, "errors": result.stderr[-2000:]}


# These say which GPU it was, and not what it can do.
IDENTITY = ("uuid", "pci_bus_id", "pci_device_id", "pci_domain_id")


def properties() -> dict[str, Any]:
    device = torch.cuda.get_device_properties(0)
    return {
        name: getattr(device, name)
        for name in dir(device)
        if not name.startswith("_") and name not in IDENTITY
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    found = {}
    for name, code in PROGRAMS.items():
        result = run([sys.executable, "-c", code])
        last = result["output"].splitlines()[-1:]
        found[name] = result["errors"] if result["status"] else json.loads(last[0])
    path = options.output or gpu_records.path_of("device")
    record = {"programs": found, "properties": properties()}
    gpu_records.save(gpu_records.versions() | record, path)
    print(path)


if __name__ == "__main__":
    main()
