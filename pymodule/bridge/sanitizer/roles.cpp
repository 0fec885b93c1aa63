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
#include "sanitizer/tables.h"

namespace openreg {

namespace {

using Names = std::unordered_set<std::string_view>;

// Operators that overwrite `self` without reading it.
const Names &overwriting() {
  static const auto &names = *new Names{
      "aten::copy_",          "aten::_copy_from",     "aten::fill_",         "aten::zero_",
      "aten::normal_",        "aten::uniform_",       "aten::random_",       "aten::bernoulli_",
      "aten::exponential_",   "aten::geometric_",     "aten::cauchy_",       "aten::log_normal_",
      "aten::_foreach_zero_", "aten::_foreach_copy_", "aten::fill_diagonal_"};
  return names;
}

// Operators whose results are unchanged elements of their arguments. They do not compute with them.
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

// Operators that access elements of `self` by indices or masks.
const Names &accessing_by_index() {
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

// Operators, and arguments (operator.argument), that are only used for their sizes.
const Names &using_only_sizes() {
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

// Arguments that are read and written, but whose old content is not used in the first step.
const Names &initialized_in_first_step() {
  static const auto &names = *new Names{"aten::_fused_sgd_.momentum_buffer_list"};
  return names;
}

// Arguments that are overwritten without being read, and are no outputs by the schema.
const Names &writing_outputs() {
  static const auto &names = *new Names{
      "aten::_cummax_helper.values",  "aten::_cummax_helper.indices",
      "aten::_cummin_helper.values",  "aten::_cummin_helper.indices",
      "aten::rrelu_with_noise.noise", "aten::rrelu_with_noise_.noise",
  };
  return names;
}

// Arguments that are written, although the schema or the overload's name does not say so.
const Names &writing_undeclared() {
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

// The operator does not initialize the memory that it allocates.
bool only_allocates(std::string_view name) {
  return name.starts_with("aten::") && name.find("empty") != std::string_view::npos;
}

bool creates_similar(std::string_view name) {
  return name.ends_with("_like") || name.starts_with("aten::new_");
}

// The result shares memory with an argument, or an argument gets other memory.
bool is_view(const c10::OperatorHandle &op) {
  const auto &returns = op.schema().returns();
  return op.hasTag(at::Tag::inplace_view) ||
         std::any_of(returns.begin(), returns.end(), [](const c10::Argument &result) {
           return result.alias_info() != nullptr && !result.alias_info()->isWrite();
         });
}

// The operator reaches a device kernel. Each CPU kernel has a device counterpart. All other
// operators call such ones.
bool has_own_kernel(const c10::OperatorHandle &op) {
  return op.hasKernelForDispatchKey(kDeviceKeys.dense) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

Role role_of(const c10::OperatorHandle &op, const c10::Argument &argument, bool is_self) {
  const std::string_view name = op.schema().name();
  const auto full = c10::str(name, ".", argument.name());
  if (using_only_sizes().contains(name) || using_only_sizes().contains(full)) {
    return kUntouched;
  }
  const bool moves = moving().contains(name);
  const auto read = static_cast<Role>(kReads | (moves ? kMoves : 0));
  const auto part =
      static_cast<Role>(is_self && accessing_by_index().contains(name) ? kPartial : 0);
  const bool is_written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  if (writing_outputs().contains(full)) {
    return kWrites;
  }
  if (initialized_in_first_step().contains(full)) {
    return static_cast<Role>(kReads | kWrites | kMoves);
  }
  if (writing_undeclared().contains(full)) {
    return static_cast<Role>(kReads | kWrites);
  }
  if (!is_written) {
    return creates_similar(name) || only_allocates(name) ? kUntouched
                                                         : static_cast<Role>(read | part);
  }
  if (argument.is_out()) {
    return kUntouched; // it is also a result, and has its final sizes only then
  }
  if (is_self && overwriting().contains(name)) {
    return kWrites;
  }
  return static_cast<Role>(read | kWrites | part);
}

// Operators that always compute with the elements of `self` that their indices select. Others do so
// if they have a flag, or a reduction, among their arguments.
const Names &combining() {
  static const auto &names =
      *new Names{"aten::index_add_", "aten::scatter_add_", "aten::embedding_renorm_"};
  return names;
}

void find_combination(Roles &roles, const c10::FunctionSchema &schema) {
  using Combines = Roles::Combines;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const std::string_view argument = schema.arguments()[i].name();
    if (argument == "index" || argument == "indices") {
      roles.index = static_cast<int>(i);
    } else if (argument == "accumulate" || argument == "include_self") {
      roles.combines = Combines::kIfFlag;
      roles.combine_flag = static_cast<int>(i);
    } else if (argument == "reduce" && roles.combines == Combines::kNever) {
      roles.combines = Combines::kAlways;
    }
  }
  if (combining().contains(schema.name())) {
    roles.combines = Combines::kAlways;
  }
}

Roles find_roles(const c10::OperatorHandle &op) {
  const auto &schema = op.schema();
  const std::string_view name = schema.name();
  Roles roles;
  const bool is_of_other_library = name.starts_with("c10d") || name.starts_with("profiler::");
  roles.is_leaf = has_own_kernel(op) && !is_view(op) && !is_of_other_library;
  roles.is_foreign = !name.starts_with("aten::") && !name.starts_with("prims::");
  roles.leaves_uninitialized = only_allocates(name);
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto &argument = schema.arguments()[i];
    const bool is_tensor = has_tensors(*argument.type());
    roles.arguments.push_back(is_tensor ? role_of(op, argument, i == 0) : kUntouched);
    if (argument.name() == "beta") {
      roles.beta = static_cast<int>(i);
    } else if (argument.name() == "output_mask" && name.find("conv") != std::string_view::npos) {
      roles.output_mask = static_cast<int>(i);
    }
  }
  find_combination(roles, schema);
  if (roles.combines == Roles::Combines::kAlways && (roles.arguments[0] & kPartial) == 0) {
    roles.arguments[0] = static_cast<Role>(roles.arguments[0] & ~kMoves); // scatter(reduce=...)
  }
  const auto &returns = schema.returns();
  const bool depends =
      op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
  roles.synchronizes = depends || (returns.size() == 1 && !has_tensors(*returns[0].type()));
  if (name == "aten::copy_") {
    roles.movement = Roles::Movement::kCopy;
  } else if (name == "aten::cat") {
    roles.movement = Roles::Movement::kConcatenation;
  }
  return roles;
}

} // namespace

const Roles &roles_of(const c10::OperatorHandle &op) {
  static auto &known = *new std::unordered_map<std::string, std::unique_ptr<const Roles>>();
  const auto name = c10::toString(op.operator_name());
  const std::lock_guard lock(tables_mutex());
  auto &roles = known[name];
  if (!roles) {
    roles = std::make_unique<const Roles>(find_roles(op));
  }
  return *roles;
}

} // namespace openreg
