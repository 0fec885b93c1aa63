"""CUDA mode maps no CUDA library of PyTorch or NVIDIA, also where PyTorch was built with CUDA."""

import os
import subprocess
import sys

import pytest
import torch

from device import DEVICE

LIBRARIES = os.path.join(os.path.dirname(torch.__file__), "lib")
HAS_CUDA_BUILD = os.path.exists(os.path.join(LIBRARIES, "libtorch_cuda.so"))

pytestmark = pytest.mark.skipif(DEVICE != "cuda", reason="in openreg mode PyTorch loads its own")


def mapped_libraries():
    with open("/proc/self/maps") as maps:
        return {line.split()[-1] for line in maps if ".so" in line}


def test_no_cuda_library_of_pytorch_or_nvidia_is_mapped():
    torch.ones(3, device=DEVICE).sum().item()
    names = {os.path.basename(path) for path in mapped_libraries()}
    assert not [path for path in mapped_libraries() if "/nvidia/" in path]
    assert not names & {"libtorch_cuda.so", "libc10_cuda.so", "libtorch_cuda_linalg.so"}
    assert not [name for name in names if name.startswith(("libcudart", "libcupti", "libcudnn"))]


@pytest.mark.skipif(not HAS_CUDA_BUILD, reason="this PyTorch was built without CUDA")
def test_stand_ins_are_mapped_if_pytorch_was_built_with_cuda():
    names = {os.path.basename(path) for path in mapped_libraries()}
    assert {"openreg_c10_cuda.so", "openreg_torch_cuda.so"} <= names


@pytest.mark.skipif(not HAS_CUDA_BUILD, reason="this PyTorch was built without CUDA")
def test_a_stub_raises_the_name_of_its_function():
    library = next(path for path in mapped_libraries() if "openreg_torch_cuda" in path)
    code = f"""
import ctypes, torch
ctypes.CDLL({library!r})["_ZN2at4cuda24getCurrentCUDABlasHandleEb"]()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode != 0
    assert (
        "openreg: at::cuda::getCurrentCUDABlasHandle(bool) is a part of PyTorch's CUDA build that "
        "openreg does not simulate" in result.stderr
    )
