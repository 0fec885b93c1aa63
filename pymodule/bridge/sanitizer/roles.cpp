#include "sanitizer/roles.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "core/device_type.h"

namespace openreg {

namespace {

using Names = std::unordered_set<std::string_view>;

// They write to `self` without looking at it.
const Names &overwriting() {
  static const auto &names = *new Names{
      "aten::copy_",          "aten::_copy_from",     "aten::fill_",         "aten::zero_",
      "aten::normal_",        "aten::uniform_",       "aten::random_",       "aten::bernoulli_",
      "aten::exponential_",   "aten::geometric_",     "aten::cauchy_",       "aten::log_normal_",
      "aten::_foreach_zero_", "aten::_foreach_copy_", "aten::fill_diagonal_"};
  return names;
}

// Results are made of elements as they are, or of some of them: nothing is computed with these.
const Names &moving() {
  static const auto &names = *new Names{"aten::copy_",
                                        "aten::_copy_from",
                                        "aten::_to_copy",
                                        "aten::clone",
                                        "aten::cat",
                                        "aten::stack",
                                        "aten::_foreach_copy_",
                                        "aten::index",
                                        "aten::index_select",
                                        "aten::gather",
                                        "aten::take",
                                        "aten::masked_select",
                                        "aten::where",
                                        "aten::masked_fill",
                                        "aten::masked_fill_",
                                        "aten::masked_scatter",
                                        "aten::masked_scatter_",
                                        "aten::index_put",
                                        "aten::index_put_",
                                        "aten::_index_put_impl_",
                                        "aten::scatter",
                                        "aten::scatter_",
                                        "aten::index_copy",
                                        "aten::index_copy_",
                                        "aten::index_fill",
                                        "aten::index_fill_",
                                        "aten::slice_scatter",
                                        "aten::select_scatter",
                                        "aten::diagonal_scatter",
                                        "aten::as_strided_scatter",
                                        "aten::flip",
                                        "aten::roll",
                                        "aten::repeat",
                                        "aten::repeat_interleave",
                                        "aten::constant_pad_nd",
                                        "aten::tril",
                                        "aten::triu",
                                        "aten::tril_",
                                        "aten::triu_",
                                        "aten::embedding",
                                        "aten::_reshape_copy",
                                        "aten::view_copy",
                                        "aten::expand_copy",
                                        "aten::permute_copy",
                                        "aten::slice_copy",
                                        "aten::split_copy",
                                        "aten::split_with_sizes_copy",
                                        "aten::unfold_copy",
                                        "aten::as_strided_copy",
                                        "aten::pixel_shuffle",
                                        "aten::pixel_unshuffle",
                                        "aten::channel_shuffle",
                                        "aten::reflection_pad1d",
                                        "aten::reflection_pad2d",
                                        "aten::reflection_pad3d",
                                        "aten::replication_pad1d",
                                        "aten::replication_pad2d",
                                        "aten::replication_pad3d",
                                        "aten::im2col",
                                        "aten::_chunk_cat",
                                        "aten::upsample_nearest1d",
                                        "aten::upsample_nearest2d",
                                        "aten::upsample_nearest3d",
                                        "aten::select_backward",
                                        "aten::slice_backward",
                                        "aten::diagonal_backward",
                                        "aten::put_",
                                        "aten::lift_fresh_copy",
                                        "aten::_pin_memory",
                                        "aten::view_as_complex_copy",
                                        "aten::view_as_real_copy",
                                        "aten::unbind_copy"};
  return names;
}

// Which elements of `self` they write to, or read, depends on indices or masks.
const Names &partial() {
  static const auto &names = *new Names{"aten::index",
                                        "aten::index_select",
                                        "aten::gather",
                                        "aten::take",
                                        "aten::masked_select",
                                        "aten::embedding",
                                        "aten::index_put_",
                                        "aten::_index_put_impl_",
                                        "aten::scatter_",
                                        "aten::scatter_add_",
                                        "aten::scatter_reduce_",
                                        "aten::index_add_",
                                        "aten::index_copy_",
                                        "aten::index_fill_",
                                        "aten::index_reduce_",
                                        "aten::masked_fill_",
                                        "aten::masked_scatter_",
                                        "aten::put_",
                                        "aten::_embedding_bag",
                                        "aten::_embedding_bag_forward_only",
                                        "aten::embedding_renorm_"};
  return names;
}

// Only sizes are looked at, of all arguments, or of some: operator, a point, argument.
const Names &looking_at_sizes() {
  static const auto &names = *new Names{
      "aten::is_same_size",
      "aten::is_set_to",
      "aten::is_pinned",
      "aten::record_stream",
      "aten::_has_same_storage_numel",
      "aten::_has_compatible_shallow_copy_type",
      "aten::max_pool2d_with_indices_backward.self",
      "aten::max_pool3d_with_indices_backward.self",
      "aten::avg_pool2d_backward.self",
      "aten::avg_pool3d_backward.self",
      "aten::_adaptive_avg_pool2d_backward.self",
      "aten::_adaptive_avg_pool3d_backward.self",
      "aten::adaptive_max_pool2d_backward.self",
      "aten::adaptive_max_pool3d_backward.self",
      "aten::fractional_max_pool2d_backward.self",
      "aten::fractional_max_pool3d_backward.self",
      "aten::reflection_pad1d_backward.self",
      "aten::reflection_pad2d_backward.self",
      "aten::reflection_pad3d_backward.self",
      "aten::replication_pad1d_backward.self",
      "aten::replication_pad2d_backward.self",
      "aten::replication_pad3d_backward.self",
      "aten::nll_loss_backward.self",
      "aten::nll_loss2d_backward.self",
  };
  return names;
}

// They read and write these, and nothing is computed with what was there if it is the first step.
const Names &made_in_first_step() {
  static const auto &names = *new Names{"aten::_fused_sgd_.momentum_buffer_list"};
  return names;
}

// They write to arguments without looking at them, which are no results by the schema.
const Names &filling() {
  static const auto &names = *new Names{
      "aten::_cummax_helper.values",  "aten::_cummax_helper.indices",
      "aten::_cummin_helper.values",  "aten::_cummin_helper.indices",
      "aten::rrelu_with_noise.noise", "aten::rrelu_with_noise_.noise",
  };
  return names;
}

// They write to arguments though their schemas do not say it, or not in the overload's name.
const Names &writing_silently() {
  static const auto &names = *new Names{
      "aten::native_batch_norm.running_mean", "aten::native_batch_norm.running_var",
      "aten::cudnn_batch_norm.running_mean",  "aten::cudnn_batch_norm.running_var",
      "aten::miopen_batch_norm.running_mean", "aten::miopen_batch_norm.running_var",
      "aten::embedding_renorm_.self",
  };
  return names;
}

bool has_tensors(const c10::Type &type) {
  if (type.isSubtypeOf(*c10::TensorType::get())) {
    return true;
  }
  const auto contained = type.containedTypes();
  return std::any_of(contained.begin(), contained.end(),
                     [](const auto &each) { return has_tensors(*each); });
}

// The memory of what it makes is left as it was.
bool only_allocates(std::string_view name) {
  return name.starts_with("aten::") && name.find("empty") != std::string_view::npos;
}

bool makes_alike(std::string_view name) {
  return name.ends_with("_like") || name.starts_with("aten::new_");
}

// The result shares an argument's memory, or an argument is made to look at other memory.
bool is_view(const c10::OperatorHandle &op) {
  const auto &returns = op.schema().returns();
  return op.hasTag(at::Tag::inplace_view) ||
         std::any_of(returns.begin(), returns.end(), [](const c10::Argument &result) {
           return result.alias_info() != nullptr && !result.alias_info()->isWrite();
         });
}

// What reaches the devices' kernels; for a kernel of the CPU's there is always one of theirs. All
// other operators call such ones.
bool has_own_kernel(const c10::OperatorHandle &op) {
  return op.hasKernelForDispatchKey(kDeviceKeys.dense) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

Role role_of(const c10::OperatorHandle &op, const c10::Argument &argument, bool is_self) {
  const std::string_view name = op.schema().name();
  const auto full = c10::str(name, ".", argument.name());
  if (looking_at_sizes().contains(name) || looking_at_sizes().contains(full)) {
    return kUntouched;
  }
  const bool moves = moving().contains(name);
  const auto read = static_cast<Role>(kReads | (moves ? kMoves : 0));
  const auto part = static_cast<Role>(is_self && partial().contains(name) ? kPartly : 0);
  const bool is_written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  if (filling().contains(full)) {
    return kWrites;
  }
  if (made_in_first_step().contains(full)) {
    return static_cast<Role>(kReads | kWrites | kMoves);
  }
  if (writing_silently().contains(full)) {
    return static_cast<Role>(kReads | kWrites);
  }
  if (!is_written) {
    return makes_alike(name) || only_allocates(name) ? kUntouched : static_cast<Role>(read | part);
  }
  if (argument.is_out()) {
    return kUntouched; // which is a result, too, and has its sizes only then
  }
  if (is_self && overwriting().contains(name)) {
    return kWrites;
  }
  return static_cast<Role>(read | kWrites | part);
}

Roles find_roles(const c10::OperatorHandle &op) {
  const auto &schema = op.schema();
  const std::string_view name = schema.name();
  Roles roles;
  const bool is_others = name.starts_with("c10d") || name.starts_with("profiler::");
  roles.is_leaf = has_own_kernel(op) && !is_view(op) && !is_others;
  roles.is_foreign = !name.starts_with("aten::") && !name.starts_with("prims::");
  roles.leaves_unwritten = only_allocates(name);
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto &argument = schema.arguments()[i];
    const bool is_tensor = has_tensors(*argument.type());
    roles.arguments.push_back(is_tensor ? role_of(op, argument, i == 0) : kUntouched);
    if (argument.name() == "beta") {
      roles.beta = static_cast<int>(i);
    } else if (argument.name() == "output_mask" && name.find("conv") != std::string_view::npos) {
      roles.mask = static_cast<int>(i);
    }
  }
  const auto &returns = schema.returns();
  const bool depends =
      op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
  roles.is_waited_for = depends || (returns.size() == 1 && !has_tensors(*returns[0].type()));
  if (name == "aten::copy_") {
    roles.movement = Roles::Movement::kCopy;
  } else if (name == "aten::cat") {
    roles.movement = Roles::Movement::kConcatenation;
  }
  return roles;
}

} // namespace

const Roles &roles_of(const c10::OperatorHandle &op) {
  static auto &mutex = *new std::mutex();
  static auto &known = *new std::unordered_map<std::string, std::unique_ptr<const Roles>>();
  const auto name = c10::toString(op.operator_name());
  const std::lock_guard lock(mutex);
  auto &roles = known[name];
  if (!roles) {
    roles = std::make_unique<const Roles>(find_roles(op));
  }
  return *roles;
}

} // namespace openreg
