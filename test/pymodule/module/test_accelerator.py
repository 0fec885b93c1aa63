"""`torch.accelerator` agrees with the device module."""

import pytest
import torch

from device import DEVICE, module


def test_the_device_is_the_accelerator():
    assert torch.accelerator.current_accelerator() == torch.device(DEVICE)
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == 2


def test_set_device_index_is_seen_by_both():
    torch.accelerator.set_device_index(1)
    assert module.current_device() == 1
    module.set_device(0)
    assert torch.accelerator.current_device_index() == 0


def test_device_index_context_restores_the_device():
    with torch.accelerator.device_index(1):
        assert module.current_device() == 1
    with torch.accelerator.device_index(None):
        assert module.current_device() == 0


def test_set_device_index_refuses_an_index_out_of_range():
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.accelerator.set_device_index(2)


def test_set_device_index_refuses_another_type():
    with pytest.raises(ValueError, match=f"cpu doesn't match the current accelerator {DEVICE}"):
        torch.accelerator.set_device_index("cpu")


def test_synchronize_takes_every_device():
    for device in (None, 1, f"{DEVICE}:0"):
        torch.accelerator.synchronize(device)


def test_capability_lists_common_dtypes():
    dtypes = torch.accelerator.get_device_capability(f"{DEVICE}:0")["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64} <= dtypes


def test_memory_functions_agree():
    tensor = torch.empty(1000, device=f"{DEVICE}:1")
    assert tensor.device.type == DEVICE
    assert torch.accelerator.memory_allocated(1) == module.memory_allocated(1) >= 4000
    assert torch.accelerator.max_memory_allocated(1) == module.max_memory_allocated(1)
    assert torch.accelerator.memory_reserved(1) == module.memory_reserved(1)
    assert torch.accelerator.get_memory_info(1) == module.mem_get_info(1)


def test_memory_statistics_agree():
    generic = torch.accelerator.memory_stats(0)
    ours = module.memory_stats(0)
    assert generic
    assert {name: ours[name] for name in generic} == generic


def test_peak_statistics_can_be_reset():
    del_me = torch.empty(1 << 20, device=DEVICE)
    del del_me
    torch.accelerator.reset_peak_memory_stats(0)
    assert module.max_memory_allocated() == module.memory_allocated()


def test_empty_cache_gives_memory_back():
    del_me = torch.empty(1 << 24, device=DEVICE)
    del del_me
    torch.accelerator.empty_cache()
    assert module.memory_reserved() < 1 << 24


def test_current_stream_agrees():
    stream = torch.Stream(f"{DEVICE}:1")
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_stream(1) == stream
    assert module.current_stream(1).stream_id == stream.stream_id
    assert module.current_device() == 1
