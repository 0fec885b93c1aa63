"""nvidia-ml-py, gpustat, nvitop and nvidia-smi: they show this process and its memory."""

import json
import os
import subprocess

import pynvml
import torch

tensor = torch.ones(2**26, device="cuda:1")
pynvml.nvmlInit()
assert pynvml.nvmlDeviceGetCount() == torch.cuda.device_count()
device = pynvml.nvmlDeviceGetHandleByIndex(1)
assert pynvml.nvmlDeviceGetMemoryInfo(device).used == torch.cuda.memory_reserved(1)
processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
assert [process.pid for process in processes] == [os.getpid()]


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


gpu = json.loads(run("gpustat", "--json"))["gpus"][1]
assert gpu["name"] == torch.cuda.get_device_name(1) and gpu["memory.used"] == 256
assert [process["pid"] for process in gpu["processes"]] == [os.getpid()]
assert str(os.getpid()) in run("nvitop", "--once")
used = run("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
assert used.split() == ["0", "256"]
