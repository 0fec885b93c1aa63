#include "compat/operator_names.h"

#include <algorithm>

#include "compat/blas_operators.h"
#include "compat/cuda_dtypes.h"
#include "compat/nondeterministic.h"
#include "compat/wrapper_names.h"

namespace openreg {

namespace {

constexpr std::string_view kIndex = "aten::index";
constexpr std::string_view kChooseAttention = "aten::_fused_sdp_choice";
constexpr std::string_view kPackSequence = "aten::_pack_padded_sequence";
constexpr std::array<std::string_view, 2> kRanges = {"aten::arange", "aten::range"};
constexpr std::array<std::string_view, 2> kCopies = {"aten::copy_", "aten::copy_sparse_to_sparse_"};

constexpr std::string_view kHistogram = "aten::histc";
constexpr std::string_view kCountValues = "aten::bincount";

constexpr std::array<std::string_view, 5> kOverwriting = {
    "aten::_foreach_copy_", "aten::_foreach_zero_", "aten::copy_", "aten::fill_", "aten::zero_"};

constexpr std::array<std::string_view, 4> kAbsentOnCuda = {
    "aten::_histogramdd_bin_edges", "aten::_histogramdd_from_bin_cts",
    "aten::_histogramdd_from_bin_tensors", "aten::histogram"};

constexpr std::array<std::string_view, 19> kCheckedOnCuda = {"aten::clamp",
                                                             "aten::clamp_max",
                                                             "aten::clamp_min",
                                                             "aten::equal",
                                                             "aten::gcd",
                                                             "aten::gelu_backward",
                                                             "aten::igamma",
                                                             "aten::igammac",
                                                             "aten::lcm",
                                                             "aten::logaddexp",
                                                             "aten::logaddexp2",
                                                             "aten::logit_backward",
                                                             "aten::native_dropout_backward",
                                                             "aten::nextafter",
                                                             "aten::normal",
                                                             "aten::sigmoid_backward",
                                                             "aten::silu_backward",
                                                             "aten::tanh_backward",
                                                             "aten::threshold_backward"};

constexpr std::array<std::string_view, 4> kArgumentUnnamed = {
    "aten::binary_cross_entropy", "aten::binary_cross_entropy_with_logits", "aten::mse_loss",
    "aten::smooth_l1_loss"};

constexpr std::array<std::string_view, 5> kWaitsOnCuda = {"aten::_unique2", "aten::bincount",
                                                          "aten::equal", "aten::unique_consecutive",
                                                          "aten::unique_dim"};

constexpr std::array<std::string_view, 2> kTakesLastScalar = {"aten::addcmul", "aten::addcmul_"};

constexpr std::string_view kAnyOverload = "*";

struct Row {
  std::string_view name;
  HostArguments takes;
  std::string_view overload = kAnyOverload; // the overload to which the row applies
};

// Sorted by name.
constexpr std::array<Row, 21> kHostArguments = {{
    {"aten::_efficient_attention_backward", HostArguments::kScalars},
    {"aten::_fused_adagrad_", HostArguments::kNumbers, "tensor_lr"},
    {"aten::_fused_adam_", HostArguments::kNumbers, "tensor_lr"},
    {"aten::_fused_adamw_", HostArguments::kNumbers, "tensor_lr"},
    {"aten::_fused_sgd_", HostArguments::kNumbers, "tensor_lr"},
    {"aten::_index_put_impl_", HostArguments::kTensors},
    {"aten::_pack_padded_sequence", HostArguments::kTensors},
    {"aten::_pack_padded_sequence_backward", HostArguments::kTensors},
    {"aten::_scaled_dot_product_efficient_attention_backward", HostArguments::kScalars},
    {"aten::_unsafe_index", HostArguments::kTensors},
    {"aten::fill_", HostArguments::kScalars},
    {"aten::floor_divide", HostArguments::kScalars},
    {"aten::floor_divide_", HostArguments::kScalars},
    {"aten::index", HostArguments::kTensors},
    {"aten::index_fill_", HostArguments::kScalars},
    {"aten::is_set_to", HostArguments::kTensors},
    {"aten::masked_fill", HostArguments::kScalars, "Tensor"},
    {"aten::masked_fill_", HostArguments::kScalars},
    {"aten::record_stream", HostArguments::kTensors},
    {"aten::rsub", HostArguments::kScalars},
    {"aten::where", HostArguments::kScalars},
}};

static_assert(std::ranges::is_sorted(kHostArguments, {}, &Row::name));

std::string_view without_overload(std::string_view name) {
  return name.substr(0, name.find('.'));
}

} // namespace

bool has_data_dependent_size(std::string_view name) {
  return name == kIndex;
}

bool has_stale_rng_tag(std::string_view name) {
  return name == kChooseAttention;
}

bool size_depends_on_numbers(std::string_view name) {
  return std::ranges::count(kRanges, name) > 0;
}

bool copies_composites(std::string_view name) {
  return std::ranges::count(kCopies, name) > 0;
}

bool overwrites_first_argument(std::string_view name) {
  return std::ranges::count(kOverwriting, name) > 0;
}

std::string_view bins_argument(std::string_view name) {
  return name == kHistogram ? "bins" : name == kCountValues ? "minlength" : "";
}

bool is_checked_on_cuda(std::string_view name) {
  if (name.ends_with('_')) {
    name.remove_suffix(1);
  }
  return std::ranges::count(kCheckedOnCuda, name) > 0;
}

bool leaves_argument_unnamed(std::string_view name) {
  return std::ranges::count(kArgumentUnnamed, name) > 0;
}

bool waits_on_cuda(std::string_view name) {
  return std::ranges::count(kWaitsOnCuda, name) > 0;
}

bool is_absent_on_cuda(std::string_view name) {
  return std::ranges::count(kAbsentOnCuda, name) > 0;
}

int host_result(std::string_view name) {
  return name == kPackSequence ? 1 : -1;
}

HostArguments host_arguments(std::string_view name, std::string_view overload) {
  const auto *found = std::ranges::lower_bound(kHostArguments, name, {}, &Row::name);
  return found != kHostArguments.end() && found->name == name &&
                 (found->overload == kAnyOverload || found->overload == overload)
             ? found->takes
             : HostArguments::kNothing;
}

bool refuses_host_scalar(std::string_view name, size_t argument) {
  return argument < 2 && std::ranges::count(kTakesLastScalar, name) > 0;
}

std::vector<std::string_view> operators_known_by_name() {
  std::vector<std::string_view> names = {kIndex, kChooseAttention, kPackSequence, kHistogram,
                                         kCountValues};
  names.insert(names.end(), kRanges.begin(), kRanges.end());
  names.insert(names.end(), kOverwriting.begin(), kOverwriting.end());
  names.insert(names.end(), kAbsentOnCuda.begin(), kAbsentOnCuda.end());
  names.insert(names.end(), kWaitsOnCuda.begin(), kWaitsOnCuda.end());
  names.insert(names.end(), kCheckedOnCuda.begin(), kCheckedOnCuda.end());
  names.insert(names.end(), kArgumentUnnamed.begin(), kArgumentUnnamed.end());
  names.insert(names.end(), kCopies.begin(), kCopies.end());
  names.insert(names.end(), kTakesLastScalar.begin(), kTakesLastScalar.end());
  for (const auto &row : kHostArguments) {
    names.push_back(row.name);
  }
  for (const auto *name : kLaunchedComposites) {
    names.push_back(without_overload(name));
  }
  append_operators_with_other_wrappers(names);
  append_nondeterministic(names);
  append_blas_operators(names);
  append_dtype_rows(names);
  return names;
}

} // namespace openreg
