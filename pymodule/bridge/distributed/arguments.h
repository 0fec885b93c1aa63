// Converts PyTorch's arguments of collectives to those of the C layer. Rejects what
// ProcessGroupNCCL rejects, with its messages and exception types.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "distributed/operation.h"
#include "distributed/staging.h"

namespace openreg {

// The name of the backend. In CUDA mode it takes the place of NCCL.
inline const char *backend_name() {
  return in_cuda_mode() ? "nccl" : "occl";
}
inline const char *backend_title() {
  return in_cuda_mode() ? "NCCL" : "OCCL";
}

// The error for several tensors, or tensors of several devices, where one is allowed.
std::string multi_device_error();
// The only tensor of a list. Raises if there are several.
const at::Tensor &single_tensor(const Tensors &tensors);
const Tensors &single_list(const TensorLists &lists);

// Requires a dense, contiguous device tensor. A message may have any memory order.
void check_tensor(const at::Tensor &tensor, bool is_message = false);
// Requires tensors of one device and dtype.
void check_same_device(const Tensors &tensors);
// Requires a list with one tensor for each rank, all with the dtype and device of `like`. They need
// not be contiguous.
void check_list(const Tensors &list, const at::Tensor &like, int size);
// Requires a valid rank, of a root or a peer.
void check_rank(const char *what, int64_t rank, int size);

// The C layer's dtype for elements that are only moved. `complex_as_real`: ProcessGroupNCCL accepts
// complex numbers here, as pairs of real ones.
openreg_dtype dtype_of(const at::Tensor &tensor, bool complex_as_real = false);

// The whole tensor as a buffer. `input_buffer` only reads it, so it may be copy-on-write memory.
openreg_comm_buffer input_buffer(const at::Tensor &tensor);
openreg_comm_buffer output_buffer(const at::Tensor &tensor);
// Splits the buffer of a tensor by rows: `rows` has the number for each rank. If it is empty,
// returns the whole buffer, which the C layer splits evenly.
Buffers split_rows(openreg_comm_buffer all, const at::Tensor &tensor,
                   const std::vector<int64_t> &rows, int size);

// Sets dtype and reduction of a collective. A factor in device memory is added to `kept`, which
// must live as long as the operation.
void set_reduction(CollectiveArguments &collective, const char *name, const at::Tensor &tensor,
                   const c10d::ReduceOp &reduction, bool complex_as_real, Tensors &kept);

} // namespace openreg
