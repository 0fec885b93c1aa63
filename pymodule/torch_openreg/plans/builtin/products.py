"""Products of matrices: copies of operands that cuBLAS cannot read.

Source: ATen/native/cuda/Blas.cpp (prepare_matrix_for_cublas, prepare_batch_matrix_for_cublas,
addmv_out_cuda).
"""

from .call import Call, Tensor, check, plans


def _copy(call: Call, matrix: Tensor) -> int:
    """Take a copy of a matrix, or of a batch of them, without rows or columns side by side."""
    check("c" not in matrix.flags, "a conjugate operand")
    (rows, columns), (row, column) = matrix.sizes[-2:], matrix.strides[-2:]
    is_readable = (row == 1 and column >= max(1, rows)) or (column == 1 and row >= max(1, columns))
    if is_readable or (len(matrix.sizes) == 2 and matrix.is_dense) or matrix.is_contiguous:
        return 0
    return call.take(matrix.nbytes)


@plans("mm", "bmm")
def mm(call: Call, self: Tensor, mat2: Tensor) -> None:
    """Copies of both operands."""
    call.result(self.dtype, (*self.sizes[:-1], mat2.sizes[-1]))
    check(self.numel > 0 and mat2.numel > 0, "an empty product")
    copies = [_copy(call, each) for each in (mat2, self)]  # cuBLAS has columns, not rows
    call.free(*reversed(copies))


@plans("addmm", "baddbmm")
def addmm(
    call: Call, self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> None:
    """Copies of both operands."""
    mm(call, mat1, mat2)


@plans("mv")
def mv(call: Call, self: Tensor, vec: Tensor) -> None:
    """A copy of the matrix, and one of a vector without steps."""
    call.result(self.dtype, self.sizes[:1])
    check(self.numel > 1, "an empty product")
    check("c" not in self.flags and "c" not in vec.flags, "a conjugate operand")
    has_no_steps = vec.strides[0] == 0 and vec.numel > 1
    copies = [call.take(vec.nbytes) if has_no_steps else 0, _copy(call, self)]
    call.free(*reversed(copies))
