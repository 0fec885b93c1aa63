"""C++ extensions that use the host functions of PyTorch's CUDA library, compiled without CUDA."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from device import DEVICE

pytestmark = [
    pytest.mark.usefixtures("first_device"),
    pytest.mark.skipif(DEVICE != "cuda", reason="functions of CUDA need CUDA mode"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="extensions need a compiler"),
]

SOURCE = Path(__file__).parent / "host_functions_program.cpp"
ALLOC = 0
GIBIBYTE = 1 << 30

SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension
from torch_openreg.cuda import cpp_extension

setup(
    name="host_functions_program",
    ext_modules=[
        CppExtension(
            "host_functions_program",
            [{source!r}],
            include_dirs=cpp_extension.include_paths(),
            extra_compile_args=["-O0", "-g0", "-w", *cpp_extension.compile_flags()],
            extra_link_args=cpp_extension.link_flags(),
        )
    ],
    cmdclass={{"build_ext": BuildExtension.with_options(use_ninja=False)}},
)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Compile the extension with setuptools, as a package's setup.py does."""
    folder = tmp_path_factory.mktemp("extension")
    (folder / "setup.py").write_text(SETUP.format(source=str(SOURCE)))
    result = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def program(folder):
    sys.path.insert(0, str(folder))
    try:
        import host_functions_program
    finally:
        sys.path.remove(str(folder))
    return host_functions_program


# ---- devices, streams and events -----------------------------------------------------------------


def test_devices(program):
    properties = torch.cuda.get_device_properties(1)
    assert program.properties(1) == (
        properties.name,
        properties.multi_processor_count,
        properties.total_memory,
    )
    assert program.warp_size() == properties.warp_size
    assert program.can_access(0, 1)
    assert not program.has_fabric(0)
    assert program.hooks_see_cuda()


def test_handles_of_libraries_are_refused_by_name(program):
    with pytest.raises(RuntimeError, match=r"openreg: at::cuda::getCurrentCUDABlasHandle\(bool\)"):
        program.blas_handle()
    with pytest.raises(RuntimeError, match=r"openreg: at::cuda::getCurrentCUDASparseHandle\(\)"):
        program.sparse_handle()


def test_streams_and_events(program, close_gate):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert program.current_stream() == stream.cuda_stream
        gate = close_gate()
        was_running, milliseconds = program.milliseconds_of_sleep(20_000_000, gate.open)
    assert was_running
    assert milliseconds >= 10  # two cycles take a nanosecond


# ---- memory --------------------------------------------------------------------------------------


def test_tensors(program):
    tensor = program.empty([2, 3], 1)
    assert (tensor.device, tensor.dtype, tensor.shape) == (
        torch.device("cuda", 1),
        torch.float32,
        (2, 3),
    )
    assert (tensor.fill_(2) + 1).tolist() == [[3, 3, 3], [3, 3, 3]]
    strided = program.empty_strided([2, 3], [1, 2])
    assert (strided.stride(), strided.dtype) == ((1, 2), torch.float16)


def test_allocators(program):
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    address = program.raw_alloc(4096)
    assert torch.cuda.memory_allocated() == before + 4096
    program.raw_delete(address)
    assert torch.cuda.memory_allocated() == before
    assert program.allocator_is_cuda()
    assert program.pinned_bytes(1 << 20) >= 1 << 20


def test_memory_pool(program):
    pool = program.MemPool()
    assert pool.use_count() == 1
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.empty(1 << 20, device="cuda")
    segments = torch.cuda.memory_snapshot(mempool_id=pool.id)
    assert tensor.data_ptr() in [segment["address"] for segment in segments]


def test_workspace_sizes(program):
    sizes = torch._C._cuda_getCublasWorkspaceSize(), torch._C._cuda_getCublasLtWorkspaceSize()
    assert program.workspace_sizes() == sizes
    program.clear_workspaces()


def test_history(program):
    program.record_history("all")
    try:
        assert program.history_is_on()
        tensor = torch.empty(1000, dtype=torch.uint8, device="cuda")
        events = program.history(0)
        assert (ALLOC, tensor.data_ptr(), 1000) in events
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        assert len(trace) == len(events) + 1  # that snapshot was recorded
        assert trace[-1]["action"] == "snapshot"
    finally:
        program.record_history(None)
    assert not program.history_is_on()
    with pytest.raises(RuntimeError, match="expected state to be 'state', 'all', or None"):
        program.record_history("some")
    with pytest.raises(RuntimeError, match="openreg: torch::cuda::_memory_snapshot_pickled"):
        program.pickled()


