#include "launch/substitution.h"

#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/empty_strided.h>

#include <utility>

#include "core/unsupported.h"
#include "launch/argument_devices.h"
#include "memory/allocation/lazy_clone.h"
#include "tensor/composite.h"

namespace openreg {

namespace {

at::Tensor return_result(at::Tensor &&result, c10::ArrayRef<Substituted> substituted,
                         c10::DeviceIndex device) {
  if (result.defined() && is_fresh(result) && !is_composite(result)) {
    return adopt_result(std::move(result), last_launch);
  }
  c10::SmallVector<const at::Tensor *, 4> arguments;
  for (const auto &each : substituted) {
    if (result.unsafeGetTensorImpl() == each.twin.unsafeGetTensorImpl()) {
      return each.tensor;
    }
    if (!is_composite(each.tensor)) {
      arguments.push_back(&each.tensor);
    }
  }
  if (result.defined() && result.is_cpu() && is_composite(result)) {
    check_dtype(result.dtype(), last_launch);
    return map_components(result, c10::Device(kDeviceType, device),
                          [&](const at::Tensor &component) {
                            return return_result(at::Tensor(component), substituted, device);
                          });
  }
  return return_alias(std::move(result), arguments, device);
}

void write_back_one(const Substituted &each, c10::ArrayRef<Substituted> substituted,
                    c10::DeviceIndex device) {
  if (is_composite(each.tensor)) {
    assign_components(each.tensor, each.twin, [&](const at::Tensor &component) {
      return return_result(at::Tensor(component), substituted, device);
    });
  } else {
    write_back(each.tensor, each.twin);
  }
}

bool is_on_device(const at::Tensor &tensor) {
  return tensor.defined() && tensor.device().type() == kDeviceType;
}

} // namespace

at::Tensor return_alias(at::Tensor &&result, c10::ArrayRef<const at::Tensor *> arguments,
                        c10::DeviceIndex device) {
  if (!result.defined() || !result.is_cpu()) {
    return std::move(result);
  }
  const auto *impl = result.unsafeGetTensorImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(impl->has_storage(), "openreg: '", last_launch, "' returned a ",
                              result.layout(),
                              " tensor without storage, which the device cannot "
                              "hold; call it on CPU tensors");
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
  const auto to = device < 0 ? static_cast<c10::DeviceIndex>(openreg_device_current()) : device;
  if (result._is_zerotensor()) { // it has no memory
    return at::_efficientzerotensor(result.sizes(),
                                    result.options().device(c10::Device(kDeviceType, to)));
  }
  if (impl->unsafe_storage().use_count() == 1) {
    return move_result(std::move(result), to, last_launch);
  }
  auto copy = at::empty_strided(result.sizes(), result.strides(),
                                result.options().device(c10::Device(kDeviceType, to)));
  copy.copy_(result);
  return copy;
}

at::Tensor substitute(const at::Tensor &tensor, bool written, SubstitutedList &substituted) {
  if (!is_on_device(tensor)) {
    return tensor;
  }
  if (is_composite(tensor)) {
    auto twin = map_components(tensor, c10::kCPU, [&](const at::Tensor &component) {
      if (written) {
        make_writable(component);
      }
      substituted.push_back({component, twin_of(component), written});
      return substituted.back().twin;
    });
    substituted.push_back({tensor, std::move(twin), written});
  } else {
    if (written) {
      make_writable(tensor);
    }
    substituted.push_back({tensor, twin_of(tensor), written});
  }
  return substituted.back().twin;
}

void write_back_all(c10::ArrayRef<Substituted> substituted, c10::DeviceIndex device) {
  for (const auto &each : substituted) {
    if (each.written) {
      write_back_one(each, substituted, device);
    }
  }
}

void return_results(torch::jit::Stack *stack, size_t count, int host_result,
                    c10::ArrayRef<Substituted> substituted, c10::DeviceIndex device) {
  const auto results = stack->end() - static_cast<std::ptrdiff_t>(count);
  for (size_t i = 0; i < count; ++i) {
    auto &value = results[static_cast<std::ptrdiff_t>(i)];
    if (static_cast<int>(i) == host_result) {
      value = value.toTensor().clone(); // out of device memory
    } else if (value.isTensor()) {
      value = return_result(std::move(value).toTensor(), substituted, device);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (auto &tensor : value.toTensorVector()) {
        list.push_back(return_result(std::move(tensor), substituted, device));
      }
      value = std::move(list);
    }
  }
}

void resize_written(c10::ArrayRef<Substituted> substituted) {
  for (const auto &each : substituted) {
    if (each.written && each.tensor.sizes() != each.twin.sizes()) {
      each.tensor.resize_(each.twin.sizes());
    }
  }
}

int64_t count_elements(c10::ArrayRef<Substituted> substituted) {
  int64_t elements = 0;
  for (const auto &each : substituted) {
    elements += each.tensor.numel();
  }
  return elements;
}

} // namespace openreg
