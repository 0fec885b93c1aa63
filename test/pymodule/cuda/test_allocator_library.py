"""A library of the program that allocates with the CUDA runtime serves PyTorch's tensors."""

import ctypes
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
import torch
import torch_openreg

from device import DEVICE

pytestmark = [
    pytest.mark.usefixtures("first_device"),
    pytest.mark.skipif(DEVICE != "cuda", reason="only CUDA mode loads the CUDA runtime"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="the library needs a compiler"),
]

TOOLKIT = Path(torch_openreg.__file__).parent / "toolkit"
MIB = 1 << 20

# As programs for GPUs write it: nothing names openreg.
SOURCE = """
#include <cuda_runtime_api.h>

int allocations, frees;

void *allocate(size_t size, int device, cudaStream_t stream) {
  void *memory = NULL;
  (void)stream;
  allocations++;
  cudaSetDevice(device);
  return cudaMalloc(&memory, size) == cudaSuccess ? memory : NULL;
}
void *allocate_managed(size_t size, int device, cudaStream_t stream) {
  void *memory = NULL;
  (void)stream;
  allocations++;
  cudaSetDevice(device);
  return cudaMallocManaged(&memory, size, cudaMemAttachGlobal) == cudaSuccess ? memory : NULL;
}
void release(void *memory, size_t size, int device, cudaStream_t stream) {
  (void)size, (void)device, (void)stream;
  frees++;
  cudaFree(memory);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("allocator")
    (folder / "allocator.c").write_text(SOURCE)
    built = folder / "allocator.so"
    subprocess.run(
        [
            *("cc", "-shared", "-fPIC", "-Wall", "-Werror", f"-I{TOOLKIT / 'include'}"),
            *("-o", built, folder / "allocator.c", f"-L{TOOLKIT / 'lib64'}", "-lcudart"),
        ],
        check=True,
    )
    return str(built)


def counts(library):
    torch.cuda.memory.CUDAPluggableAllocator(library, "allocate", "release")  # loads the runtime
    loaded = ctypes.CDLL(library)
    return [ctypes.c_int.in_dll(loaded, name).value for name in ("allocations", "frees")]


@pytest.mark.parametrize("function", ["allocate", "allocate_managed"])
@pytest.mark.parametrize("index", [0, 1])
def test_a_pool_takes_its_memory_from_the_library(library, function, index):
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, function, "release")
    allocations, frees = counts(library)
    with torch.cuda.device(index):
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.arange(100, device="cuda")
        assert counts(library) == [allocations + 1, frees]
        assert tensor.device.index == index
        assert torch.equal(tensor.cpu(), torch.arange(100))
        del pool, allocator  # the tensor keeps both
        assert counts(library) == [allocations + 1, frees]
        del tensor
        torch.cuda.empty_cache()
        assert counts(library) == [allocations + 1, frees + 1]
        assert torch.cuda.mem_get_info()[0] == free


def test_the_host_accesses_a_tensor_in_managed_memory(library):
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "allocate_managed", "release")
    pool = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.arange(4, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    values = (ctypes.c_int32 * 4).from_address(tensor.data_ptr())
    assert list(values) == [0, 1, 2, 3]
    values[0] = 7
    assert tensor.tolist() == [7, 1, 2, 3]


def test_the_library_serves_the_whole_program(library, python):
    result = python(
        textwrap.dedent(
            f"""
            import ctypes, torch
            allocator = torch.cuda.memory.CUDAPluggableAllocator(
                {library!r}, "allocate", "release")
            torch.cuda.memory.change_current_allocator(allocator)
            assert torch.cuda.get_allocator_backend() == "pluggable"
            x = torch.ones(1000, device="cuda:1")
            assert (x + x).sum().item() == 2000
            assert x.device.index == 1
            del x
            torch.cuda.synchronize(1)
            loaded = ctypes.CDLL({library!r})
            given, freed = (ctypes.c_int.in_dll(loaded, name).value
                            for name in ("allocations", "frees"))
            print(given >= 3, given == freed, torch.cuda.mem_get_info(1)[0] > 0)
            """
        )
    )
    assert result.stdout.split() == ["True"] * 3
