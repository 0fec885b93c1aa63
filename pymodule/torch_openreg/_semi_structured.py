"""Products with semi-structured sparse matrices (``torch.sparse``): two in four elements are zero.

PyTorch has these operators for CUDA only. Here they make the matrix dense again, in device memory,
and multiply. A matrix for CUTLASS has PyTorch's format: elements and indices apart. The format of
cuSPARSELt is not published. Here each row of a compressed matrix has the elements, and then their
places, in 4 bits for each four elements of the matrix. That is the size that cuSPARSELt takes.
"""

import torch
from torch import Tensor

_BYTE_DTYPES = (torch.int8, torch.float8_e4m3fn)
_CUSPARSELT_DTYPES = (*_BYTE_DTYPES, torch.float16, torch.bfloat16, torch.float32)
_CUTLASS_DTYPES = (torch.int8, torch.float16, torch.bfloat16, torch.float32)

# Registrations last as long as this object.
_library: torch.library.Library | None = None


def _wide(matrix: Tensor) -> Tensor:
    """Return a matrix in a dtype in which its products are exact enough to be rounded once."""
    return matrix.to(torch.float64 if matrix.dtype == torch.int8 else torch.float32)


def _rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.clamp(-128, 127).to(dtype) if dtype == torch.int8 else values.to(dtype)


# ---- CUTLASS -------------------------------------------------------------------------------------


def _check_cutlass(mat1: Tensor, mat2: Tensor, input: Tensor | None, dtype: torch.dtype) -> None:
    """Make the checks of CUDA's operator, in its order."""
    major, _ = torch.get_device_module(mat1.device).get_device_capability(mat1.device)
    checks = [
        (major == 8, "Supported only on GPUs with compute capability 8.x"),
        (mat2.dtype in _CUTLASS_DTYPES, f"The mat2 datatype {mat2.dtype} is not supported"),
        (mat1.dtype == mat2.dtype, f"Expected mat1 datatype {mat2.dtype}, but got {mat1.dtype}"),
    ]
    if input is not None:
        message = f"Expected input datatype {dtype}, but got {input.dtype}"
        checks.append((input.dtype == dtype, message))
    for name, matrix in (("mat1", mat1), ("mat2", mat2)):
        message = f"Expected {name} argument to be 2D tensor, got {matrix.dim()} dims"
        checks.append((matrix.dim() == 2, message))
    if input is not None:
        message = f"Expected input argument to be 1D tensor, got {input.dim()} dims"
        checks.append((input.dim() == 1, message))
    columns = mat2.shape[0] // 2
    message = f"Expected mat1 argument to have {columns} columns, but got {mat1.shape[-1]}"
    checks.append((mat1.shape[-1] == columns, message))
    if input is not None:
        rows = mat1.shape[0]
        message = f"Expected input argument to have {rows} elements, but got {input.numel()}"
        checks.append((input.numel() == rows, message))
    for holds, message in checks:
        if not holds:
            raise RuntimeError(f"sparse_semi_structured_mad_op : {message}")
    if mat1.dtype == torch.int8 and not _is_row_by_column(mat1, mat2):
        left, right = (
            "row-major" if matrix.stride(1) == 1 else "column_major" for matrix in (mat1, mat2)
        )
        raise RuntimeError(
            f"spgemm_cutlass_dispatch_layouts_dispatch_layouts: Combination of {left} and {right} "
            "layouts for input tensors is not supported"
        )


def _is_row_by_column(left: Tensor, right: Tensor) -> bool:
    """Whether the rows of the left and the columns of the right matrix have no gaps."""
    return left.stride(1) == 1 and right.stride(0) == 1


def _cutlass_addmm(
    input: Tensor | None,
    mat1: Tensor,
    mat1_meta: Tensor,
    mat2: Tensor,
    *,
    alpha: float = 1,
    beta: float = 1,
    out_dtype: torch.dtype | None = None,
    activation: str | None = None,
) -> Tensor:
    from torch.sparse._semi_structured_conversions import sparse_semi_structured_to_dense_cutlass

    dtype = out_dtype or mat2.dtype
    _check_cutlass(mat1, mat2, input, dtype)
    dense = sparse_semi_structured_to_dense_cutlass(mat1, mat1_meta)
    result = _wide(dense) @ _wide(mat2)
    if alpha != 1:
        result *= alpha
    if input is not None and beta != 0:
        result += beta * _wide(input)[:, None]
    if activation is not None:
        result = {"relu": torch.relu, "silu": torch.nn.functional.silu}[activation](result)
    return _rounded(result, dtype)


def _cutlass_mm(
    mat1: Tensor, mat1_meta: Tensor, mat2: Tensor, *, out_dtype: torch.dtype | None = None
) -> Tensor:
    return _cutlass_addmm(None, mat1, mat1_meta, mat2, out_dtype=out_dtype)


