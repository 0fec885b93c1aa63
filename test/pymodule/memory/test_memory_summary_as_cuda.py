"""The reports about memory, in several states, compared with those of `torch.cuda`'s own code.

`torch.cuda.memory` prints a table of the result of `memory_stats`, and lists the processes that
NVML returns. Here both get openreg's values. Only a word in the titles differs.
"""

import contextlib
import gc
import os
import re
import sys
import types

import pytest
import torch

from device import DEVICE, MIB, memory, module

# What the two titles have instead of "CUDA" and "cudaMalloc".
NAME, ITS_CALL = ("CUDA", "cudaMalloc") if DEVICE == "cuda" else (DEVICE, "allocation")

GIB = 1 << 30


@pytest.fixture(autouse=True)
def fresh():
    """Start with an empty cache; leave no limit and no settings behind."""
    gc.collect()
    module.init()
    module.empty_cache()
    module.reset_accumulated_memory_stats(1)
    module.reset_peak_memory_stats(1)
    yield
    gc.collect()
    module.empty_cache()  # with the settings with which it was filled: they define what is oversize
    module.set_per_process_memory_fraction(1.0, 1)
    memory._set_allocator_settings("expandable_segments:False")
    module.empty_cache()


def allocate(nbytes):
    return torch.empty(nbytes, dtype=torch.uint8, device=f"{DEVICE}:1")


# ---- states --------------------------------------------------------------------------------------


def nothing():
    return []


def many_small_tensors():
    return [allocate(1) for _ in range(3000)]


def holes_of_all_sizes():
    tensors = [allocate(1 << shift) for shift in range(26)]
    del tensors[::2]
    return tensors


def oversize_blocks():
    memory._set_allocator_settings("max_split_size_mb:20")
    held = [allocate(60 * MIB), allocate(30 * MIB), allocate(3 * MIB)]
    del held[0]
    stats = module.memory_stats(1)
    assert [stats[f"oversize_{what}.peak"] for what in ("allocations", "segments")] == [2, 3]
    return held


def ran_out_and_tried_again():
    total = module.mem_get_info(1)[1]
    allowed = module.memory_reserved(1) + 100 * MIB
    module.set_per_process_memory_fraction(allowed / total, 1)
    allocate(80 * MIB)
    held = [allocate(90 * MIB)]
    for _ in range(2):
        with contextlib.suppress(torch.OutOfMemoryError):
            allocate(95 * MIB)
    stats = module.memory_stats(1)
    assert (stats["num_ooms"], stats["num_alloc_retries"]) == (2, 3)
    return held


def gibibytes_held_and_more_freed():
    for _ in range(800):
        allocate(3 * GIB // 2)
    return [allocate(3 * GIB // 2), allocate(5)]


def expandable_segments():
    memory._set_allocator_settings("expandable_segments:True")
    held = [allocate(nbytes) for nbytes in (30 * MIB, 100, 45 * MIB, 12 * MIB)]
    del held[2]
    return held


def private_pool():
    pool = module.MemPool(no_split=True)
    with module.use_mem_pool(pool, device=1):
        return [allocate(1000), allocate(3 * MIB), pool]


STATES = [
    nothing,
    many_small_tensors,
    holes_of_all_sizes,
    oversize_blocks,
    ran_out_and_tried_again,
    gibibytes_held_and_more_freed,
    expandable_segments,
    private_pool,
]


# ---- the table -----------------------------------------------------------------------------------


def as_cuda_draws_it(monkeypatch, abbreviated):
    stats = module.memory_stats(1)
    monkeypatch.setattr(torch.cuda.memory, "memory_stats", lambda device: stats)
    monkeypatch.setattr(torch.cuda.memory, "_get_device_index", lambda device, optional: device)
    return torch.cuda.memory.memory_summary(1, abbreviated)


def without_blanks(line):
    return re.sub(" +", "", line)


@pytest.mark.parametrize("abbreviated", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_table_is_that_of_cuda(monkeypatch, state, abbreviated):
    held = state()
    ours = module.memory_summary(1, abbreviated)
    theirs = as_cuda_draws_it(monkeypatch, abbreviated)
    assert isinstance(held, list)
    own, cudas = ours.split("\n"), theirs.split("\n")
    assert [len(line) for line in own] == [len(line) for line in cudas]
    for i in (1, 3):
        expected = without_blanks(cudas[i]).replace("CUDA", NAME).replace("cudaMalloc", ITS_CALL)
        assert without_blanks(own[i]) == expected
        own[i] = cudas[i]
    assert own == cudas


def test_units_are_those_of_the_row_of_all_pools():
    held = gibibytes_held_and_more_freed()
    rows = {line[2:23].strip(): line for line in module.memory_summary(1).splitlines()}
    assert re.findall(r"(\d+) (\w+)", rows["Allocated memory"]) == [
        ("1536", "MiB"),
        ("1536", "MiB"),
        ("1201", "GiB"),
        ("1200", "GiB"),
    ]
    assert len(held) == 2


# ---- the processes -------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [0, 34 * MIB, 5 * MIB // 2])
def test_processes_are_listed_as_cuda_lists_them(monkeypatch, nbytes):
    held = allocate(nbytes)
    reserved = module.memory_reserved(1)
    processes = [types.SimpleNamespace(pid=os.getpid(), usedGpuMemory=reserved)]
    driver = types.SimpleNamespace(
        NVMLError_DriverNotLoaded=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: processes if reserved else [],
    )
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(torch.cuda.memory, "_get_nvml_device_index", lambda device: device)
    assert module.list_gpu_processes(1) == torch.cuda.memory.list_gpu_processes(1)
    assert held.nbytes == nbytes
