// Lets torch.save and torch._utils read and write a tensor's metadata. PyTorch calls a pair of
// functions per device type. It handles the conjugate and negative bits itself.
//
// PyTorch supports such functions for PrivateUse1 only.

#include "tensor/metadata.h"

#include <torch/csrc/jit/serialization/pickler_helper.h>

#include "tensor/device_tensor.h"

namespace openreg {

namespace {

void add_metadata(const at::Tensor &tensor, Metadata &to) {
  const auto &metadata = get_metadata(tensor);
  to.insert(metadata.begin(), metadata.end());
}

} // namespace

void register_metadata() {
  torch::jit::TensorBackendMetaRegistry(
      kDeviceType, &add_metadata,
      [](const at::Tensor &tensor, const Metadata &metadata) { set_metadata(tensor, metadata); });
}

} // namespace openreg
