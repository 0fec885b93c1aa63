// Random operators that fill a tensor: uniform, normal and derived distributions, and bernoulli.
// The generator layer draws CUDA's numbers. These kernels check and convert arguments.

#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "compat/native_functions.h"
#include "core/dtypes.h"
#include "core/registration.h"
#include "launch/by_dtype.h"
#include "launch/memory_plan.h"
#include "memory/allocation/memory.h"
#include "operators/random/random.h"

namespace openreg {

namespace {

// ---- distributions with numbers for parameters --------------------------------------------------

// PyTorch makes these checks on every device.
void check_uniform_bounds(const at::Tensor &self, double from, double to) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, self.scalar_type(), "check_uniform_bounds", [&] {
        const auto most = static_cast<double>(std::numeric_limits<scalar_t>::max());
        TORCH_CHECK(-most <= from && from <= most, "from is out of bounds for ", self.dtype());
        TORCH_CHECK(-most <= to && to <= most, "to is out of bounds for ", self.dtype());
        TORCH_CHECK(from <= to,
                    "uniform_ expects to return a [from, to) range, but found from=", from,
                    " > to=", to);
        TORCH_CHECK(to - from <= most, "uniform_ expects to-from <= std::numeric_limits<",
                    self.scalar_type(), ">::max(), but found to=", to, " and from=", from,
                    " which result in to-from to exceed the limit");
      });
}

// An empty tensor needs no kernel, so CUDA does not check its dtype.
void check_dtype_of_kernel(const at::Tensor &self, const char *kernel) {
  if (self.numel() != 0) {
    check_floating(self, kernel);
  }
}

at::Tensor &uniform_(at::Tensor &self, double from, double to, OptionalGenerator generator) {
  if (self.is_complex()) {
    auto real = at::view_as_real(self);
    uniform_(real, from, to, std::move(generator));
    return self;
  }
  check_uniform_bounds(self, from, to);
  fill_random(self, generator, "uniform_kernel_cuda", &openreg_uniform_words,
              [=](auto *output, auto share, auto philox, auto grid) {
                openreg_uniform(output, share, philox, grid, from, to);
              });
  return self;
}

at::Tensor &normal_(at::Tensor &self, double mean, double std, OptionalGenerator generator) {
  TORCH_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
  if (self.is_complex()) {
    // The real and imaginary parts share the variance. As in PyTorch, both get the mean.
    auto real = at::view_as_real(self);
    normal_(real, mean, std / std::sqrt(2.0), std::move(generator));
    return self;
  }
  check_dtype_of_kernel(self, "normal_kernel_cuda");
  fill_random(self, generator, "normal_kernel_cuda", &openreg_normal_words,
              [=](auto *output, auto share, auto philox, auto grid) {
                openreg_normal(output, share, philox, grid, mean, std);
              });
  return self;
}

at::Tensor &exponential_(at::Tensor &self, double lambda, OptionalGenerator generator) {
  TORCH_CHECK(lambda > 0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "Exponential distribution is a continuous probability distribution. dtype must be a "
              "floating point but you specified ",
              self.scalar_type());
  check_dtype_of_kernel(self, "exponential_cuda");
  fill_random(self, generator, "exponential_cuda", &openreg_exponential_words,
              [=](auto *output, auto share, auto philox, auto grid) {
                openreg_exponential(output, share, philox, grid, lambda);
              });
  return self;
}

at::Tensor &log_normal_(at::Tensor &self, double mean, double std, OptionalGenerator generator) {
  TORCH_CHECK(std > 0, "log_normal_ expects std > 0.0, but found std=", std);
  check_dtype_of_kernel(self, "log_normal_cuda");
  fill_random(self, generator, "log_normal_cuda", &openreg_log_normal_words,
              [=](auto *output, auto share, auto philox, auto grid) {
                openreg_log_normal(output, share, philox, grid, mean, std);
              });
  return self;
}

