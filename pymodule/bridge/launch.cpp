#include "launch.h"

#include <ATen/core/op_registration/adaption.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace openreg {

namespace {

// Operators with arguments that CUDA takes from the host as well: indices of indexing (either
// place), sizes and lengths that steer the kernel, single numbers of fused optimizers.
constexpr std::array<std::string_view, 16> kHostArguments = {
    "aten::_amp_update_scale_",
    "aten::_embedding_bag",
    "aten::_fused_adagrad_",
    "aten::_fused_adam_",
    "aten::_fused_adamw_",
    "aten::_fused_sgd_",
    "aten::_index_put_impl_",
    "aten::_pack_padded_sequence",
    "aten::_pack_padded_sequence_backward",
    "aten::_unsafe_index",
    "aten::_unsafe_index_put",
    "aten::index",
    "aten::index_put",
    "aten::index_put_",
    "aten::is_set_to",
    "aten::record_stream",
};

// The name of the first argument of the operator's schema that holds `tensor`'s kind of value: for
// the error message only, so a look at the schema is cheap enough.
std::string argument_name(const char* name, const char* overload) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!op.has_value()) {
    return "tensor";
  }
  const auto& arguments = op->schema().arguments();
  // The offending tensor is never the one that set the device: name the last tensor argument.
  for (auto it = arguments.rbegin(); it != arguments.rend(); ++it) {
    if (it->type()->isSubtypeOf(*c10::TensorType::get())) {
      return it->name();
    }
  }
  return "tensors";
}

} // namespace

bool takes_host_tensors(const char* name) {
  return std::binary_search(kHostArguments.begin(), kHostArguments.end(), std::string_view(name));
}

void LaunchDevice::see_host_tensor(const at::Tensor& tensor) {
  if (tensor.is_cpu() && (tensor.dim() == 0 || takes_host_tensors(name_))) {
    return;
  }
  if (stranger_ == nullptr) {
    stranger_ = &tensor;
  }
}

void LaunchDevice::refuse(const at::Tensor& tensor) const {
  const c10::Device common(kDeviceType, index_);
  const bool exact = std::string_view(name_) == "aten::mm" || std::string_view(name_) == "aten::addmm" ||
      std::string_view(name_) == "aten::bmm";
  TORCH_CHECK(
      exact, "Expected all tensors to be on the same device, but found at least two devices, ",
      common, " and ", tensor.device(), "!");
  const auto method = std::string("wrapper_openreg_") + (name_ + sizeof("aten::") - 1);
  const auto argument = argument_name(name_, overload_);
  c10::impl::common_device_check_failure(common, tensor, method.c_str(), argument.c_str());
  TORCH_INTERNAL_ASSERT(false);
}

at::Tensor return_shared(at::Tensor&& result, c10::ArrayRef<const at::Tensor*> arguments,
                         c10::DeviceIndex device) {
  if (!result.defined() || !result.is_cpu()) {
    return std::move(result);
  }
  const auto* impl = result.unsafeGetTensorImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(
      impl->has_storage(), "openreg: a kernel returned a ", result.layout(),
      " tensor, which cannot be kept on the device");
  for (const auto* argument : arguments) {
    if (twin_of(*argument)->unsafeGetTensorImpl() == impl) {
      return *argument;
    }
  }
  const auto* host = impl->unsafe_storage().unsafeGetStorageImpl();
  for (const auto* argument : arguments) {
    const auto& storage = argument->storage();
    if (twin_storage_of(*storage.unsafeGetStorageImpl()) == host) {
      return share_storage(storage, std::move(result));
    }
  }
  auto copy = at::empty_strided(
      result.sizes(), result.strides(), result.options().device(c10::Device(kDeviceType, device)));
  copy.copy_(result);
  return copy;
}

} // namespace openreg
