// How torch.save and torch._utils find what a tensor was given as metadata: PyTorch asks a pair of
// functions of its device type, beside the conjugate and negative bits that it handles itself.
//
// PyTorch knows such functions for PrivateUse1 alone.

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
