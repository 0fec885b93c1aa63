// Random operators with one parameter per element: poisson, gamma, dirichlet, binomial, and the
// noise of randomized leaky ReLU. Each element draws as many numbers as it needs.

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>

#include <limits>

#include "core/registration.h"
#include "launch/argument_devices.h"
#include "memory/allocation/memory.h"
#include "operators/random/random.h"

namespace openreg {

namespace {

const void *source(const at::Tensor &tensor) {
  return kernel_address(tensor.const_data_ptr());
}
void *target(const at::Tensor &tensor) {
  return kernel_address(tensor.mutable_data_ptr());
}

uint64_t count_of(const at::Tensor &tensor) {
  return static_cast<uint64_t>(tensor.numel());
}

// Returns a contiguous tensor of the parameter's shape, filled by `draw(type, n, result, share,
// philox)` on the current stream. Reserves `words` words. `draw` must hold addresses only, not
// tensors.
template <class Draw>
at::Tensor draw_like(const at::Tensor &parameter, const OptionalGenerator &generator,
                     const char *kernel, uint64_t words, Draw draw) {
  check_floating(parameter, kernel);
  auto &numbers = generator_for(generator, parameter.device());
  auto result = at::empty_like(parameter, at::MemoryFormat::Contiguous);
  const auto begin = numbers.reserve(words); // CUDA takes them for an empty result, too
  if (result.numel() > 0) {
    const auto type = random_type(parameter, kernel);
    const auto n = count_of(parameter);
    auto *elements = target(result);
    if (skip_kernel({parameter}, {result})) {
      return result;
    }
    draw_on_stream(parameter.device().index(), n, [=] {
      const auto philox = begin.begin();
      fill_in_shares(n, [&](openreg_share share) { draw(type, n, elements, share, philox); });
    });
  }
  return result;
}

at::Tensor poisson(const at::Tensor &self, OptionalGenerator generator) {
  const auto lambda = self.contiguous();
  return draw_like(
      lambda, generator, "poisson_cuda", openreg_poisson_words(),
      [rates = source(lambda)](auto type, auto n, auto *result, auto share, auto philox) {
        openreg_poisson(type, n, rates, result, share, philox);
      });
}

at::Tensor standard_gamma(const at::Tensor &self, OptionalGenerator generator) {
  const auto alpha = self.contiguous();
  return draw_like(
      alpha, generator, "gamma_cuda", openreg_gamma_words(),
      [shapes = source(alpha)](auto type, auto n, auto *result, auto share, auto philox) {
        openreg_gamma(type, n, shapes, result, share, philox);
      });
}

// Returns the smallest normal number of a floating-point type, and the largest number below 1.
std::pair<double, double> open_unit_interval(at::ScalarType type) {
  const auto bounds = [](auto zero) {
    using T = decltype(zero);
    return std::pair<double, double>(std::numeric_limits<T>::min(),
                                     1 - static_cast<double>(std::numeric_limits<T>::epsilon()));
  };
  switch (type) {
  case at::kHalf:
    return bounds(at::Half{});
  case at::kBFloat16:
    return bounds(at::BFloat16{});
  case at::kFloat:
    return bounds(float{});
  default:
    return bounds(double{});
  }
}

at::Tensor sample_dirichlet(const at::Tensor &self, OptionalGenerator generator) {
  auto gammas = standard_gamma(self, std::move(generator));
  const auto [low, high] = open_unit_interval(self.scalar_type());
  return gammas.div_(gammas.sum(-1, /*keepdim=*/true)).clamp_(low, high);
}

at::Tensor binomial(const at::Tensor &count, const at::Tensor &probability,
                    OptionalGenerator generator) {
  TORCH_CHECK_VALUE(
      count.is_floating_point(),
      "binomial only supports floating-point dtypes for count, got: ", count.scalar_type());
  TORCH_CHECK_VALUE(
      probability.is_floating_point(),
      "binomial only supports floating-point dtypes for prob, got: ", probability.scalar_type());
  const auto shape = at::infer_size(count.sizes(), probability.sizes());
  const auto trials = count.expand(shape).contiguous();
  const auto p = probability.to(count.scalar_type()).expand(shape).contiguous();
  return draw_like(trials, generator, "binomial_cuda", openreg_binomial_words(),
                   [counts = source(trials), chances = source(p)](auto type, auto n, auto *result,
                                                                  auto share, auto philox) {
                     openreg_binomial(type, n, counts, chances, result, share, philox);
                   });
}

// ---- randomized leaky ReLU ----------------------------------------------------------------------

at::Tensor &rrelu_with_noise_out(const at::Tensor &self, at::Tensor &noise, const at::Scalar &lower,
                                 const at::Scalar &upper, bool training,
                                 OptionalGenerator generator, at::Tensor &out) {
  ArgumentDevices devices("aten::rrelu_with_noise", "");
  devices.check(self);
  devices.check(noise);
  devices.index(); // raises for tensors on different devices
  TORCH_CHECK(self.sym_sizes() == noise.sym_sizes(),
              "noise tensor shape must match self tensor shape.");
  if (!training) {
    return at::leaky_relu_out(out, self, (lower.toDouble() + upper.toDouble()) / 2);
  }
  TORCH_CHECK(lower.toDouble() <= upper.toDouble(),
              "Lower bound should be less than or equal to the upper bound");
  check_floating(self, "rrelu_with_noise_out_cuda");
  auto &numbers = generator_for(generator, self.device());
  out.resize_(self.sizes());
  if (self.numel() == 0) {
    return out;
  }
  const auto type = random_type(self, "rrelu_with_noise_out_cuda");
  const auto grid = grid_of(self.device());
  const auto input = self.contiguous();
  auto drawn = noise.is_contiguous() ? noise : at::empty_like(input);
  auto result = out.is_contiguous() ? out : at::empty_like(input);
  const auto words = numbers.reserve(openreg_rrelu_words(type, count_of(self), grid));
  const auto n = count_of(self);
  const void *x = source(input);
  void *slopes = target(drawn), *rectified = target(result);
  if (!skip_kernel({input}, {drawn, result})) {
    draw_on_stream(self.device().index(), n, [=, from = lower.toDouble(), to = upper.toDouble()] {
      const auto philox = words.begin();
      fill_in_shares(n, [&](openreg_share share) {
        openreg_rrelu(type, n, x, slopes, rectified, share, philox, grid, from, to);
      });
    });
  }
  if (!drawn.is_same(noise)) {
    noise.copy_(drawn);
  }
  if (!result.is_same(out)) {
    out.copy_(result);
  }
  return out;
}

at::Tensor rrelu_with_noise(const at::Tensor &self, at::Tensor &noise, const at::Scalar &lower,
                            const at::Scalar &upper, bool training, OptionalGenerator generator) {
  auto out = at::empty_like(self, at::MemoryFormat::Contiguous);
  return rrelu_with_noise_out(self, noise, lower, upper, training, std::move(generator), out);
}

at::Tensor &rrelu_with_noise_(at::Tensor &self, at::Tensor &noise, const at::Scalar &lower,
                              const at::Scalar &upper, bool training, OptionalGenerator generator) {
  return rrelu_with_noise_out(self, noise, lower, upper, training, std::move(generator), self);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("poisson", &poisson);
  library.impl("_standard_gamma", &standard_gamma);
  library.impl("_sample_dirichlet", &sample_dirichlet);
  library.impl("binomial", &binomial);
  library.impl("rrelu_with_noise", &rrelu_with_noise);
  library.impl("rrelu_with_noise.out", &rrelu_with_noise_out);
  library.impl("rrelu_with_noise_", &rrelu_with_noise_);
}

} // namespace openreg