at::Tensor &cauchy_(at::Tensor &self, double median, double sigma, OptionalGenerator generator) {
  TORCH_CHECK(sigma > 0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  TORCH_CHECK(self.is_floating_point(),
              "Cauchy distribution is a continuous probability distribution. dtype must be a "
              "floating point but you specified ",
              self.dtype());
  fill_random(self, generator, "cauchy_cuda", &openreg_cauchy_words,
              [=](auto *output, auto share, auto philox, auto grid) {
                openreg_cauchy(output, share, philox, grid, median, sigma);
              });
  return self;
}

at::Tensor &geometric_(at::Tensor &self, double p, OptionalGenerator generator) {
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  constexpr Dtypes refused{at::kBool, at::kUInt16, at::kUInt32, at::kUInt64};
  if (self.numel() != 0 && refused.contains(self.scalar_type())) {
    refuse_kernel_dtype("geometric_cuda", self.scalar_type());
  }
  fill_random(self, generator, "geometric_cuda", &openreg_geometric_words,
              [=](auto *output, auto share, auto philox, auto grid) {
                openreg_geometric(output, share, philox, grid, p);
              });
  return self;
}

// Draws only the specified elements of a compressed sparse tensor.
at::Tensor &normal_sparse_csr_(at::Tensor &self, double mean, double std,
                               OptionalGenerator generator) {
  self.values().normal_(mean, std, std::move(generator));
  return self;
}

// ---- normal with tensors for mean or standard deviation -----------------------------------------

// As on the CPU and CUDA, `out` must have the right size for the next two.
at::Tensor &normal_tensor_float_out(const at::Tensor &mean, double std, OptionalGenerator generator,
                                    at::Tensor &out) {
  // CUDA makes a tensor for the deviations, which it does not fill.
  const auto deviations =
      has_planner() ? at::empty_like(out, at::MemoryFormat::Contiguous) : at::Tensor();
  return out.normal_(0, std, std::move(generator)).add_(mean);
}

void check_deviations(const at::Tensor &std) {
  TORCH_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  TORCH_CHECK(std.numel() == 0 || std.min().ge(0).item<bool>(),
              "normal expects all elements of std >= 0.0");
}

at::Tensor &normal_float_tensor_out(double mean, const at::Tensor &std, OptionalGenerator generator,
                                    at::Tensor &out) {
  check_deviations(std);
  return out.normal_(0, 1, std::move(generator)).mul_(std).add_(mean);
}

at::Tensor &normal_tensor_tensor_out(const at::Tensor &mean, const at::Tensor &std,
                                     OptionalGenerator generator, at::Tensor &out) {
  check_deviations(std);
  const auto size = at::infer_size(mean.sizes(), std.sizes());
  native::resize_output(out, size);
  return out.normal_(0, 1, std::move(generator)).mul_(std).add_(mean);
}

at::Tensor normal_tensor_float(const at::Tensor &mean, double std, OptionalGenerator generator) {
  auto out = at::empty_like(mean, at::MemoryFormat::Contiguous);
  return normal_tensor_float_out(mean, std, std::move(generator), out);
}

at::Tensor normal_float_tensor(double mean, const at::Tensor &std, OptionalGenerator generator) {
  auto out = at::empty_like(std, at::MemoryFormat::Contiguous);
  return normal_float_tensor_out(mean, std, std::move(generator), out);
}

at::Tensor normal_tensor_tensor(const at::Tensor &mean, const at::Tensor &std,
                                OptionalGenerator generator) {
  auto out = at::empty({0}, mean.options());
  return normal_tensor_tensor_out(mean, std, std::move(generator), out);
}

// ---- bernoulli ----------------------------------------------------------------------------------

void check_probability(double p) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
}

at::Tensor &bernoulli_float_(at::Tensor &self, double p, OptionalGenerator generator) {
  check_probability(p);
  fill_random(self, generator, "bernoulli_scalar_cuda_", &openreg_bernoulli_words,
              [=](auto *output, auto share, auto philox, auto grid) {
                openreg_bernoulli(output, share, philox, grid, p);
              });
  return self;
}

// The dimensions in the order in which CUDA's kernel for two tensors visits them: with descending
// strides, where the strides of both tensors agree (rearrangeDims in ATen/cuda/CUDAApplyUtils.cuh).
std::vector<int64_t> order_of_dimensions(const at::Tensor &x, const at::Tensor &y) {
  std::vector<int64_t> order(x.dim());
  std::iota(order.begin(), order.end(), 0);
  for (auto first = order.begin(); first != order.end(); first++) {
    for (auto second = first + 1; second < order.end() && x.size(*first) != 1; second++) {
      const auto of_x = x.stride(*first) - x.stride(*second);
      const auto of_y = y.stride(*first) - y.stride(*second);
      if (x.size(*second) != 1 && std::min(of_x, of_y) < 0 && std::max(of_x, of_y) <= 0) {
        std::swap(*first, *second);
      }
    }
  }
  return order;
}

at::Tensor &bernoulli_tensor_(at::Tensor &self, const at::Tensor &p, OptionalGenerator generator) {
  TORCH_CHECK(p.is_floating_point(), "expected probabilities tensor to have floating type, got ",
              p.scalar_type());
  const auto type = self.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto order = order_of_dimensions(self, p.expand(self.sizes()));
  const auto probabilities =
      p.to(self.device(), type).expand(self.sizes()).permute(order).contiguous();
  auto visited = self.permute(order);
  fill_random(
      visited, generator, "bernoulli_tensor_cuda_self_",
      [](const openreg_output *output, openreg_grid) {
        return openreg_bernoulli_tensor_words(output);
      },
      [p = kernel_address(probabilities.const_data_ptr())](
          const openreg_output *output, openreg_share share, openreg_philox philox, openreg_grid) {
        openreg_bernoulli_tensor(output, share, philox, p);
      },
      {probabilities});
  return self;
}

at::Tensor &bernoulli_out(const at::Tensor &self, OptionalGenerator generator, at::Tensor &out) {
  return out.resize_(self.sizes()).bernoulli_(self, std::move(generator));
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("uniform_", &uniform_);
  library.impl("normal_", &normal_);
  library.impl("exponential_", &exponential_);
  library.impl("log_normal_", &log_normal_);
  library.impl("cauchy_", &cauchy_);
  library.impl("geometric_", &geometric_);
  library.impl("normal.Tensor_float", &normal_tensor_float);
  library.impl("normal.Tensor_float_out", &normal_tensor_float_out);
  library.impl("normal.float_Tensor", &normal_float_tensor);
  library.impl("normal.float_Tensor_out", &normal_float_tensor_out);
  library.impl("normal.Tensor_Tensor", &normal_tensor_tensor);
  library.impl("normal.Tensor_Tensor_out", &normal_tensor_tensor_out);
  library.impl("bernoulli_.float", &bernoulli_float_);
  library.impl("bernoulli_.Tensor", &bernoulli_tensor_);
  library.impl("bernoulli.out", &bernoulli_out);
}

OPENREG_LIBRARY_IMPL(aten, sparse_csr, library) {
  library.impl("normal_", &normal_sparse_csr_);
}

} // namespace openreg
