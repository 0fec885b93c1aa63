"""Third-party programs that use libnvidia-ml.so.1. Two processes allocate memory on one device
each, and the tools must show them.
"""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap

import peers
import pytest
import torch
import torch_openreg._C
from torch_openreg.nvml import library_folder, programs_folder

from device import DEVICE

DEVICES = {
    "OPENREG_DEVICE_COUNT": "3",
    "OPENREG_DEVICE_MEMORY": "1G",
    "OPENREG_PROFILE": "h100",
}


def require(module):
    return pytest.mark.skipif(
        importlib.util.find_spec(module) is None,
        reason=f"{module} is not installed: pip install nvidia-ml-py gpustat nvitop",
    )


def take_and_work(variables, index, mebibytes):
    """Runs in a peer: allocate memory on one device and keep it busy until the peer ends."""
    os.environ.update(variables)
    peers.keep(
        "tensor", torch.empty(mebibytes << 20, dtype=torch.uint8, device=f"{DEVICE}:{index}")
    )
    if index == 1:
        peers.keep("gate", torch_openreg._C._Gate(index, 0))
    return os.getpid()


@pytest.fixture(scope="module")
def environment(own_group):
    return own_group() | DEVICES | {"LD_LIBRARY_PATH": str(library_folder()), "NO_COLOR": "1"}


@pytest.fixture(scope="module")
def pids(environment):
    """Processes that use 100 MiB of device 0 and 300 MiB of device 1, which is busy."""
    variables = DEVICES | {"OPENREG_GROUP": environment["OPENREG_GROUP"]}
    with peers.Peer() as first, peers.Peer() as second:
        started = [
            first.call(take_and_work, variables, 0, 100),
            second.call(take_and_work, variables, 1, 300),
        ]
        await_busy(environment, [b"0", b"100", b"0"])
        yield started
        second.kill()


def await_busy(environment, percents):
    """Sample until utilization is as expected: other tests that list groups take samples too."""
    asked = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    command = [programs_folder() / "nvidia-smi", *asked]
    while subprocess.check_output(command, env=environment).split() != percents:
        pass


