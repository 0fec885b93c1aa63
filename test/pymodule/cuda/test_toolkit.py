"""Libraries with C++ code for CUDA compile without changes on a machine without CUDA's toolkit."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch_openreg
from torch.utils import cpp_extension
from torch_openreg.cuda import toolkit

from device import DEVICE

pytestmark = [
    pytest.mark.usefixtures("first_device"),
    pytest.mark.skipif(DEVICE != "cuda", reason="openreg mode has no CUDA to compile for"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="extensions need a compiler"),
]

SOURCE = Path(__file__).parent / "toolkit_program.cpp"
FOLDER = Path(torch_openreg.__file__).parent / "toolkit"
REFUSED = (
    "openreg has no compiler for CUDA kernels. Set CUDA_HOME to the folder of a CUDA toolkit, or "
    "to nothing (CUDA_HOME=) to build a library without its kernels."
)


def run(code, folder, **variables):
    """Run Python code as on a machine that has no toolkit but openreg's."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"CUDA_HOME": str(FOLDER), "MAX_JOBS": "1"} | variables,
        capture_output=True,
        text=True,
    )


# ---- what compiles -------------------------------------------------------------------------------

# As packages write it: nothing names openreg.
SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="toolkit_program",
    ext_modules=[
        CUDAExtension(
            "toolkit_program",
            ["toolkit_program.cpp"],
            extra_compile_args={"cxx": ["-O0", "-g0", "-w"], "nvcc": ["-O3"]},
        )
    ],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Compile the extension as `pip install` does, and import it."""
    folder = tmp_path_factory.mktemp("extension")
    (folder / "setup.py").write_text(SETUP)
    shutil.copy(SOURCE, folder)
    build = "import runpy, sys; sys.argv = ['setup.py', '-q', 'build_ext', '--inplace']; "
    result = run(build + "runpy.run_path('setup.py', run_name='__main__')", folder)
    assert result.returncode == 0, result.stderr[-4000:]
    (library,) = folder.glob("toolkit_program*.so")
    spec = importlib.util.spec_from_file_location("toolkit_program", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_devices(program):
    count = torch.cuda.device_count()
    assert program.counts() == [count, count, count, True]
    assert program.devices_in_guards(1) == [1, 0, 0]


def test_runtime_is_that_of_the_headers(program):
    version = program.version()
    assert version in (12080, 13000)
    if torch.version.cuda is not None:
        assert version // 1000 == int(torch.version.cuda.partition(".")[0])


def test_streams(program):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        before, inside, after, made = program.streams_in_guards()
    assert before == after == stream.cuda_stream
    assert inside == made != before
    assert torch.cuda.ExternalStream(made).priority < 0


def test_events(program, close_gate):
    side = torch.cuda.Stream()
    gate = close_gate(side)
    assert not program.wait_for(side.cuda_stream)
    assert not torch.cuda.current_stream().query()
    gate.open()
    torch.cuda.current_stream().synchronize()
    assert program.wait_for(side.cuda_stream)


def test_memory(program):
    values = torch.zeros(5, dtype=torch.int32, device="cuda")
    program.fill(values, 1)
    assert values.tolist() == [0x01010101] * 5
    assert program.allocated_by(3 << 20) == 3 << 20


def test_history(program):
    program.record_history(True)
    try:
        tensor = torch.empty(1000, device="cuda")
        (trace, *_) = torch.cuda.memory._snapshot()["device_traces"]
        assert tensor.data_ptr() in [event.get("addr") for event in trace]
    finally:
        program.record_history(False)


INLINE = """
import json, sys, torch
from torch.utils.cpp_extension import load_inline

source = '''
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

TORCH_LIBRARY(openreg_inline, m) {
  m.def("warp_size() -> int", [] { return int64_t{at::cuda::warp_size()}; });
  m.def("stream() -> int",
        [] { return reinterpret_cast<int64_t>(c10::cuda::getCurrentCUDAStream().stream()); });
}
'''
load_inline(
    "openreg_inline",
    source,
    extra_cflags=["-O0", "-g0", "-w"],
    with_cuda=True,
    is_python_module=False,
    no_implicit_headers=True,
    build_directory=sys.path[0] or ".",
)
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    found = torch.ops.openreg_inline.stream()
print(json.dumps([torch.ops.openreg_inline.warp_size(), found == stream.cuda_stream]))
"""


@pytest.mark.skipif(shutil.which("ninja") is None, reason="PyTorch compiles with ninja")
def test_program_compiles_its_own_source(tmp_path):
    result = run(INLINE, tmp_path)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    assert json.loads(result.stdout.splitlines()[-1]) == [32, True]


# ---- what is refused -----------------------------------------------------------------------------

KERNEL_SETUP = """
import sys
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

