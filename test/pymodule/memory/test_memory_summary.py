"""The table of statistics, compared with PyTorch's table of the same statistics."""

import pytest
import torch
from modes import openreg_only

from device import DEVICE, memory, module

pytestmark = openreg_only("torch.cuda.memory_summary is what is compared with")


def as_cuda_draws_it(monkeypatch, device, abbreviated):
    stats = module.memory_stats(device)
    monkeypatch.setattr(torch.cuda.memory, "memory_stats", lambda device: stats)
    monkeypatch.setattr(torch.cuda.memory, "_get_device_index", lambda device, optional: device)
    return torch.cuda.memory.memory_summary(device, abbreviated)


@pytest.mark.parametrize("abbreviated", [False, True])
def test_summary_is_the_table_of_cuda(monkeypatch, abbreviated):
    held = [torch.empty(1 << shift, dtype=torch.uint8, device=f"{DEVICE}:1") for shift in range(26)]
    many = [torch.empty(1, device=f"{DEVICE}:1") for _ in range(1000)]
    del many
    expected = as_cuda_draws_it(monkeypatch, 1, abbreviated)
    for theirs, ours in [
        (
            "  PyTorch CUDA memory summary, device ID 1 ",
            "PyTorch openreg memory summary, device ID 1",
        ),
        (" CUDA OOMs", "openreg OOMs"),
        ("  cudaMalloc retries", "allocation retries"),
    ]:
        expected = expected.replace(theirs, ours)
    assert module.memory_summary(1, abbreviated).replace(" ", "") == expected.replace(" ", "")
    lines = module.memory_summary(1, abbreviated).splitlines()
    assert {len(line) for line in lines} == {77}
    assert lines[6:] == expected.splitlines()[6:]
    assert held[0].get_device() == 1


def test_units_grow_with_the_values(monkeypatch):
    figures = module.memory_stats_as_nested_dict(0)

    def grow(nested):
        return {
            key: grow(value) if isinstance(value, dict) else 123456789012345678
            for key, value in nested.items()
        }

    grown = grow(figures)
    grown["num_ooms"] = grown["num_alloc_retries"] = 3
    monkeypatch.setattr(memory._C, "memory_stats", lambda device: grown)
    expected = as_cuda_draws_it(monkeypatch, 0, False)
    ours = module.memory_summary(0)
    assert ours.splitlines()[6:] == expected.splitlines()[6:]
    assert "TiB" in ours and " M " in ours


def test_device_that_does_not_exist_has_no_table():
    for function in (module.memory_summary, module.list_gpu_processes):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            function(7)
