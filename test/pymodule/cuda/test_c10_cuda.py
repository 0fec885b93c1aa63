"""C++ extensions that use PyTorch's CUDA library act on the devices of torch.cuda."""

import ctypes
import importlib.util
import multiprocessing
import os
import subprocess
import sysconfig
import threading
from pathlib import Path

import pytest
import torch
import torch_openreg
from torch_openreg import sanitizer

ROOT = Path(__file__).parents[3]
LIBRARIES = Path(torch_openreg.__file__).parent / "lib"
TORCH = Path(torch.__file__).parent
ALLOC, FREE_REQUESTED, FREE_COMPLETED = 0, 1, 2
LAUNCH_FAILURE = 719


def load(path):
    """Load the libraries that PyTorch's CUDA build loads itself, then the extension."""
    for name in ("openreg_cudart_12", "openreg_cudart_13", "openreg_c10_cuda"):
        ctypes.CDLL(str(LIBRARIES / f"{name}.so"))
    spec = importlib.util.spec_from_file_location("c10_cuda_program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("extension") / "c10_cuda_program.so"
    version = "12080" if str(torch.version.cuda).startswith("12") else "13000"
    cudart = LIBRARIES / f"openreg_cudart_{version[:2]}.so"
    includes = [
        TORCH / "include",
        TORCH / "include" / "torch" / "csrc" / "api" / "include",
        ROOT / "cudart" / "include",
        ROOT / "pymodule" / "stand_ins" / "c10_cuda" / "headers",
        sysconfig.get_path("include"),
    ]
    subprocess.run(
        ["c++", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", "-w"]
        + [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
        + [f"-DCUDART_VERSION={version}"]
        + [f"-I{folder}" for folder in includes]
        + [Path(__file__).parent / "c10_cuda_program.cpp", "-o", path]
        + [LIBRARIES / "openreg_c10_cuda.so", cudart]
        + [f"-L{TORCH / 'lib'}", "-lc10", f"-Wl,-rpath-link,{LIBRARIES}"],
        check=True,
    )
    return path


@pytest.fixture
def program(path):
    torch.cuda.set_device(0)
    yield load(path)
    torch.cuda.set_device(0)


def test_devices(program):
    assert program.device_count() == torch.cuda.device_count()
    program.set_device(1)
    assert torch.cuda.current_device() == 1
    torch.cuda.set_device(0)
    assert program.current_device() == 0
    assert program.with_device(1, torch.cuda.current_device) == 1
    assert program.current_device() == torch.cuda.current_device() == 0
    assert program.has_access(0, 1) == torch.cuda.can_device_access_peer(0, 1)


def test_current_stream(program):
    def current():
        return torch.cuda.current_stream().cuda_stream

    assert program.current_stream(-1) == current() == 0
    stream = torch.cuda.Stream(device=1)
    with torch.cuda.stream(stream):
        assert program.current_stream(1) == program.current_stream(-1) == stream.cuda_stream
    for high_priority in (False, True):
        handle, priority, seen = program.with_pool_stream(high_priority, current)
        assert handle == seen != 0
        assert priority == (-3 if high_priority else 0)
    assert program.current_stream(-1) == 0
    text = program.text_of_current_stream()
    assert text == "stream 0 on device cuda:0"


def test_external_stream(program):
    stream = torch.cuda.Stream(device=0)
    assert program.with_external_stream(stream.cuda_stream, 0, torch.cuda.current_stream) == stream
    with pytest.raises(RuntimeError, match="belongs to device 0, but was given for device 1"):
        program.with_external_stream(stream.cuda_stream, 1, torch.cuda.current_stream)
    assert program.own_stream_of_thread() == program.own_stream_of_thread() != 0


def test_copies_run_on_the_current_stream(program):
    source = torch.arange(1000, device="cuda")
    target, host = torch.zeros_like(source), torch.zeros(1000, dtype=torch.int64)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        program.copy(target.data_ptr(), source.data_ptr(), 8000)
        program.copy(host.data_ptr(), target.data_ptr(), 8000)
    program.synchronize()
    assert program.is_idle()
    assert torch.equal(host, torch.arange(1000))


def test_event_orders_streams(program):
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    cudart = ctypes.CDLL(str(LIBRARIES / "openreg_cudart_13.so"))
    opened = threading.Event()
    hold = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: opened.wait())
    assert cudart.cudaLaunchHostFunc(ctypes.c_void_p(first.cuda_stream), hold, None) == 0
    program.wait_for_event(first.cuda_stream, second.cuda_stream)
    with torch.cuda.stream(second):
        assert not program.is_idle()
        opened.set()
        second.synchronize()
        assert program.is_idle()


@pytest.mark.skipif(os.environ.get("OPENREG_SANITIZER") == "1", reason="it has a race")
@pytest.mark.parametrize("order", ["wait_for_event", "synchronize_with_event", None])
def test_the_sanitizer_sees_events_and_copies(program, order):
    """CUDAEvent and cudaMemcpyAsync reach the CUDA runtime without PyTorch."""
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with sanitizer.watch() as watched:
        source, target = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(first):
            source.add_(1)
        if order == "wait_for_event":
            program.wait_for_event(first.cuda_stream, second.cuda_stream)
        elif order is not None:
            program.synchronize_with_event(first.cuda_stream)
        with torch.cuda.stream(second):
            program.copy(target.data_ptr(), source.data_ptr(), 4000)
            target.add_(1)
        program.synchronize()
        target.add_(1)
    assert [finding.kind for finding in watched.findings()] == ([] if order else ["race"])


def test_raw_memory_is_of_the_caching_allocator(program):
    program.raw_delete(program.raw_alloc(5000))  # frees blocks of earlier tests that waited
    before = torch.cuda.memory_allocated()
    address = program.raw_alloc(5000)
    assert program.allocated_bytes(0) == torch.cuda.memory_allocated() == before + 5120
    torch.cuda.caching_allocator_delete(address)
    other = torch.cuda.caching_allocator_alloc(5000)
    assert other == address
    program.raw_delete(other)
    assert torch.cuda.memory_allocated() == before
    assert program.raw_alloc(0) == 0
    program.raw_delete(0)
    with pytest.raises(RuntimeError, match="invalid device pointer: "):
        program.raw_delete(address)


def test_the_raw_interface_of_the_allocator(program):
    program.raw_deallocate(program.raw_allocate(5000))  # frees blocks of earlier tests
    before = torch.cuda.memory_allocated()
    address = program.raw_allocate(5000)
    assert torch.cuda.memory_allocated() == before + 5120
    torch.cuda.caching_allocator_delete(address)
    other = torch.cuda.caching_allocator_alloc(5000)
    assert other == address
    program.raw_deallocate(other)
    assert torch.cuda.memory_allocated() == before
    assert program.raw_allocate(0) == 0
    with pytest.raises(RuntimeError, match="invalid device pointer: "):
        program.raw_deallocate(address)


def test_memory_has_the_raw_deleter(program):
    assert program.raw_deleters_agree()
    tensor = torch.ones(10, device="cuda")
    empty = torch.UntypedStorage(0, device="cuda")
    others = torch.from_dlpack(tensor).untyped_storage()
    for storage, expected in ((tensor.untyped_storage(), True), (empty, True), (others, False)):
        assert torch._C._has_Standard_Deleter(storage._cdata) == expected


def test_raw_memory_of_a_stream(program):
    stream = torch.cuda.Stream(device=1)
    address = program.raw_alloc_with_stream(512, stream.cuda_stream)
    places = [
        (segment["device"], segment["stream"], block["size"])
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if block["address"] == address
    ]
    assert places == [(1, stream.cuda_stream, 512)]
    assert torch.cuda.current_device() == 0
    assert torch.cuda.current_stream(1) != stream
    program.raw_delete(address)


def test_out_of_memory(program):
    with pytest.raises(RuntimeError, match="CUDA out of memory. Tried to allocate"):
        program.raw_alloc(1 << 50)


def test_limits_and_cache(program):
    program.set_fraction(0.5)
    assert torch.cuda.get_per_process_memory_fraction() == program.get_fraction() == 0.5
    program.set_fraction(1.0)
    with pytest.raises(RuntimeError, match=r"invalid fraction:2. Please set within \[0, 1\]."):
        program.set_fraction(2)
    torch.empty(30 << 20, device="cuda")
    assert torch.cuda.memory_reserved() > torch.cuda.memory_allocated()
    program.empty_cache()
    assert torch.cuda.memory_reserved() <= torch.cuda.memory_allocated() + (2 << 20)


def test_snapshot_and_base(program):
    tensor = torch.empty(1 << 20, device="cuda")
    expected = [
        (segment["device"], segment["address"], segment["total_size"], len(segment["blocks"]))
        for segment in torch.cuda.memory_snapshot()
    ]
    assert sorted(program.segments()) == sorted(expected)
    base, size = program.base_of(tensor.data_ptr())
    assert base <= tensor.data_ptr() < base + size
    assert (0, base, size) in [segment[:3] for segment in expected]


def test_memory_pool(program):
    pool = torch.cuda.MemPool()

    def allocate():
        return torch.empty(1000, device="cuda")

    tensor = program.with_pool(pool.id[1], allocate)
    outside = allocate()
    segments = [segment["address"] for segment in pool.snapshot()]
    assert program.base_of(tensor.data_ptr())[0] in segments
    assert program.base_of(outside.data_ptr())[0] not in segments
    with pytest.raises(ValueError, match="memory pool 1099511627776 does not exist"):
        program.with_pool(1 << 40, allocate)


def test_trackers(program):
    program.track()
    program.tracked()
    tensor = torch.empty(1000, dtype=torch.uint8, device="cuda")
    del tensor
    events = [event for event in program.tracked() if event[0] <= FREE_COMPLETED]
    assert events == [(ALLOC, 1000), (FREE_REQUESTED, 1000), (FREE_COMPLETED, 1000)]


def test_errors(program):
    with pytest.raises(RuntimeError) as raised:
        program.set_device(60)
    text = str(raised.value)
    assert "CUDA error: invalid device ordinal\nGPU device may be out of range" in text
    assert "invalid device ordinal 60" in text or "device 60" in text
    with pytest.raises(RuntimeError, match="Search for `cudaErrorLaunchFailure' in https:"):
        program.fail(LAUNCH_FAILURE)


def test_history_with_a_function_that_gathers_stacks(program):
    gathered = program.record_history(True)
    tensor = torch.empty(1000, device="cuda")
    assert program.record_history(False) > gathered
    del tensor


def import_memory(path, handle, results):
    results.put(load(path).import_and_read(handle, 4))


def test_memory_goes_to_another_process(program, path):
    tensor = torch.tensor([1, 2, 3, 4], dtype=torch.uint8, device="cuda")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    handle = program.export_memory(tensor.data_ptr())
    process = context.Process(target=import_memory, args=(path, handle, results))
    process.start()
    assert results.get(timeout=120) == bytes([1, 2, 3, 4])
    process.join()


def test_memory_can_be_declared_invalid_and_valid_again():
    storage = torch.rand(4, device="cuda").untyped_storage()
    storage.resize_(0)
    torch._C._set_storage_data_ptr_access_error_msg(storage._cdata, "it is gone")
    with pytest.raises(RuntimeError, match="it is gone"):
        storage.data_ptr()
    torch._C._clear_storage_data_ptr_access_error_msg(storage._cdata)
    storage.resize_(16)
    assert storage.data_ptr() != 0
