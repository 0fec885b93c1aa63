"""The CUDA runtime's libraries act on the devices, streams and memory of PyTorch in the process."""

import ctypes
import os
import subprocess
import threading
from pathlib import Path

import pytest
import torch
import torch_openreg
from modes import cuda_only, needs_openregs_sonames
from torch_openreg.cuda.bundled_libraries import load_stand_ins

from device import DEVICE

LIBRARIES = Path(torch_openreg.__file__).parent / "lib"
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
NOT_SUPPORTED, INVALID_DEVICE = 801, 101

# SONAMEs, and functions that fail.
STAND_INS = {
    "openreg_cupti_13": ("libcupti.so.13", ["cuptiActivityGetNextRecord"]),
    "openreg_cupti_12": ("libcupti.so.12", ["cuptiActivityGetNextRecord"]),
    "openreg_cufile": ("libcufile.so.0", ["cuFileHandleRegister", "cuFileRead"]),
    "openreg_cudnn": ("libcudnn.so.9", ["cudnnGetProperty"]),
    "openreg_nccl": ("libnccl.so.2", ["ncclDevCommDestroy"]),
}


@pytest.fixture(params=[12, 13])
def cudart(request):
    library = ctypes.CDLL(str(LIBRARIES / f"openreg_cudart_{request.param}.so"))
    library.openreg_cudart_sentence.restype = ctypes.c_char_p
    library.major = request.param
    return library


def sentence(cudart, error):
    return cudart.openreg_cudart_sentence(error).decode()