sys.argv = ["setup.py", "-q", "build_ext", "--inplace"]
setup(
    name="kernel",
    ext_modules=[CUDAExtension("kernel", ["kernel.cu"])],
    cmdclass={{"build_ext": BuildExtension.with_options(use_ninja={ninja})}},
)
"""
KERNELS = {
    "load": """
from torch.utils.cpp_extension import load
load("kernel", ["kernel.cu"], build_directory=".")
""",
    "load for CUDA": """
from torch.utils.cpp_extension import load
load("kernel", ["kernel.cu"], build_directory=".", with_cuda=True)
""",
    "load_inline": """
from torch.utils.cpp_extension import load_inline
load_inline("kernel", "int f();", cuda_sources="int f() { return 1; }", build_directory=".")
""",
    "setup.py": KERNEL_SETUP.format(ninja=False),
    "setup.py with ninja": KERNEL_SETUP.format(ninja=True),
}


@pytest.mark.parametrize("way", KERNELS)
def test_kernels_are_refused(way, tmp_path):
    (tmp_path / "kernel.cu").write_text("int f() { return 1; }\n")
    result = run(KERNELS[way], tmp_path)
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("RuntimeError: openreg: cannot compile ")
    assert ".cu: " + REFUSED in last
    assert not list(tmp_path.glob("**/*.o"))


def test_nvcc_knows_its_version_and_refuses_kernels():
    nvcc = FOLDER / "bin" / "nvcc"
    for option in ("-V", "--version"):
        text = subprocess.run([nvcc, option], check=True, capture_output=True, text=True).stdout
        assert "release 13.0, " in text or "release 12.8, " in text
    result = subprocess.run(
        [nvcc, "-O2", "-c", "a.cu", "-o", "a.o"], capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"openreg: cannot compile a.cu: {REFUSED}\n"


# ---- which toolkit -------------------------------------------------------------------------------


class Module:
    """torch.utils.cpp_extension on a machine with or without a toolkit."""

    def __init__(self, home, found):
        self.CUDA_HOME = home
        self._find_cuda_home = lambda: found


@pytest.mark.parametrize(
    ("variable", "home", "found", "expected"),
    [
        (None, None, None, str(FOLDER)),  # no toolkit
        (None, None, "/opt/cuda", "/opt/cuda"),  # a CPU build does not look for the one it has
        (None, "/opt/cuda", "/opt/cuda", "/opt/cuda"),  # a CUDA build does
        ("/opt/cuda", None, "/opt/cuda", "/opt/cuda"),
        ("", None, "/opt/cuda", None),  # chosen: build without kernels
        ("", None, None, None),
    ],
)
def test_toolkit_of_the_machine_is_preferred(monkeypatch, variable, home, found, expected):
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_HOME", variable)
    assert toolkit._cuda_home(Module(home, found)) == expected


def test_folders_stand_behind_those_of_a_toolkit(tmp_path):
    code = """
import json
from torch.utils import cpp_extension as c
print(json.dumps([c.CUDA_HOME, c.include_paths("cuda"), c.library_paths("cuda"), c.include_paths(),
                  c._is_cuda_file("kernel.cu")]))
"""
    home = tmp_path / "cuda"
    (home / "lib64").mkdir(parents=True)
    result = run(code, tmp_path, CUDA_HOME=str(home))
    chosen, headers, libraries, host_headers, is_kernel = json.loads(result.stdout)
    assert (chosen, is_kernel) == (str(home), True)
    assert headers[-2:] == [str(home / "include"), str(FOLDER / "include")]
    assert libraries[-2:] == [str(home / "lib64"), str(FOLDER / "lib64")]
    assert host_headers == cpp_extension.include_paths()
    assert str(FOLDER / "include") not in host_headers


def test_program_that_looks_for_the_module_first(tmp_path):
    code = """
import importlib.util
assert importlib.util.find_spec("torch.utils.cpp_extension").name == "torch.utils.cpp_extension"
from torch.utils.cpp_extension import CUDA_HOME, _is_cuda_file
print(CUDA_HOME)
_is_cuda_file("kernel.cu")
"""
    result = run(code, tmp_path)
    assert result.stdout == f"{FOLDER}\n"
    assert f"openreg: cannot compile kernel.cu: {REFUSED}" in result.stderr