def test_observers_of_failed_requests(program):
    program.watch_failures()
    request = torch.cuda.get_device_properties(0).total_memory + GIBIBYTE
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(request, dtype=torch.uint8, device="cuda")
    assert program.failures() == [(0, request)]


# ---- random numbers ------------------------------------------------------------------------------


def test_words_of_the_default_generator(program):
    torch.cuda.manual_seed(7)
    assert program.reserve(None, 6) == (7, 0)
    assert program.reserve(None, 4) == (7, 8)  # 6 words take two blocks of 4
    assert torch.cuda.default_generators[0].get_offset() == 12


def test_words_of_another_generator(program):
    generator = program.make_generator(5)
    assert generator.device == torch.device("cuda", 0)
    assert program.reserve(generator, 4) == (5, 0)
    assert program.offset(generator) == generator.get_offset() == 4
    own = torch.Generator("cuda").manual_seed(9)
    assert program.reserve(own, 4) == (9, 0)
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        program.reserve(torch.Generator(), 4)


# ---- graphs --------------------------------------------------------------------------------------


def test_graph(program):
    graph = program.Graph()
    x = torch.ones(100, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        assert graph.is_current()
        y = x + 1
        graph.capture_end()
        x.fill_(5)
        graph.replay()
        torch.cuda.synchronize()
        assert y.eq(6).all().item()
        with pytest.raises(RuntimeError, match="only between capture_begin"):
            graph.is_current()
    assert graph.pool() != (0, 0)
    graph.reset()


def test_each_replay_of_a_graph_has_other_words(program):
    graph = program.Graph()
    target = torch.zeros(1, dtype=torch.int64, pin_memory=True)
    torch.cuda.manual_seed(3)
    seen = []
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        program.reserve_on_stream(4, target)
        program.reserve_on_stream(8, target)
        graph.capture_end()
        for _ in range(2):
            graph.replay()
            torch.cuda.synchronize()
            seen.append(target.item())
    assert seen == [4, 16]
    assert torch.cuda.default_generators[0].get_offset() == 24


# ---- operators -----------------------------------------------------------------------------------


def test_operator_with_a_kernel_for_cuda_that_is_host_code(program):
    values = torch.arange(1000, device="cuda:1")
    result = torch.ops.openreg_host_functions.reversed(values)
    assert result.device == values.device
    assert torch.equal(result.cpu(), torch.arange(1000).flip(0))


def test_imported_module_runs_the_kernel_for_the_cpu(program):
    result = torch.ops.openreg_host_functions.twice(torch.ones(3, device="cuda"))
    assert result.tolist() == [2, 2, 2]


SMALL_SOURCE = """
#include <ATen/cuda/CUDAContextLight.h>
#include <torch/library.h>

int64_t warp_size() { return at::cuda::warp_size(); }
at::Tensor refused(const at::Tensor &) { TORCH_CHECK(false, "the kernel for CUDA was called"); }

TORCH_LIBRARY(openreg_small, m) {
  m.def("warp_size() -> int", &warp_size);
  m.def("twice(Tensor values) -> Tensor");
}
TORCH_LIBRARY_IMPL(openreg_small, CPU, m) {
  m.impl("twice", [](const at::Tensor &values) { return values.add(values); });
}
TORCH_LIBRARY_IMPL(openreg_small, CUDA, m) { m.impl("twice", &refused); }
"""


@pytest.mark.skipif(shutil.which("ninja") is None, reason="PyTorch compiles with ninja")
def test_library_that_is_compiled_when_the_program_runs(tmp_path):
    source = tmp_path / "small.cpp"
    source.write_text(SMALL_SOURCE)
    code = f"""
import torch
from torch.utils.cpp_extension import load
from torch_openreg.cuda import cpp_extension

load(
    "openreg_small",
    [{str(source)!r}],
    extra_include_paths=cpp_extension.include_paths(),
    extra_cflags=["-O0", "-g0", "-w", *cpp_extension.compile_flags()],
    extra_ldflags=cpp_extension.link_flags(),
    build_directory={str(tmp_path)!r},
    is_python_module=False,
)
print(torch.ops.openreg_small.warp_size())
print(torch.ops.openreg_small.twice(torch.ones(2, device="cuda")).tolist())
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.splitlines()[-2:] == ["32", "[2.0, 2.0]"], result.stderr[-4000:]