def _cutlass_linear(
    input: Tensor,
    weight: Tensor,
    meta: Tensor,
    *,
    bias: Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    columns = input.reshape(-1, input.shape[-1]).t()
    result = _cutlass_addmm(bias, weight, meta, columns, out_dtype=out_dtype, activation=activation)
    return result.t().reshape(*input.shape[:-1], -1)


# ---- cuSPARSELt ----------------------------------------------------------------------------------


def _compress(input: Tensor) -> Tensor:
    if input.dtype not in _CUSPARSELT_DTYPES:
        raise RuntimeError("Unsupported dtype for cuSPARSELt/hipSparseLt compressed matrix")
    rows, columns = input.shape
    if columns % 16:
        raise RuntimeError(
            f"openreg: the number of columns must be a multiple of 16, not {columns}"
        )
    groups = input.contiguous().view(torch.uint8).view(rows, columns // 4, 4, input.itemsize)
    # The places of the first two elements that are not zero. Missing ones are the last places.
    is_kept = (groups != 0).any(-1).to(torch.uint8) * 8 + torch.arange(
        4, dtype=torch.uint8, device=input.device
    ).flip(0)
    places = is_kept.topk(2).indices.sort().values
    elements = groups.gather(2, places[..., None].expand(-1, -1, -1, input.itemsize))
    pairs = (places[..., 0] + 4 * places[..., 1]).to(torch.uint8).view(rows, -1, 2)
    packed = torch.cat([elements.reshape(rows, -1), pairs[..., 0] + 16 * pairs[..., 1]], 1)
    return packed.view(input.dtype)


def _to_dense(compressed: Tensor, columns: int) -> Tensor:
    rows, size = compressed.shape[0], compressed.itemsize
    packed = compressed.contiguous().view(torch.uint8)
    elements, places = packed.split([columns // 2 * size, columns // 8], 1)
    pairs = torch.stack([places % 16, places // 16], -1).view(rows, columns // 4)
    indices = torch.stack([pairs % 4, pairs // 4], -1).long()
    dense = packed.new_zeros(rows, columns // 4, 4, size)
    source = elements.reshape(rows, columns // 4, 2, size)
    dense.scatter_(2, indices[..., None].expand_as(source), source)
    return dense.view(rows, -1).view(compressed.dtype)


def _check_out_dtype(compressed: Tensor, out_dtype: torch.dtype | None) -> None:
    """Make the checks of CUDA's operator."""
    if compressed.dtype not in _CUSPARSELT_DTYPES:
        raise RuntimeError("Unsupported dtype for cuSPARSELt compressed matrix multiplication.")
    if out_dtype is None:
        return
    if compressed.dtype not in _BYTE_DTYPES:
        raise RuntimeError("out_dtype support only available for int8/fp8 inputs")
    half = (torch.float16, torch.bfloat16)
    if compressed.dtype == torch.int8 and out_dtype not in (*half, torch.int32):
        raise RuntimeError(
            "Unsupported out_dtype passed, must be one of {fp16, bf16, int32} for int8 inputs"
        )
    if compressed.dtype != torch.int8 and out_dtype not in (
        *half,
        torch.float32,
        torch.float8_e4m3fn,
    ):
        raise RuntimeError(
            "Unsupported out_dtype passed, must be one of {fp8, fp16, bf16, float32} for fp8 inputs"
        )


def _cusparselt_mm(
    compressed_A: Tensor,  # noqa: N803 - PyTorch's name
    dense_B: Tensor,  # noqa: N803
    bias: Tensor | None = None,
    alpha: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    transpose_result: bool = False,
    alg_id: int = 0,
    split_k: int = 1,
    split_k_mode: int = -1,
) -> Tensor:
    _check_out_dtype(compressed_A, out_dtype)
    if compressed_A.dtype == torch.int8 and not _is_row_by_column(compressed_A, dense_B):
        raise RuntimeError(
            "CUDA error: operation not supported when calling `cusparseLtMatmulDescriptorInit`"
        )
    result = _wide(_to_dense(compressed_A, dense_B.shape[0])) @ _wide(dense_B)
    if alpha is not None:
        result *= alpha if alpha.numel() == 1 else alpha[:, None]
    if bias is not None:
        result += _wide(bias)[:, None]
    result = _rounded(result, out_dtype or dense_B.dtype)
    return result.t().contiguous() if transpose_result else result


def _cusparselt_search(
    compressed_A: Tensor,  # noqa: N803
    dense_B: Tensor,  # noqa: N803
    bias: Tensor | None = None,
    alpha: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    transpose_result: bool = False,
) -> int:
    """Return the number of the fastest algorithm. There is one."""
    _check_out_dtype(compressed_A, out_dtype)
    return 0


def install(dispatch_key: str) -> None:
    """Register the operators for devices with this dispatch key."""
    global _library
    _library = torch.library.Library("aten", "IMPL")
    for name, kernel in (
        ("_sparse_semi_structured_mm", _cutlass_mm),
        ("_sparse_semi_structured_addmm", _cutlass_addmm),
        ("_sparse_semi_structured_linear", _cutlass_linear),
        ("_cslt_compress", _compress),
        ("_cslt_sparse_mm", _cusparselt_mm),
        ("_cslt_sparse_mm_search", _cusparselt_search),
    ):
        _library.impl(name, kernel, dispatch_key)
