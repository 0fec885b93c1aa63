#include "launch/argument_devices.h"

#include <ATen/core/enum_tag.h>

#include <string_view>
#include <utility>

#include "compat/operator_names.h"
#include "compat/wrapper_names.h"

namespace openreg {

namespace {

HostArguments host_arguments_of(std::string_view name, std::string_view overload,
                                const std::optional<c10::OperatorHandle> &op) {
  const auto takes = host_arguments(name, overload);
  return takes == HostArguments::kNothing && op.has_value() && op->hasTag(at::Tag::pointwise) &&
                 !is_checked_on_cuda(name)
             ? HostArguments::kScalars
             : takes;
}

// CUDA's words.
[[noreturn]] void refuse_host_scalar(const c10::FunctionSchema &schema, size_t argument) {
  const auto &arguments = schema.arguments();
  TORCH_CHECK(false, "CPU Scalar support for ", arguments[argument].name(),
              " argument is not supported when calling addcmul on ", platform_name(), " tensors.",
              argument == 0 ? ""
                            : " However, CPU Scalar support for tensor2 is supported, please swap "
                              "your tensor1 and tensor2 terms.");
}

} // namespace

constinit thread_local const char *last_launch = "";

const char *captured_name() {
  return last_launch;
}

void ArgumentDevices::check_host_tensor(const at::Tensor &tensor) {
  const auto op = c10::Dispatcher::singleton().findSchema({name_, overload_});
  const auto takes = host_arguments_of(name_, overload_, op);
  const auto argument = static_cast<size_t>(position_ / kArgument);
  // The first tensor decides where the operator runs, so only later ones may be on the host.
  const bool is_allowed =
      tensor.is_cpu() && ((takes == HostArguments::kTensors && index_ >= 0) ||
                          (takes == HostArguments::kScalars && tensor.dim() == 0) ||
                          (takes == HostArguments::kNumbers && tensor.numel() == 1));
  if (is_allowed && refuses_host_scalar(name_, argument)) {
    refuse_host_scalar(op->schema(), argument);
  }
  if (!is_allowed && !misplaced_.has_value()) {
    misplaced_ = tensor.device();
    misplaced_position_ = position_;
  }
}

void ArgumentDevices::refuse(c10::Device other, int position) const {
  c10::Device common(kDeviceType, index_);
  const auto op = c10::Dispatcher::singleton().findSchema({name_, overload_});
  const auto takes = host_arguments_of(name_, overload_, op);
  TORCH_CHECK(std::string_view(name_).find("index") == std::string_view::npos ||
                  takes != HostArguments::kTensors,
              "indices should be either on cpu or on the same device as the indexed tensor (",
              position < first_ ? other : common, ")");
  const auto [first, second] =
      position < first_ ? std::pair(other, common) : std::pair(common, other);
  TORCH_CHECK(!std::string_view(name_).starts_with("aten::masked_fill"),
              "expected self and mask to be on the same device, but got mask on ", second,
              " and self on ", first);
  // As on CUDA, pointwise operators run on the device of the first device tensor,
  TORCH_CHECK(takes == HostArguments::kNothing && op.has_value() && !leaves_argument_unnamed(name_),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              common, " and ", other, "!");
  // and others where the first tensor is. The error names the first tensor that is elsewhere.
  if (position < first_) {
    std::swap(common, other);
    position = first_;
  }
  const auto argument = op->schema().arguments()[static_cast<size_t>(position / kArgument)].name();
  const auto quoted = quoted_by_cuda(*op, argument);
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but got ", quoted.argument,
              " is on ", other, ", different from other tensors on ", common,
              " (when checking argument in method wrapper_", platform_name(), "_", quoted.method,
              ")");
}

} // namespace openreg