@pytest.fixture
def run(environment):
    """Run Python code, or a module with arguments, with the library in the search path."""

    def run(code=None, *, module=(), **variables):
        arguments = ["-m", *module] if module else ["-c", textwrap.dedent(code)]
        result = subprocess.run(
            [sys.executable, *arguments],
            env=environment | variables,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


@require("pynvml")
def test_pynvml_sees_memory_processes_and_work(run, pids):
    seen = json.loads(
        run(
            """
            import json
            from pynvml import *
            nvmlInit()
            devices = []
            for index in range(nvmlDeviceGetCount()):
                handle = nvmlDeviceGetHandleByIndex(index)
                memory = nvmlDeviceGetMemoryInfo(handle)
                newer = nvmlDeviceGetMemoryInfo(handle, version=nvmlMemory_v2)
                assert (newer.total, newer.used, newer.free) == (
                    memory.total, memory.used, memory.free)
                processes = nvmlDeviceGetComputeRunningProcesses(handle)
                assert nvmlDeviceGetGraphicsRunningProcesses(handle) == []
                devices.append({
                    "name": nvmlDeviceGetName(handle),
                    "used": memory.used >> 20,
                    "total": memory.total >> 20,
                    "pids": [[process.pid, process.usedGpuMemory >> 20] for process in processes],
                    "busy": nvmlDeviceGetUtilizationRates(handle).gpu,
                    "capability": nvmlDeviceGetCudaComputeCapability(handle),
                })
                by_uuid = nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(handle))
                assert nvmlDeviceGetIndex(by_uuid) == index
                assert nvmlDeviceGetPciInfo(handle).bus == index + 1
            nvmlShutdown()
            print(json.dumps(devices))
            """
        )
    )
    same = {"name": "NVIDIA H100 80GB HBM3", "total": 1024, "capability": [9, 0]}
    assert seen == [
        same | {"used": 100, "pids": [[pids[0], 100]], "busy": 0},
        same | {"used": 300, "pids": [[pids[1], 300]], "busy": 100},
        same | {"used": 0, "pids": [], "busy": 0},
    ]


@require("pynvml")
def test_pynvml_raises_not_supported_for_missing_features(run):
    run(
        """
        import pynvml as nvml
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        for ask in (
            lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            lambda: nvml.nvmlDeviceGetPowerUsage(handle),
            lambda: nvml.nvmlDeviceGetFanSpeed(handle),
            lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            lambda: nvml.nvmlDeviceGetEccMode(handle),
        ):
            try:
                ask()
            except nvml.NVMLError_NotSupported:
                continue
            raise AssertionError
        try:
            nvml.nvmlDeviceGetHandleByIndex(3)
        except nvml.NVMLError_InvalidArgument:
            pass
        nvml.nvmlShutdown()
        try:
            nvml.nvmlDeviceGetCount()
        except nvml.NVMLError_Uninitialized:
            print("as expected")
        """
    )


@require("pynvml")
def test_every_device_function_of_pynvml_exists(run):
    """Except functions for partitions of a GPU, which have no handles."""
    missing = run(
        """
        import ctypes, inspect, pynvml, re
        library = ctypes.CDLL("libnvidia-ml.so.1")
        source = inspect.getsource(pynvml)
        names = set(re.findall(r'FunctionPointer\\("(nvmlDevice\\w+)"\\)', source))
        assert len(names) > 100
        print(*sorted(name for name in names if not hasattr(library, name)))
        """
    )
    of_other_things = "DiscoverGpus|GetHandleByUUIDV|ModifyDrainState|QueryDrainState|RemoveGpu"
    assert set(missing.split()) <= {f"nvmlDevice{name}" for name in of_other_things.split("|")}


@require("pynvml")
def test_killed_process_is_gone(run, environment):
    variables = DEVICES | {"OPENREG_GROUP": environment["OPENREG_GROUP"]}
    code = """
        import pynvml as nvml
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(2)
        print(len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
              nvml.nvmlDeviceGetMemoryInfo(handle).used >> 20)
        """
    with peers.Peer() as holder:
        holder.call(take_and_work, variables, 2, 60)
        assert run(code) == "1 60\n"
        holder.kill()
    assert run(code) == "0 0\n"


@require("gpustat")
def test_gpustat_shows_devices_and_processes(run, pids):
    gpus = json.loads(run(module=["gpustat", "--json"]))["gpus"]
    assert [gpu["memory.used"] for gpu in gpus] == [100, 300, 0]
    assert [gpu["memory.total"] for gpu in gpus] == [1024] * 3
    assert [gpu["utilization.gpu"] for gpu in gpus] == [0, 100, 0]
    assert [gpu["temperature.gpu"] for gpu in gpus] == [None] * 3
    assert [[process["pid"] for process in gpu["processes"]] for gpu in gpus] == [
        [pids[0]],
        [pids[1]],
        [],
    ]
    assert "H100" in run(module=["gpustat", "--no-color"])


@require("nvitop")
def test_nvitop_shows_devices_and_processes(run, pids):
    text = run(module=["nvitop", "-1", "--ascii"], COLUMNS="100", TERM="dumb")
    assert "300.0MiB / 1024MiB" in text and "100.0MiB / 1024MiB" in text
    assert all(str(pid) in text for pid in pids)
    assert "ERROR" not in text


def test_pytorch_counts_devices_by_nvml_and_cuda_visible_devices(run):
    code = "import torch.cuda; print(torch.cuda._device_count_nvml())"
    assert run(code) == "3\n"
    assert run(code, CUDA_VISIBLE_DEVICES="2,0") == "2\n"
    assert run(code, CUDA_VISIBLE_DEVICES="") == "0\n"
    uuids = run("import torch; print(*torch.cuda._raw_device_uuid_nvml())").split()
    assert len(set(uuids)) == 3
    assert run(code, CUDA_VISIBLE_DEVICES=f"{uuids[2]},{uuids[1]}") == "2\n"


@require("pynvml")
def test_pytorch_uses_pynvml_for_its_devices(run, pids):
    printed = run(
        """
        import pynvml, torch
        print(torch.cuda.utilization(1), torch.cuda.utilization(0))
        print(torch.cuda.list_gpu_processes(1))
        for ask in (torch.cuda.temperature, torch.cuda.power_draw, torch.cuda.clock_rate):
            try:
                ask(0)
            except pynvml.NVMLError_NotSupported:
                print("not supported")
        """
    )
    lines = printed.splitlines()
    assert lines[0] == "100 0"
    assert lines[1] == "GPU:1"
    assert str(pids[1]) in lines[2] and "300.000 MB" in lines[2]
    assert lines[3:] == ["not supported"] * 3
