// From PyTorch's arguments of collectives to those of the C layer, refusing what NCCL's group
// refuses, with its sentences and exceptions.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "distributed/operation.h"
#include "distributed/staging.h"

namespace openreg {

// What the backend is called, in sentences and elsewhere: in CUDA mode it stands in for NCCL.
inline const char *backend_name() {
  return in_cuda_mode() ? "nccl" : "occl";
}
inline const char *backend_title() {
  return in_cuda_mode() ? "NCCL" : "OCCL";
}

// What is said to who gives several tensors, or tensors of several devices, where one is taken.
std::string multi_device_sentence();
// The tensor of a list that may hold one only.
const at::Tensor &only_tensor(const Tensors &tensors);
const Tensors &only_list(const TensorLists &lists);

// On a device, dense and contiguous. Messages may be of any order in memory.
void check_tensor(const at::Tensor &tensor, bool is_message = false);
// Of one device and type.
void check_same_device(const Tensors &tensors);
// A list of a rank's tensors: one for each rank, all of the type and on the device of `like`. They
// need not be contiguous.
void check_list(const Tensors &list, const at::Tensor &like, int size);
// A root, or a peer.
void check_rank(const char *what, int64_t rank, int size);

// The C layer's type of the elements, which are only moved. `as_reals`: NCCL's group takes complex
// ones there, as pairs of numbers.
openreg_dtype dtype_of(const at::Tensor &tensor, bool as_reals = false);

// All of a tensor: so many elements of that type. What is only read may be shared memory.
openreg_part input_of(const at::Tensor &tensor);
openreg_part output_of(const at::Tensor &tensor);
// Rows of what is all of a tensor, so many for each rank; equally many when `rows` is empty.
Parts split_rows(openreg_part all, const at::Tensor &tensor, const std::vector<int64_t> &rows,
                 int size);

// A reduction of elements of the tensor. What it needs of memory goes into `kept`: a factor.
void set_reduction(Collective &collective, const char *name, const at::Tensor &tensor,
                   const c10d::ReduceOp &reduction, bool as_reals, Tensors &kept);

} // namespace openreg
