"""The functions for CUDA in PyTorch's stable interface, as an extension calls them."""

import ctypes
from pathlib import Path

import pytest
import torch
import torch_openreg

from device import DEVICE, MIB

pytestmark = pytest.mark.skipif(DEVICE != "cuda", reason="functions of CUDA need CUDA mode")

LIBRARIES = Path(torch_openreg.__file__).parent / "lib"


@pytest.fixture(scope="module")
def stable():
    torch.cuda.init()
    for name in ("openreg_cudart_12", "openreg_cudart_13", "openreg_c10_cuda"):
        ctypes.CDLL(str(LIBRARIES / f"{name}.so"))
    return ctypes.CDLL(str(LIBRARIES / "openreg_torch_cuda.so"))


@pytest.fixture(autouse=True)
def first_device():
    torch.cuda.set_device(0)
    yield
    torch.cuda.set_device(0)
    torch.cuda.set_stream(torch.cuda.default_stream())


def current(stable, device=0):
    stream = ctypes.c_void_p()
    assert stable.aoti_torch_get_current_cuda_stream(device, ctypes.byref(stream)) == 0
    return stream.value or 0


def test_the_current_stream(stable):
    assert current(stable) == torch.cuda.current_stream().cuda_stream
    with torch.cuda.stream(torch.cuda.Stream()):
        own = torch.cuda.current_stream().cuda_stream
        assert current(stable) == own != 0
    assert current(stable, 1) == torch.cuda.current_stream(1).cuda_stream


def test_streams_from_the_pool(stable):
    stream = ctypes.c_void_p()
    assert stable.torch_get_cuda_stream_from_pool(True, 0, ctypes.byref(stream)) == 0
    assert stable.torch_set_current_cuda_stream(stream, 0) == 0
    assert torch.cuda.current_stream().cuda_stream == stream.value
    result = torch.ones(1000, device="cuda") * 2
    assert stable.torch_cuda_stream_synchronize(stream, 0) == 0
    assert torch.cuda.current_stream().query()
    assert result.sum().item() == 2000


def test_guards(stable):
    guard = ctypes.c_void_p()
    assert stable.aoti_torch_create_cuda_guard(1, ctypes.byref(guard)) == 0
    assert torch.cuda.current_device() == 1
    assert stable.aoti_torch_cuda_guard_set_index(guard, 0) == 0
    assert torch.cuda.current_device() == 0
    assert stable.aoti_torch_delete_cuda_guard(guard) == 0
    assert torch.cuda.current_device() == 0
    stream = torch.cuda.Stream(1)
    handle = ctypes.c_void_p(stream.cuda_stream)
    assert stable.aoti_torch_create_cuda_stream_guard(handle, 1, ctypes.byref(guard)) == 0
    assert torch.cuda.current_device() == 1
    assert torch.cuda.current_stream() == stream
    assert stable.aoti_torch_delete_cuda_stream_guard(guard) == 0
    assert torch.cuda.current_device() == 0


def test_memory(stable):
    before = torch.cuda.memory_allocated()
    block = ctypes.c_void_p()
    allocate = stable.aoti_torch_cuda_caching_allocator_raw_alloc
    assert allocate(ctypes.c_uint64(MIB), ctypes.byref(block)) == 0
    assert torch.cuda.memory_allocated() - before == MIB
    assert stable.aoti_torch_cuda_caching_allocator_raw_delete(block) == 0
    assert torch.cuda.memory_allocated() == before


def test_errors(stable):
    message = ctypes.c_char_p()
    check = stable.torch_c10_cuda_check_msg
    assert check(0, b"file", b"function", 1, True, ctypes.byref(message)) == 0
    assert message.value is None
    assert check(101, b"file", b"function", 1, True, ctypes.byref(message)) == 1
    assert b"CUDA error: invalid device ordinal" in message.value
    stable.torch_c10_cuda_free_error_msg(message)
    assert stable.torch_get_cuda_stream_from_pool(False, 1000, ctypes.byref(message)) == 1
