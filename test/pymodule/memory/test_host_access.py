"""The host cannot access device memory: a program that dereferences a device address dies."""

import ctypes
import signal

import pytest
import torch

from device import DEVICE

READ = f"""
import ctypes, torch
tensor = torch.full((4,), 7, dtype=torch.uint8, device="{DEVICE}:1")
print(ctypes.cast(tensor.data_ptr(), ctypes.POINTER(ctypes.c_uint8))[{{index}}], flush=True)
"""


def test_host_that_reads_device_memory_dies_with_a_message(python):
    result = python(READ.format(index=0), expect=-signal.SIGSEGV)
    assert result.stdout == ""
    assert "of device 1" in result.stderr
    assert "0x" in result.stderr
    assert ".cpu()" in result.stderr


def test_other_faults_are_not_explained(python):
    code = f"import ctypes, torch; torch.ones(1, device='{DEVICE}'); ctypes.string_at(8)"
    assert ".cpu()" not in python(code, expect=-signal.SIGSEGV).stderr


def test_host_access_can_be_allowed(python):
    assert python(READ.format(index=3), OPENREG_HOST_ACCESS="1").stdout == "7\n"


def test_host_views_of_device_tensors_are_refused():
    tensor = torch.ones(2, device=DEVICE)
    with pytest.raises(TypeError, match=f"can't convert {DEVICE}:0 device type tensor to numpy"):
        tensor.numpy()


def test_values_reach_the_host_by_copy():
    tensor = torch.arange(3.0, device=DEVICE)
    assert tensor.tolist() == [0.0, 1.0, 2.0]
    assert tensor[1].item() == 1.0
    assert repr(tensor) == f"tensor([0., 1., 2.], device='{DEVICE}:0')"
    assert bool(tensor[1]) and int(tensor[2]) == 2


def test_addresses_differ_between_devices_and_from_the_host():
    size = 1 << 20
    ranges = []
    tensors = [
        torch.empty(size, dtype=torch.uint8, device=d) for d in (f"{DEVICE}:0", f"{DEVICE}:1")
    ]
    buffer = ctypes.create_string_buffer(size)
    for start in [tensor.data_ptr() for tensor in tensors] + [ctypes.addressof(buffer)]:
        assert all(start + size <= low or high <= start for low, high in ranges)
        ranges.append((start, start + size))
