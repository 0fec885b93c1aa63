#include "compat/nondeterministic.h"

#include <ATen/Context.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>

#include "compat/operator_names.h"
#include "core/device_type.h"

namespace openreg {

namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

constexpr std::string_view kAny = "*";

bool reduces(Arguments arguments) { // nll_loss2d: without a reduction it adds nothing
  return arguments[3].toInt() != at::Reduction::None;
}

bool takes_dense_maximum(Arguments arguments) { // _embedding_bag_dense_backward
  return arguments[7].toInt() == kBagMaximum;
}

bool accumulates(Arguments arguments) { // put_: the CPU's kernel alerts for the rest
  return arguments[3].toBool();
}

bool has_weights(Arguments arguments) { // bincount
  return !arguments[1].isNone();
}

bool scatters_products(Arguments arguments) { // scatter_reduce
  return arguments[4].toStringRef() == "prod";
}

// Replication padding: PyTorch pads CUDA tensors by other operators under deterministic algorithms.
bool is_of_cuda(Arguments /*arguments*/) {
  return in_cuda_mode();
}

// Sorted by name. Other places alert for the remaining operators: the CPU's kernels for
// max_unpool2d and max_unpool3d, operators/network.cpp for _adaptive_avg_pool2d_backward,
// operators/dtypes.cpp for histc, operators/embedding.cpp for _embedding_bag_backward.
constexpr std::array<Nondeterministic, 38> kNondeterministic = {{
    {"aten::_adaptive_avg_pool3d_backward", kAny, "adaptive_avg_pool3d_backward_cuda"},
    {"aten::_ctc_loss_backward", kAny, "ctc_loss_backward_gpu"},
    {"aten::_embedding_bag_dense_backward", kAny, "embedding_bag_backward_cuda_max",
     &takes_dense_maximum},
    {"aten::_upsample_bicubic2d_aa_backward", kAny, "upsample_bicubic2d_aa_backward_out_cuda"},
    {"aten::_upsample_bilinear2d_aa_backward", kAny, "upsample_bilinear2d_aa_backward_out_cuda"},
    {"aten::adaptive_avg_pool3d_backward", "grad_input", "adaptive_avg_pool3d_backward_out_cuda"},
    {"aten::adaptive_max_pool2d_backward", kAny, "adaptive_max_pool2d_backward_cuda"},
    {"aten::avg_pool3d_backward", kAny, "avg_pool3d_backward_cuda"},
    {"aten::bincount", kAny, "_bincount_cuda", &has_weights},
    {"aten::fractional_max_pool2d_backward", kAny, "fractional_max_pool2d_backward_cuda"},
    {"aten::fractional_max_pool3d_backward", "", "fractional_max_pool3d_backward_cuda"},
    {"aten::fractional_max_pool3d_backward", "grad_input",
     "fractional_max_pool3d_backward_out_cuda"},
    {"aten::grid_sampler_2d_backward", kAny, "grid_sampler_2d_backward_cuda"},
    {"aten::grid_sampler_3d_backward", kAny, "grid_sampler_3d_backward_cuda"},
    {"aten::index_reduce", kAny, "index_reduce_cuda"},
    {"aten::index_reduce_", kAny, "index_reduce_cuda"},
    {"aten::max_pool3d_with_indices_backward", "", "max_pool3d_with_indices_backward_cuda"},
    {"aten::max_pool3d_with_indices_backward", "grad_input",
     "max_pool3d_with_indices_backward_out_cuda"},
    {"aten::median", "dim_values", "median CUDA with indices output"},
    {"aten::nanmedian", "dim_values", "median CUDA with indices output"},
    {"aten::nll_loss2d_forward", kAny, "nll_loss2d_forward_out_cuda_template", &reduces},
    {"aten::put_", kAny, "put_", &accumulates},
    {"aten::reflection_pad1d_backward", kAny, "reflection_pad1d_backward_out_cuda"},
    {"aten::reflection_pad3d_backward", kAny, "reflection_pad3d_backward_out_cuda"},
    {"aten::replication_pad1d_backward", kAny, "replication_pad1d_backward_cuda", &is_of_cuda},
    {"aten::replication_pad2d_backward", "", "replication_pad2d_backward_cuda", &is_of_cuda},
    {"aten::replication_pad2d_backward", "grad_input", "replication_pad2d_backward_out_cuda",
     &is_of_cuda},
    {"aten::replication_pad3d_backward", "", "replication_pad3d_backward_cuda", &is_of_cuda},
    {"aten::replication_pad3d_backward", "grad_input", "replication_pad3d_backward_out_cuda",
     &is_of_cuda},
    {"aten::scatter", "reduce", "scatter_reduce_cuda_kernel"},
    {"aten::scatter", "reduce_out", "scatter_reduce_cuda_kernel"},
    {"aten::scatter_", "reduce", "scatter_reduce_cuda_kernel"},
    {"aten::scatter_reduce", kAny, "scatter_reduce_cuda_prod_", &scatters_products},
    {"aten::scatter_reduce_", kAny, "scatter_reduce_cuda_prod_", &scatters_products},
    {"aten::upsample_bicubic2d_backward", kAny, "upsample_bicubic2d_backward_out_cuda"},
    {"aten::upsample_bilinear2d_backward", kAny, "upsample_bilinear2d_backward_out_cuda"},
    {"aten::upsample_linear1d_backward", kAny, "upsample_linear1d_backward_out_cuda"},
    {"aten::upsample_trilinear3d_backward", kAny, "upsample_trilinear3d_backward_out_cuda"},
}};

static_assert(std::ranges::is_sorted(kNondeterministic, {}, &Nondeterministic::name));

} // namespace

void Nondeterministic::alert(Arguments arguments) const {
  if (applies == nullptr || applies(arguments)) {
    at::globalContext().alertNotDeterministic(cuda_name);
  }
}

const Nondeterministic *find_nondeterministic(const c10::OperatorName &name) {
  const auto rows = std::ranges::equal_range(kNondeterministic, std::string_view(name.name), {},
                                             &Nondeterministic::name);
  const auto *const row = std::ranges::find_if(rows, [&](const auto &each) {
    return each.overload == kAny || each.overload == name.overload_name;
  });
  return row != rows.end() ? row : nullptr;
}

void append_nondeterministic(std::vector<std::string_view> &names) {
  for (const auto &row : kNondeterministic) {
    names.push_back(row.name);
  }
}

} // namespace openreg
