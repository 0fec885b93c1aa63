"""Operators of libraries that were built for CUDA run their CPU kernels."""

import ctypes

import pytest
import torch

from device import DEVICE

pytestmark = pytest.mark.skipif(DEVICE != "cuda", reason="in openreg mode no library has kernels")


def refuse(x):
    raise AssertionError("the kernel for CUDA was called")


@pytest.fixture
def load(monkeypatch):
    """Load a library whose operators have these kernels, for the CPU and for CUDA."""
    libraries = []

    def load(namespace, **kernels):
        def register(path):
            library = torch.library.Library(namespace, "DEF")
            library.define("double(Tensor x) -> Tensor")
            for key, kernel in kernels.items():
                library.impl("double", kernel, key)
            libraries.append(library)

        with monkeypatch.context() as patch:
            patch.setattr(ctypes, "CDLL", register)
            torch.ops.load_library(f"{namespace}.so")

    yield load
    for library in libraries:
        library._destroy()


def test_a_library_with_both_kernels_runs_the_one_for_the_cpu(load):
    load("openreg_both", CPU=lambda x: x * 2, CUDA=refuse)
    x = torch.arange(3.0, device=DEVICE)
    result = torch.ops.openreg_both.double(x)
    assert result.device == x.device
    assert result.tolist() == [0, 2, 4]


def test_a_kernel_for_cuda_alone_is_kept(load):
    load("openreg_cuda_alone", CUDA=lambda x: x + x)
    assert torch.ops.openreg_cuda_alone.double(torch.ones(2, device=DEVICE)).tolist() == [2, 2]


def test_kernels_that_a_program_registers_itself_are_kept():
    with torch.library._scoped_library("openreg_program", "DEF") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", refuse, "CPU")
        library.impl("double", lambda x: x + x, "CUDA")
        assert torch.ops.openreg_program.double(torch.ones(2, device=DEVICE)).tolist() == [2, 2]


def test_a_symbol_that_no_library_has_is_named(monkeypatch):
    def fail(path):
        raise OSError(f"{path}: undefined symbol: _ZN2at4cuda5otherEv")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    with (
        pytest.warns(UserWarning, match="openreg: .*lib.so needs _ZN2at4cuda5otherEv, which no"),
        pytest.raises(OSError, match="Could not load"),
    ):
        torch.ops.load_library("lib.so")
