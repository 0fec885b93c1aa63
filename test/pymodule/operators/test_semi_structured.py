"""Products with semi-structured sparse matrices, compared with products of dense ones."""

import pytest
import torch
from modes import cuda_only
from torch.sparse._semi_structured_conversions import sparse_semi_structured_from_dense_cutlass

from device import DEVICE, module

DTYPES = (torch.float16, torch.bfloat16, torch.int8)


@pytest.fixture
def ampere(monkeypatch):
    """CUTLASS's products need compute capability 8."""
    monkeypatch.setattr(module, "get_device_capability", lambda device=None: (8, 0))


def sparse_matrix(rows, columns, dtype):
    """Return a matrix on the host with two zeros among each four elements, at random places."""
    torch.manual_seed(0)
    values = torch.randint(1, 5, (rows, columns)).to(dtype)
    places = torch.rand(rows, columns // 4, 4).argsort(-1) < 2
    return values * places.view(rows, columns)


def dense_matrix(rows, columns, dtype):
    """Return a matrix on the host whose columns have no gaps, as products of int8 need it."""
    torch.manual_seed(1)
    return torch.randint(-3, 4, (columns, rows)).to(dtype).t()


def expected(left, right):
    return left.double() @ right.double()


@pytest.mark.parametrize("dtype", DTYPES)
def test_cutlass_product(dtype, ampere):
    left, right = sparse_matrix(64, 128, dtype), dense_matrix(128, 32, dtype)
    elements, meta = sparse_semi_structured_from_dense_cutlass(left.to(DEVICE))
    kind = torch.int32 if dtype == torch.int8 else None
    result = torch._sparse_semi_structured_mm(elements, meta, right.to(DEVICE), out_dtype=kind)
    assert result.dtype == (kind or dtype)
    assert torch.equal(result.double().cpu(), expected(left, right))
    bias = torch.arange(64).to(DEVICE, kind or dtype)
    result = torch._sparse_semi_structured_addmm(
        bias, elements, meta, right.to(DEVICE), alpha=2, beta=3, out_dtype=kind
    )
    wanted = 2 * expected(left, right) + 3 * torch.arange(64)[:, None]
    assert torch.equal(result.cpu(), wanted.to(kind or dtype))


def test_cutlass_checks_sizes_and_dtypes(ampere):
    elements, meta = sparse_semi_structured_from_dense_cutlass(
        sparse_matrix(64, 128, torch.float16).to(DEVICE)
    )
    with pytest.raises(RuntimeError, match="Expected mat1 argument to have 32 columns, but got 64"):
        torch._sparse_semi_structured_mm(
            elements, meta, dense_matrix(64, 8, torch.float16).to(DEVICE)
        )
    with pytest.raises(RuntimeError, match=r"Expected mat1 datatype torch.bfloat16, but got"):
        torch._sparse_semi_structured_mm(
            elements, meta, dense_matrix(128, 8, torch.bfloat16).to(DEVICE)
        )


def test_cutlass_linear(ampere):
    left, x = sparse_matrix(64, 128, torch.float16), dense_matrix(128, 6, torch.float16)
    elements, meta = sparse_semi_structured_from_dense_cutlass(left.to(DEVICE))
    bias = torch.arange(-32, 32).to(DEVICE, torch.float16)
    x = x.t().reshape(2, 3, 128)
    result = torch._sparse_semi_structured_linear(
        x.to(DEVICE), elements, meta, bias=bias, activation="relu"
    )
    wanted = torch.nn.functional.linear(x.float(), left.float(), bias.cpu().float()).relu()
    assert torch.equal(result.cpu().float(), wanted)


def test_int8_needs_columns_without_gaps(ampere):
    left, right = sparse_matrix(64, 128, torch.int8), dense_matrix(128, 32, torch.int8)
    elements, meta = sparse_semi_structured_from_dense_cutlass(left.to(DEVICE))
    rows = right.contiguous().to(DEVICE)
    with pytest.raises(RuntimeError, match="row-major and row-major layouts"):
        torch._sparse_semi_structured_mm(elements, meta, rows)
    with pytest.raises(RuntimeError, match="operation not supported when calling `cusparseLt"):
        torch._cslt_sparse_mm(torch._cslt_compress(left.to(DEVICE)), rows)


def test_cutlass_needs_its_compute_capability():
    elements, meta = sparse_semi_structured_from_dense_cutlass(
        sparse_matrix(64, 128, torch.float16).to(DEVICE)
    )
    with pytest.raises(RuntimeError, match="Supported only on GPUs with compute capability 8.x"):
        torch._sparse_semi_structured_mm(
            elements, meta, dense_matrix(128, 8, torch.float16).to(DEVICE)
        )


@pytest.mark.parametrize("dtype", (*DTYPES, torch.float8_e4m3fn))
@pytest.mark.parametrize("transposed", [False, True])
def test_cusparselt_product(dtype, transposed):
    is_byte = dtype in (torch.int8, torch.float8_e4m3fn)
    wide = torch.float32 if dtype == torch.float8_e4m3fn else dtype
    left = sparse_matrix(32, 64, wide).to(dtype)
    right = dense_matrix(64, 16, wide).to(dtype)
    compressed = torch._cslt_compress(left.to(DEVICE))
    assert compressed.shape == (32, 64 * (10 if is_byte else 9) // 16)
    kind = torch.float16 if is_byte else None
    alpha = torch.tensor(0.5, device=DEVICE)
    result = torch._cslt_sparse_mm(
        compressed, right.to(DEVICE), alpha=alpha, out_dtype=kind, transpose_result=transposed
    )
    assert result.is_contiguous()
    wanted = expected(left, right) / 2
    assert torch.equal(result.cpu(), (wanted.t() if transposed else wanted).to(result.dtype))
    assert torch._cslt_sparse_mm_search(compressed, right.to(DEVICE)) == 0


def test_cusparselt_refuses_dtypes():
    with pytest.raises(RuntimeError, match="Unsupported dtype for cuSPARSELt"):
        torch._cslt_compress(torch.zeros(32, 64, dtype=torch.float64, device=DEVICE))
    half = torch._cslt_compress(sparse_matrix(32, 64, torch.float16).to(DEVICE))
    right = dense_matrix(64, 16, torch.float16).to(DEVICE)
    with pytest.raises(RuntimeError, match="out_dtype support only available for int8/fp8"):
        torch._cslt_sparse_mm(half, right, out_dtype=torch.float32)


@cuda_only("PyTorch makes these tensors from tensors on cuda alone")
@pytest.mark.parametrize("backend", ["cutlass", "cusparselt"])
def test_linear_layer_with_a_sparse_weight(backend, ampere):
    """The example of PyTorch's documentation."""
    from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured

    layer = torch.nn.Linear(128, 64).half().cuda().eval()
    layer.weight.data = sparse_matrix(64, 128, torch.float16).cuda() / 8
    x = torch.randn(3, 128, dtype=torch.float16, device="cuda")
    with torch.inference_mode():
        wanted = layer(x)
        before = SparseSemiStructuredTensor._FORCE_CUTLASS
        SparseSemiStructuredTensor._FORCE_CUTLASS = backend == "cutlass"
        try:
            layer.weight = torch.nn.Parameter(to_sparse_semi_structured(layer.weight))
            assert type(layer.weight.data).__name__.lower().endswith(backend)
            assert torch.allclose(layer(x), wanted, rtol=1e-3, atol=1e-3)
        finally:
            SparseSemiStructuredTensor._FORCE_CUTLASS = before
