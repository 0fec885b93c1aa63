"""A compiled kernel is launched on the stream, after the work before it."""

import ctypes
import threading

import pytest
import torch
from torch_openreg._C import CompiledKernel, compiled_launches, empty_strided

from device import DEVICE, module

WORDS = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint64))


_functions = []  # kept alive while work may call them


def kernel_of(kinds, function):
    """Return a kernel in Python that records when and on which thread it ran."""
    _functions.append(WORDS(function))
    address = ctypes.cast(_functions[-1], ctypes.c_void_p).value
    return CompiledKernel(address, kinds, "a_kernel")


def kernels_float(word):
    return ctypes.c_float.from_address(word)


def doubled(words):
    kernels_float(words[1]).value = 2 * kernels_float(words[0]).value


def test_kernel_computes_on_device_memory():
    source, result = torch.tensor([3.5], device=DEVICE), torch.zeros(1, device=DEVICE)
    kernel = kernel_of("rw", doubled)
    kernel(source, result)
    assert result.item() == 7
    assert kernel.launches == 1
    assert kernel.name == "a_kernel"


def test_numbers_are_words():
    seen = []
    source = torch.zeros(1, device=DEVICE)
    kernel = kernel_of("iifr", lambda words: seen.extend(words[i] for i in range(3)))
    kernel(5, -1, 1.5, source)
    module.synchronize()
    assert seen[:2] == [5, 2**64 - 1]
    assert ctypes.c_float.from_buffer(ctypes.c_uint32(seen[2])).value == 1.5


def test_kernel_on_a_busy_stream_is_queued(close_gate):
    source, result = torch.tensor([3.0], device=DEVICE), torch.zeros(1, device=DEVICE)
    module.synchronize()
    threads = []
    kernel = kernel_of("rw", lambda words: (threads.append(threading.get_ident()), doubled(words)))
    launches = compiled_launches()
    gate = close_gate()
    kernel(source, result)
    assert not threads
    assert compiled_launches() == launches + 1
    gate.open()
    assert result.item() == 6
    assert threads != [threading.get_ident()]


def test_number_of_the_host_counts_as_it_was(close_gate):
    number, result = torch.tensor(3.0), torch.zeros(1, device=DEVICE)
    kernel = kernel_of("rw", doubled)
    module.synchronize()
    gate = close_gate()
    kernel(number, result)
    number.fill_(100)
    gate.open()
    assert result.item() == 6


def test_memory_of_the_host_is_waited_for():
    host, result = torch.tensor([3.0, 4.0]), torch.zeros(1, device=DEVICE)
    kernel = kernel_of("rw", doubled)
    kernel(host, result)
    host.fill_(100)
    assert result.item() == 6


def test_arguments_are_checked():
    kernel = kernel_of("rw", doubled)
    tensor = torch.zeros(1, device=DEVICE)
    with pytest.raises(TypeError, match="a_kernel: expected 2 arguments, got 1"):
        kernel(tensor)
    with pytest.raises(TypeError, match="a_kernel: expected a tensor, got int"):
        kernel(tensor, 5)
    with pytest.raises(TypeError):
        kernel_of("i", doubled)("five")
    with pytest.raises(ValueError, match="the letters r, w, i and f"):
        CompiledKernel(1, "rx", "a_kernel")
    with pytest.raises(ValueError, match="a function's address"):
        CompiledKernel(0, "r", "a_kernel")


def test_tensors_are_of_one_device():
    kernel = kernel_of("rw", doubled)
    with pytest.raises(RuntimeError, match="found at least two devices"):
        kernel(torch.zeros(1, device=f"{DEVICE}:0"), torch.zeros(1, device=f"{DEVICE}:1"))


def test_memory_for_results_is_strided():
    tensor = empty_strided((2, 3), (1, 2), torch.bfloat16, 1)
    assert tensor.device == torch.device(DEVICE, 1)
    assert tensor.stride() == (1, 2)
    assert tensor.shape == (2, 3)
    assert tensor.dtype == torch.bfloat16
    with pytest.raises(TypeError, match="expected a tuple"):
        empty_strided([2], (1,), torch.float, 0)
