#include "distributed/staging.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "memory/allocation/lazy_clone.h"
#include "tensor/device_tensor.h"

namespace openreg {

at::Tensor Staging::add(const at::Tensor &tensor) {
  tensors_.push_back(tensor);
  if (tensor.layout() != c10::kStrided) {
    auto host = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
    copies_.emplace_back(tensor, host);
    return host;
  }
  make_writable(tensor);
  const auto &twin = twin_of(tensor);
  return at::for_blob(twin.data_ptr(), twin.sizes())
      .strides(twin.strides())
      .deleter([tensor](void *) {})
      .options(twin.options())
      .make_tensor();
}

Tensors Staging::add(const Tensors &tensors) {
  Tensors staged;
  staged.reserve(tensors.size());
  for (const auto &tensor : tensors) {
    staged.push_back(add(tensor));
  }
  return staged;
}

TensorLists Staging::add(const TensorLists &lists) {
  TensorLists staged;
  staged.reserve(lists.size());
  for (const auto &list : lists) {
    TORCH_CHECK(std::all_of(list.begin(), list.end(),
                            [&](const auto &each) { return each.device() == list[0].device(); }),
                "tensors in the nested tensor vectors need to be on the same device");
    staged.push_back(add(list));
  }
  return staged;
}

void Staging::record() {
  std::vector<c10::DeviceIndex> devices;
  for (const auto &tensor : tensors_) {
    const auto device = tensor.device().index();
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
      continue;
    }
    devices.push_back(device);
    int stream = OPENREG_STREAM_DEFAULT;
    check(openreg_stream_current(device, &stream));
    check(openreg_event_record(events_.emplace_back(make_event(device, false)).get(), stream));
  }
}

void Staging::wait() const {
  for (const auto &event : events_) {
    check(openreg_event_synchronize(event.get()));
  }
}

void Staging::copy_to_host() const {
  const at::AutoDispatchBelowAutograd no_autograd;
  for (const auto &[device, host] : copies_) {
    host.copy_(device.coalesce());
  }
}

void Staging::copy_to_device() const {
  const at::AutoDispatchBelowAutograd no_autograd;
  for (const auto &[device, host] : copies_) {
    device.copy_(host);
  }
}

} // namespace openreg
