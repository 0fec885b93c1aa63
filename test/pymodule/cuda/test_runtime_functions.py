"""torch.cuda.cudart(): the functions of the CUDA runtime that PyTorch has in Python."""

import ctypes

import pytest
import torch


@pytest.fixture
def cudart():
    return torch.cuda.cudart()


def test_registered_memory_is_pinned(cudart):
    tensor = torch.ones(20)
    assert cudart.cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0) == 0
    assert tensor.is_pinned()
    copy = tensor.to("cuda", non_blocking=True)
    assert cudart.cudaHostUnregister(tensor.data_ptr()) == cudart.cudaError.success
    assert not tensor.is_pinned()
    assert copy.sum().item() == 20


def test_errors_are_those_of_the_runtime(cudart):
    tensor = torch.ones(20)
    torch.cuda.check_error(cudart.cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0))
    again = cudart.cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0)
    torch.cuda.check_error(cudart.cudaHostUnregister(tensor.data_ptr()))
    gone = cudart.cudaHostUnregister(tensor.data_ptr())
    assert (int(again), again.name) == (712, "cudaErrorHostMemoryAlreadyRegistered")
    assert (gone.value, gone.name) == (713, "cudaErrorHostMemoryNotRegistered")
    assert repr(gone) == "<cudaError.cudaErrorHostMemoryNotRegistered: 713>"
    with pytest.raises(torch.cuda.CudaError, match="does not correspond to a registered"):
        torch.cuda.check_error(gone)


def test_number_is_an_error_with_a_text(cudart):
    assert cudart.cudaError(0) == cudart.cudaError.success
    assert cudart.cudaGetErrorString(cudart.cudaError(2)) == "out of memory"
    assert cudart.cudaError(98765).name == "unrecognized error code"


@pytest.mark.parametrize("device", [0, 1])
def test_stream_of_the_runtime_is_an_external_stream(cudart, device):
    handle = ctypes.c_ulonglong(0)
    with torch.cuda.device(device):
        assert cudart.cudaStreamCreate(ctypes.addressof(handle)) == cudart.cudaError.success
    stream = torch.cuda.ExternalStream(handle.value, device=device)
    assert stream.cuda_stream == handle.value != 0
    assert stream.device == torch.device("cuda", device)
    with torch.cuda.stream(stream):
        result = torch.ones(3, device="cuda") + 1
    stream.synchronize()
    assert result.tolist() == [2, 2, 2] and result.get_device() == device
    assert cudart.cudaStreamDestroy(handle.value) == 0


def test_default_stream_is_not_destroyed(cudart):
    assert cudart.cudaStreamDestroy(0).name == "cudaErrorInvalidResourceHandle"


def test_profiler_of_the_runtime_starts_and_stops():
    with torch.cuda.profiler.profile():
        total = torch.ones(3, device="cuda").sum()
    assert total.item() == 3


def test_negative_size_is_refused():
    with pytest.raises(ValueError, match="Invalid memory size: -1024"):
        torch.cuda.caching_allocator_alloc(-1024)


def test_free_memory_is_that_of_the_device(cudart):
    free, total = cudart.cudaMemGetInfo(1)
    assert (free, total) == torch.cuda.mem_get_info(1)
    assert total == torch.cuda.get_device_properties(1).total_memory
