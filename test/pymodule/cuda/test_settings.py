"""Settings of CUDA's libraries, and pinned memory."""

import runpy

import pytest
import torch


@pytest.fixture(autouse=True)
def flags_that_can_be_set():
    """PyTorch's test modules freeze the flags; allow changing them here."""
    with torch.backends.__allow_nonbracketed_mutation():
        yield


@pytest.fixture(autouse=True)
def settings():
    """Restore the settings after every test."""
    places = [
        (torch.backends.cudnn, ("enabled", "benchmark", "deterministic", "benchmark_limit")),
        (torch.backends.cudnn, ("allow_tf32",)),
        (torch.backends.cuda.matmul, ("allow_tf32", "allow_fp16_reduced_precision_reduction")),
        (torch.backends.cuda.matmul, ("allow_bf16_reduced_precision_reduction",)),
    ]
    before = [(place, name, getattr(place, name)) for place, names in places for name in names]
    yield
    for place, name, value in before:
        setattr(place, name, value)


@pytest.mark.parametrize("name", ["enabled", "benchmark", "deterministic", "allow_tf32"])
def test_settings_of_cudnn_are_kept(name):
    for value in (True, False):
        setattr(torch.backends.cudnn, name, value)
        assert getattr(torch.backends.cudnn, name) is value


def test_cudnn_is_not_there():
    assert not torch.backends.cudnn.is_available()
    assert torch.backends.cudnn.version() is None
    torch.backends.cudnn.benchmark_limit = 3
    assert torch.backends.cudnn.benchmark_limit == 3
    with torch.backends.cudnn.flags(enabled=False, benchmark=True):
        assert not torch.backends.cudnn.enabled


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.filterwarnings("error")
def test_recurrent_modules_do_not_warn_of_cudnn(kind):
    module = getattr(torch.nn, kind)(3, 4)
    inputs = torch.randn(2, 1, 3)
    expected = module(inputs)[0]
    torch.testing.assert_close(module.cuda()(inputs.cuda())[0].cpu(), expected)


@pytest.mark.parametrize("benchmark", [True, False])
def test_convolutions_do_not_ask_cudnn(benchmark):
    torch.backends.cudnn.benchmark = benchmark
    module = torch.nn.Conv2d(2, 3, 3)
    inputs = torch.randn(1, 2, 5, 5)
    expected = module(inputs)
    torch.testing.assert_close(module.cuda()(inputs.cuda()).cpu(), expected)


@pytest.mark.parametrize(
    "name",
    [
        "allow_tf32",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    ],
)
def test_settings_of_products_are_kept(name):
    for value in (True, False):
        setattr(torch.backends.cuda.matmul, name, value)
        assert getattr(torch.backends.cuda.matmul, name) is value


def test_precision_of_products_is_kept():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    assert torch.backends.cuda.matmul.allow_tf32
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("name", ["cusolver", "magma"])
def test_library_for_linear_algebra_is_kept(name):
    assert torch.cuda.has_magma
    matrix = torch.eye(3) * 2
    try:
        chosen = torch.backends.cuda.preferred_linalg_library(name)
        assert torch.backends.cuda.preferred_linalg_library() == chosen
        assert name in str(chosen).lower()
        torch.testing.assert_close(torch.linalg.inv(matrix.cuda()).cpu(), torch.linalg.inv(matrix))
    finally:
        torch.backends.cuda.preferred_linalg_library("default")


def test_each_device_has_a_size_of_its_cache_of_plans():
    cache = torch.backends.cuda.cufft_plan_cache
    before = cache[0].max_size, cache[1].max_size
    assert before == (4096, 4096)
    try:
        cache[1].max_size = 7
        assert (cache.max_size, cache["cuda:1"].max_size) == (4096, 7)
        with pytest.raises(RuntimeError, match="must be non-negative, but got -1"):
            cache.max_size = -1
        with pytest.raises(RuntimeError, match="read-only property"):
            cache.size = 3
    finally:
        cache[1].max_size = before[1]


def test_backends_of_cuda_answer():
    assert torch.backends.cuda.is_built()
    assert torch.backends.cuda.cufft_plan_cache[1].size == 0
    assert torch.backends.cuda.preferred_blas_library() is not None
    assert torch.backends.cuda.math_sdp_enabled()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        query = torch.randn(1, 2, 3, 4)
        expected = torch.nn.functional.scaled_dot_product_attention(query, query, query)
        found = torch.nn.functional.scaled_dot_product_attention(*[query.cuda()] * 3)
        torch.testing.assert_close(found.cpu(), expected)


