#include "launch/launch_device.h"

#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <ranges>
#include <array>
#include <string>
#include <string_view>

namespace openreg {

namespace {

// What an operator takes from host memory although it runs on a device, as on CUDA.
enum class Host {
  kNothing,
  kScalars, // CPU tensors of no dimensions
  kTensors, // CPU tensors in some arguments: indices, lengths
};

constexpr std::string_view kAnyOverload = "*";

struct HostArguments {
  std::string_view name;
  Host takes;
  std::string_view overload = kAnyOverload; // the only one that takes it
};

// By name, in order. Beside these, every operator tagged pointwise takes scalars.
constexpr std::array<HostArguments, 18> kHostArguments = {{
    {"aten::_fused_adagrad_", Host::kScalars, "tensor_lr"},
    {"aten::_fused_adam_", Host::kScalars, "tensor_lr"},
    {"aten::_fused_adamw_", Host::kScalars, "tensor_lr"},
    {"aten::_fused_sgd_", Host::kScalars, "tensor_lr"},
    {"aten::_index_put_impl_", Host::kTensors},
    {"aten::_pack_padded_sequence", Host::kTensors},
    {"aten::_pack_padded_sequence_backward", Host::kTensors},
    {"aten::_unsafe_index", Host::kTensors},
    {"aten::fill_", Host::kScalars},
    {"aten::floor_divide", Host::kScalars},
    {"aten::floor_divide_", Host::kScalars},
    {"aten::index", Host::kTensors},
    {"aten::index_fill_", Host::kScalars},
    {"aten::is_set_to", Host::kTensors},
    {"aten::masked_fill_", Host::kScalars},
    {"aten::record_stream", Host::kTensors},
    {"aten::rsub", Host::kScalars},
    {"aten::where", Host::kScalars},
}};

static_assert(std::ranges::is_sorted(kHostArguments, {}, &HostArguments::name));

Host host_arguments(std::string_view name, std::string_view overload,
                    const std::optional<c10::OperatorHandle> &op) {
  const auto *found = std::ranges::lower_bound(kHostArguments, name, {}, &HostArguments::name);
  if (found != kHostArguments.end() && found->name == name &&
      (found->overload == kAnyOverload || found->overload == overload)) {
    return found->takes;
  }
  return op.has_value() && op->hasTag(at::Tag::pointwise) ? Host::kScalars : Host::kNothing;
}

} // namespace

constinit thread_local const char *last_launch = "";

void LaunchDevice::see_host_tensor(const at::Tensor &tensor) {
  const auto op = c10::Dispatcher::singleton().findSchema({name_, overload_});
  const auto takes = host_arguments(name_, overload_, op);
  // Where the first tensor lies, the operator runs: others may be on the host only behind it.
  const bool welcome = tensor.is_cpu() && ((takes == Host::kTensors && index_ >= 0) ||
                                           (takes == Host::kScalars && tensor.dim() == 0));
  if (!welcome && !stranger_.has_value()) {
    stranger_ = tensor.device();
    stranger_position_ = seen_;
  }
}

void LaunchDevice::refuse(c10::Device other, int position) const {
  // As CUDA: the first tensor sets the device, and the first one elsewhere is named.
  c10::Device common(kDeviceType, index_);
  if (position < first_) {
    std::swap(common, other);
    position = first_;
  }
  const auto op = c10::Dispatcher::singleton().findSchema({name_, overload_});
  TORCH_CHECK(std::string_view(name_).find("index") == std::string_view::npos ||
                  host_arguments(name_, overload_, op) != Host::kTensors,
              "indices should be either on cpu or on the same device as the indexed tensor (",
              common, ")");
  TORCH_CHECK(host_arguments(name_, overload_, op) == Host::kNothing && op.has_value(),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              common, " and ", other, "!");
  auto method = "wrapper_openreg_" +
                std::string(op->schema().name().substr(op->schema().name().find("::") + 2));
  if (!op->schema().overload_name().empty()) {
    method += "_" + op->schema().overload_name();
  }
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but got ",
              op->schema().arguments()[static_cast<size_t>(position / kArgument)].name(), " is on ",
              other, ", different from other tensors on ", common,
              " (when checking argument in method ", method, ")");
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
