// log_sigmoid as on CUDA: forward saves nothing. The CPU's kernel saves a buffer as large as the
// input for backward.

#include <ATen/ops/empty.h>
#include <ATen/ops/log_sigmoid_backward.h>
#include <ATen/ops/log_sigmoid_forward.h>
#include <torch/library.h>

#include <tuple>

#include "core/registration.h"
#include "launch/host_operator.h"

namespace openreg {

namespace {

using at::Tensor;
using Two = std::tuple<Tensor, Tensor>;

Two forward_on_host(const Tensor &self) {
  const HostKernel kernel;
  return {laid_out_as(self, std::get<0>(at::log_sigmoid_forward(self))),
          at::empty({0}, self.options())};
}

Tensor backward_on_host(const Tensor &gradient, const Tensor &self, const Tensor &) {
  const HostKernel kernel;
  return at::log_sigmoid_backward(gradient, self, std::get<1>(at::log_sigmoid_forward(self)));
}

TORCH_LIBRARY_FRAGMENT(openreg_host, library) {
  library.def("log_sigmoid_forward(Tensor self) -> (Tensor, Tensor)");
  library.def("log_sigmoid_backward(Tensor grad_output, Tensor self, Tensor buffer) -> Tensor");
}

TORCH_LIBRARY_IMPL(openreg_host, CPU, library) {
  library.impl("log_sigmoid_forward", &forward_on_host);
  library.impl("log_sigmoid_backward", &backward_on_host);
}

Two forward(const Tensor &self) {
  return launch_host<&forward_on_host>("openreg_host::log_sigmoid_forward", self);
}

Tensor backward(const Tensor &gradient, const Tensor &self, const Tensor &buffer) {
  return launch_host<&backward_on_host>("openreg_host::log_sigmoid_backward", gradient, self,
                                        buffer);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("log_sigmoid_forward", &forward);
  library.impl("log_sigmoid_backward", &backward);
}

} // namespace openreg
