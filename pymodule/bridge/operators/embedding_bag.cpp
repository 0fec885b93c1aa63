// Bags of embeddings. CUDA's kernel returns tensors of other shapes than the CPU's: the bag of each
// index, the size of each bag without padding, and the largest indices for mode "max" only. Here
// the CPU's kernel computes the output, as a host operator (launch/host_operator.h).

#include <ATen/TensorOperators.h>
#include <ATen/ops/_embedding_bag.h>
#include <ATen/ops/_embedding_bag_forward_only.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "compat/operator_names.h"
#include "core/registration.h"
#include "launch/host_operator.h"

namespace openreg {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Returns the number of the bag of each index. `begins` has the first position of each bag.
Tensor bag_of_each(const Tensor &indices, const Tensor &begins, at::ScalarType dtype) {
  if (indices.numel() == 0) {
    return at::empty({0}, indices.options().dtype(dtype));
  }
  const auto positions = at::arange(indices.numel(), begins.options());
  return at::searchsorted(begins.contiguous(), positions, /*out_int32=*/false, /*right=*/true)
      .sub_(1)
      .to(dtype);
}

template <auto kOnHost>
Four bag_on_host(const Tensor &weight, const Tensor &indices, const Tensor &offsets,
                 bool scale_grad_by_freq, int64_t mode, bool sparse,
                 const OptionalTensor &per_sample_weights, bool include_last_offset,
                 int64_t padding_idx) {
  const HostKernel kernel;
  auto [output, unused, unused_size, largest] =
      kOnHost(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
              include_last_offset, padding_idx);
  const auto dtype = c10::promoteTypes(indices.scalar_type(), offsets.scalar_type());
  const auto options = indices.options().dtype(dtype);
  auto bags = bag_of_each(indices, offsets.narrow(0, 0, output.size(0)), dtype);
  auto sizes = at::zeros(offsets.sizes(), options);
  if (indices.numel() > 0) {
    sizes.index_add_(0, bags, indices.ne(padding_idx).to(dtype));
  }
  if (mode != kBagMaximum) {
    largest = at::empty({0}, options);
  }
  return {std::move(output), std::move(bags), std::move(sizes), std::move(largest)};
}

constexpr auto kBag = &bag_on_host<&at::_embedding_bag>;
constexpr auto kBagForward = &bag_on_host<&at::_embedding_bag_forward_only>;

TORCH_LIBRARY_FRAGMENT(openreg_host, library) {
  constexpr const char *kSignature =
      "(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, "
      "bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, "
      "int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)";
  for (const std::string name : {"_embedding_bag", "_embedding_bag_forward_only"}) {
    library.def((name + kSignature).c_str());
  }
}

TORCH_LIBRARY_IMPL(openreg_host, CPU, library) {
  library.impl("_embedding_bag", kBag);
  library.impl("_embedding_bag_forward_only", kBagForward);
}

Four embedding_bag(const Tensor &weight, const Tensor &indices, const Tensor &offsets,
                   bool scale_grad_by_freq, int64_t mode, bool sparse,
                   const OptionalTensor &per_sample_weights, bool include_last_offset,
                   int64_t padding_idx) {
  return launch_host<kBag>("openreg_host::_embedding_bag", weight, indices, offsets,
                           scale_grad_by_freq, mode, sparse, per_sample_weights,
                           include_last_offset, padding_idx);
}

Four embedding_bag_forward_only(const Tensor &weight, const Tensor &indices, const Tensor &offsets,
                                bool scale_grad_by_freq, int64_t mode, bool sparse,
                                const OptionalTensor &per_sample_weights, bool include_last_offset,
                                int64_t padding_idx) {
  return launch_host<kBagForward>("openreg_host::_embedding_bag_forward_only", weight, indices,
                                  offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
                                  include_last_offset, padding_idx);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("_embedding_bag", &embedding_bag);
  library.impl("_embedding_bag_forward_only", &embedding_bag_forward_only);
}

} // namespace openreg