def test_settings_of_tunable_operators_are_kept():
    tunable = torch.cuda.tunable
    assert (tunable.is_enabled(), tunable.tuning_is_enabled()) == (False, True)
    tunable.enable()
    tunable.set_max_tuning_duration(7)
    tunable.set_max_tuning_iterations(8)
    tunable.set_filename("tuned.csv", insert_device_ordinal=True)
    assert tunable.is_enabled() and tunable.get_filename() == "tuned0.csv"
    assert (tunable.get_max_tuning_duration(), tunable.get_max_tuning_iterations()) == (7, 8)
    left, right = torch.randn(3, 4), torch.randn(4, 2)
    torch.testing.assert_close((left.cuda() @ right.cuda()).cpu(), left @ right)
    assert tunable.get_results() == () and not tunable.read_file("tuned.csv")
    tunable.enable(False)


# ---- pinned memory -------------------------------------------------------------------------------


def test_pinned_tensor_is_pinned():
    tensor = torch.arange(3.0)
    pinned = tensor.pin_memory()
    assert pinned.is_pinned() and not tensor.is_pinned()
    assert pinned.cuda(non_blocking=True).tolist() == [0.0, 1.0, 2.0]
    assert torch.empty(2, pin_memory=True).is_pinned()


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_a_data_loader_are_pinned(workers):
    data = torch.utils.data.TensorDataset(torch.arange(8.0).reshape(4, 2), torch.arange(4))
    loader = torch.utils.data.DataLoader(
        data, batch_size=2, pin_memory=True, num_workers=workers, multiprocessing_context=None
    )
    rows = []
    for values, labels in loader:
        assert values.is_pinned() and labels.is_pinned()
        rows += values.cuda(non_blocking=True).tolist()
    assert rows == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]


# ---- versions ------------------------------------------------------------------------------------

SAY_VERSIONS = """
import torch
print(torch.version.cuda, torch._C._cuda_getCompiledVersion(), torch.cuda.is_available())
"""


def built_version():
    return runpy.run_path(torch.version.__file__)["cuda"]


def test_the_cpu_build_has_the_version_of_openregs_runtime(python):
    expected = [built_version() or "13.0", "13000", "True"]
    assert python(SAY_VERSIONS, fresh=True).stdout.split() == expected


def test_the_builds_version_can_be_asked_for(python):
    result = python(SAY_VERSIONS, fresh=True, OPENREG_CUDA_VERSION="none")
    assert result.stdout.split() == [str(built_version()), "13000", "True"]


def test_version_of_cuda_is_the_one_that_is_asked_for(python):
    result = python(SAY_VERSIONS, fresh=True, OPENREG_CUDA_VERSION="12.8")
    assert result.stdout.split() == ["12.8", "12080", "True"]


@pytest.mark.parametrize("version", ["12", "12.8.1", "new"])
def test_invalid_versions_are_refused(python, version):
    needs_devices = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    result = python(needs_devices, fresh=True, OPENREG_CUDA_VERSION=version, expect=1)
    assert f"OPENREG_CUDA_VERSION={version}: expected a CUDA version" in result.stderr


# ---- workspaces of cuBLAS ------------------------------------------------------------------------


WORKSPACES = """
import torch
size, reset = torch.backends.cuda.{0}_workspace_size, torch._C._cuda_reset{1}WorkspaceSize
default = size()
a = torch.ones(8, 8, device="cuda")
product = torch.empty(8, 8, device="cuda")

def held():
    before = torch.cuda.memory_allocated()
    torch.mm(a, a, out=product)
    return torch.cuda.memory_allocated() - before
"""


needs_sizes_of_workspaces = pytest.mark.skipif(
    not hasattr(torch.backends.cuda, "cublas_workspace_size"),
    reason="this release of PyTorch has no functions for the sizes of cuBLAS workspaces",
)


@needs_sizes_of_workspaces
@pytest.mark.own_processes
@pytest.mark.parametrize("library", ["cublas Cublas", "cublaslt CublasLt"])
def test_sizes_of_workspaces_are_kept(python, library):
    python(
        WORKSPACES.format(*library.split())
        + """
assert size(1 << 20) == size() == 1 << 20
reset()
assert size() == default > 0
try:
    size(-1)
except RuntimeError as error:
    assert "must be non-negative" in str(error)
else:
    raise AssertionError
"""
    )


@needs_sizes_of_workspaces
@pytest.mark.own_processes
def test_workspace_that_is_too_small_is_replaced(python):
    python(
        WORKSPACES.format("cublas", "Cublas")
        + """
size(1 << 20)
assert held() == 1 << 20
size(1 << 19)
assert held() == 0  # the larger one stays
size(1 << 21)
assert held() == 1 << 20
""",
        OPENREG_GPU_OVERHEAD="1",
    )
