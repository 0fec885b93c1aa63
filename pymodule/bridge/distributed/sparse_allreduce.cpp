// The all_reduce of sparse tensors. For dense tensors PyTorch has kernels of all collectives for
// any device; for sparse tensors it has one for CUDA alone.

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "core/registration.h"

namespace openreg {

namespace {

std::tuple<std::vector<at::Tensor>, c10::intrusive_ptr<c10d::Work>>
allreduce(at::TensorList tensors, const c10::intrusive_ptr<c10d::ProcessGroup> &group,
          const c10::intrusive_ptr<c10d::ReduceOp> &op, const std::optional<at::Tensor> &,
          bool is_async, int64_t timeout_ms) {
  auto all = tensors.vec();
  c10d::AllreduceOptions options;
  options.reduceOp = *op;
  options.timeout = std::chrono::milliseconds(timeout_ms);
  options.asyncOp = is_async;
  auto work = group->getBackend(kDeviceType)->allreduce_sparse(all, options);
  return {std::move(all), std::move(work)};
}

} // namespace

OPENREG_LIBRARY_IMPL(c10d, sparse, library) {
  if (!in_cuda_mode()) {
    library.impl("allreduce_", &allreduce);
  }
}

} // namespace openreg