def address(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


@needs_openregs_sonames
def test_version_and_soname(cudart):
    version = ctypes.c_int()
    assert cudart.cudaRuntimeGetVersion(ctypes.byref(version)) == 0
    assert version.value // 1000 == cudart.major
    found = ctypes.CDLL(f"libcudart.so.{cudart.major}")
    assert found._handle == cudart._handle


def test_devices_are_pytorchs(cudart):
    count, device = ctypes.c_int(), ctypes.c_int()
    assert cudart.cudaGetDeviceCount(ctypes.byref(count)) == 0
    assert count.value == torch.accelerator.device_count()
    with torch.accelerator.device_index(1):
        assert cudart.cudaGetDevice(ctypes.byref(device)) == 0
        assert device.value == 1


def test_copies_reach_tensors(cudart):
    tensor = torch.arange(1000, dtype=torch.int32, device=DEVICE)
    host = torch.zeros(1000, dtype=torch.int32)
    assert cudart.cudaMemcpy(address(host), address(tensor), 4000, DEVICE_TO_HOST) == 0
    assert torch.equal(host, tensor.cpu())
    host += 1
    assert cudart.cudaMemcpy(address(tensor), address(host), 4000, HOST_TO_DEVICE) == 0
    assert torch.equal(host, tensor.cpu())


def test_memory_counts_for_the_device_and_not_for_the_cache(cudart):
    free, total, memory = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
    torch.empty(1, device=DEVICE)
    assert cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    before, cached = free.value, torch.accelerator.memory_reserved()
    assert cudart.cudaMalloc(ctypes.byref(memory), 3 << 20) == 0
    assert cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    assert before - free.value == 4 << 20
    assert torch.accelerator.memory_reserved() == cached
    assert cudart.cudaFree(memory) == 0


def test_registered_memory_is_pinned(cudart):
    torch.zeros(1).pin_memory()  # before that, PyTorch says that nothing is pinned
    tensor = torch.zeros(1000)
    assert not tensor.is_pinned()
    assert cudart.cudaHostRegister(address(tensor), ctypes.c_size_t(4000), 0) == 0
    assert tensor.is_pinned()
    assert cudart.cudaHostUnregister(address(tensor)) == 0
    assert not tensor.is_pinned()


@cuda_only("torch.Stream has no cuda_stream")
def test_a_stream_is_the_same_for_both(cudart):
    stream = torch.cuda.Stream()
    handle = ctypes.c_void_p(stream.cuda_stream)
    started, opened = threading.Event(), threading.Event()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def hold(_):
        started.set()
        opened.wait()

    assert cudart.cudaLaunchHostFunc(handle, hold, None) == 0
    started.wait()
    assert not stream.query()
    opened.set()
    stream.synchronize()
    assert cudart.cudaStreamQuery(handle) == 0


@cuda_only("torch.openreg has no ExternalStream")
def test_pytorch_uses_a_stream_of_the_runtime(cudart):
    handle = ctypes.c_void_p()
    assert cudart.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
    stream = torch.cuda.ExternalStream(handle.value)
    with torch.cuda.stream(stream):
        total = torch.ones(100, device=DEVICE).sum()
    assert cudart.cudaStreamSynchronize(handle) == 0
    assert total.item() == 100
    assert cudart.cudaStreamDestroy(handle) == 0


def test_errors_have_a_sentence(cudart):
    cudart.cudaGetLastError()
    assert cudart.cudaSetDevice(1000) == INVALID_DEVICE
    assert cudart.cudaGetLastError() == INVALID_DEVICE
    assert cudart.cudaGetLastError() == 0
    assert "1000" in sentence(cudart, INVALID_DEVICE)
    assert sentence(cudart, NOT_SUPPORTED) == ""


def test_a_launch_names_the_kernel(cudart, capfd):
    stub = ctypes.create_string_buffer(1)
    name = ctypes.c_char_p(b"_Z3addIfEvPT_i")
    register_module = cudart["__cudaRegisterFatBinary"]
    register_module.restype = ctypes.c_void_p
    module = ctypes.c_void_p(register_module(None))
    register = cudart["__cudaRegisterFunction"]
    register(module, stub, name, name, -1, None, None, None, None, None)
    launch = cudart.cudaLaunchKernelExC
    assert launch(None, stub, None) == NOT_SUPPORTED
    assert "the CUDA kernel void add<float>(float*, int) was not launched" in sentence(
        cudart, NOT_SUPPORTED
    )
    assert launch(None, stub, None) == NOT_SUPPORTED
    assert capfd.readouterr().err.count("add<float>") == 1
    cudart["__cudaUnregisterFatBinary"](module)


@needs_openregs_sonames
@pytest.mark.parametrize("name", STAND_INS)
def test_stand_ins_are_found_by_soname_and_fail(name):
    soname, functions = STAND_INS[name]
    library = ctypes.CDLL(str(LIBRARIES / f"{name}.so"))
    assert ctypes.CDLL(soname)._handle == library._handle
    for function in functions:
        value = ctypes.c_int()
        assert getattr(library, function)(0, ctypes.byref(value)) != 0


def test_headers_compile_a_program(cudart, tmp_path):
    headers = Path(__file__).parents[3] / "cudart" / "include"
    source, program = tmp_path / "program.c", tmp_path / "program"
    page = (headers.parents[1] / "docs" / "cuda-runtime.md").read_text()
    source.write_text(page.split("```c\n")[1].split("```")[0])
    version = {12: 12080, 13: 13000}[cudart.major]
    library = LIBRARIES / f"openreg_cudart_{cudart.major}.so"
    subprocess.run(
        ["cc", "-Wall", "-Wextra", "-Werror", f"-DCUDART_VERSION={version}", f"-I{headers}"]
        + [source, library, f"-Wl,-rpath-link,{LIBRARIES}", "-o", program],
        check=True,
    )
    # The program needs the library by its SONAME, and finds it because it is loaded already.
    subprocess.run([program], check=True, env=os.environ | {"LD_PRELOAD": str(library)})


@needs_openregs_sonames
def test_libraries_that_wheels_bring_are_replaced(cudart, tmp_path):
    bundled = f"libcudart.0123abcd.so.{cudart.major}"
    for name in (bundled, "libjpeg.0123abcd.so.8", "libcudart.so.13", "libcudart.0123abcd.so.9"):
        (tmp_path / name).touch()
    assert load_stand_ins(tmp_path) == [bundled]
    count = ctypes.c_int()
    assert ctypes.CDLL(bundled).cudaGetDeviceCount(ctypes.byref(count)) == 0
    assert count.value == torch.accelerator.device_count()
    assert load_stand_ins(tmp_path / "none") == []


def test_bundled_nvjpeg_fails(tmp_path):
    name = "libnvjpeg.89abcdef.so.13"
    (tmp_path / name).touch()
    assert load_stand_ins(tmp_path) == [name]
    assert ctypes.CDLL(name).nvjpegCreateSimple(None) != 0
