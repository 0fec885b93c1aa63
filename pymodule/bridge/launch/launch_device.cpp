#include "launch/launch_device.h"

#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty_strided.h>

#include <string_view>

#include "compat/operator_names.h"
#include "compat/wrapper_names.h"

namespace openreg {

namespace {

HostArguments host_arguments_of(std::string_view name, std::string_view overload,
                                const std::optional<c10::OperatorHandle> &op) {
  const auto takes = host_arguments(name, overload);
  return takes == HostArguments::kNothing && op.has_value() && op->hasTag(at::Tag::pointwise)
             ? HostArguments::kScalars
             : takes;
}

} // namespace

constinit thread_local const char *last_launch = "";

const char *captured_name() {
  return last_launch;
}

void LaunchDevice::see_host_tensor(const at::Tensor &tensor) {
  const auto op = c10::Dispatcher::singleton().findSchema({name_, overload_});
  const auto takes = host_arguments_of(name_, overload_, op);
  // Where the first tensor lies, the operator runs: others may be on the host only behind it.
  const bool welcome = tensor.is_cpu() && ((takes == HostArguments::kTensors && index_ >= 0) ||
                                           (takes == HostArguments::kScalars && tensor.dim() == 0));
  if (!welcome && !stranger_.has_value()) {
    stranger_ = tensor.device();
    stranger_position_ = seen_;
  }
}

void LaunchDevice::refuse(c10::Device other, int position) const {
  c10::Device common(kDeviceType, index_);
  const auto op = c10::Dispatcher::singleton().findSchema({name_, overload_});
  const auto takes = host_arguments_of(name_, overload_, op);
  TORCH_CHECK(std::string_view(name_).find("index") == std::string_view::npos ||
                  takes != HostArguments::kTensors,
              "indices should be either on cpu or on the same device as the indexed tensor (",
              position < first_ ? other : common, ")");
  // As CUDA: pointwise operators run where the first tensor of a device lies,
  TORCH_CHECK(takes == HostArguments::kNothing && op.has_value(),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              common, " and ", other, "!");
  // others where the first tensor does, and the first one elsewhere is named.
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

at::Tensor return_shared(at::Tensor &&result, c10::ArrayRef<const at::Tensor *> arguments,
                         c10::DeviceIndex device) {
  if (!result.defined() || !result.is_cpu()) {
    return std::move(result);
  }
  const auto *impl = result.unsafeGetTensorImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(impl->has_storage(), "openreg: a kernel returned a ", result.layout(),
                              " tensor, which cannot be kept on the device");
  for (const auto *argument : arguments) {
    if (twin_of(*argument).unsafeGetTensorImpl() == impl) {
      return *argument;
    }
  }
  const auto *host = impl->unsafe_storage().unsafeGetStorageImpl();
  for (const auto *argument : arguments) {
    const auto &storage = argument->storage();
    if (twin_storage_of(*storage.unsafeGetStorageImpl()) == host) {
      return share_storage(*argument, std::move(result));
    }
  }
  if (host->data_ptr().get_deleter() == &free_redirected && host->data_ptr().get() == nullptr) {
    return hand_over_empty(std::move(result), device, last_launch);
  }
  auto copy = at::empty_strided(result.sizes(), result.strides(),
                                result.options().device(c10::Device(kDeviceType, device)));
  copy.copy_(result);
  return copy;
}

} // namespace openreg
