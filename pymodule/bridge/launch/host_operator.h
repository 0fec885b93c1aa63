// Launches of host kernels: CPU kernels of openreg for operators that PyTorch has for CUDA only.
//
// A launch runs the CPU kernel of an operator (boxed_operator.h). Where PyTorch has none, openreg
// defines an operator of the same name and arguments in the namespace "openreg_host":
//
//     TORCH_LIBRARY_FRAGMENT(openreg_host, library) { library.def("thing(Tensor x) -> Tensor"); }
//     TORCH_LIBRARY_IMPL(openreg_host, CPU, library) { library.impl("thing", &kernel); }
//
// The devices' kernel of aten::thing then returns launch_host<&kernel>("openreg_host::thing", x).
//
// What the host kernel takes in memory is host memory. On the device the launch has the memory plan
// of aten::thing.
//
// In a dry run the host kernel also gets meta tensors, to find out what it returns. So it must not
// read their data.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <type_traits>

#include "core/device_type.h"

namespace openreg {

// While an object of this class lives, autograd and autocast ignore the operators that the host
// kernel calls.
class HostKernel {
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::DispatchKey::AutocastCPU};
};

// Returns what a CPU kernel computed, with the strides that CUDA's kernels give it: those of a new
// tensor like `like`.
inline at::Tensor laid_out_as(const at::Tensor &like, const at::Tensor &tensor) {
  auto result = at::empty_like(like);
  return result.strides() == tensor.strides() ? tensor : result.copy_(tensor);
}

// `kKernel`: the CPU kernel, which has the signature. PyTorch's profiler sees the call of the aten
// operator only.
template <auto kKernel, class... Args> auto launch_host(const char *name, const Args &...args) {
  using Signature = std::remove_pointer_t<decltype(kKernel)>;
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Signature>();
  return op.redispatch(c10::DispatchKeySet(kDeviceKeys.dense), args...);
}

} // namespace openreg
