// Random operators that fill a tensor: uniform, normal, exponential, bernoulli, integers. The
// numbers are the generator layer's, which are CUDA's; here arguments are checked and converted.

#include <ATen/ExpandUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "../memory.h"
#include "random.h"

namespace openreg {

namespace {

// ---- uniform, normal, exponential ---------------------------------------------------------------

at::Tensor &uniform_(at::Tensor &self, double from, double to, OptionalGenerator generator) {
  if (self.is_complex()) {
    auto real = at::view_as_real(self);
    uniform_(real, from, to, std::move(generator));
    return self;
  }
  check_floating(self, "uniform_kernel_openreg");
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from,
              " > to=", to);
  fill_random(self, generator, "uniform_kernel_openreg", &openreg_uniform_words,
              [&](auto *output, auto philox, auto grid) {
                openreg_uniform(output, philox, grid, from, to);
              });
  return self;
}

at::Tensor &normal_(at::Tensor &self, double mean, double std, OptionalGenerator generator) {
  TORCH_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
  if (self.is_complex()) {
    // Real and imaginary part share the variance; the mean is the real part's alone in eager
    // PyTorch only when it is a real number, which it is here.
    auto real = at::view_as_real(self);
    normal_(real, mean, std / std::sqrt(2.0), std::move(generator));
    return self;
  }
  check_floating(self, "normal_kernel_openreg");
  fill_random(self, generator, "normal_kernel_openreg", &openreg_normal_words,
              [&](auto *output, auto philox, auto grid) {
                openreg_normal(output, philox, grid, mean, std);
              });
  return self;
}

at::Tensor &exponential_(at::Tensor &self, double lambda, OptionalGenerator generator) {
  TORCH_CHECK(lambda > 0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  check_floating(self, "exponential_kernel_openreg");
  fill_random(self, generator, "exponential_kernel_openreg", &openreg_exponential_words,
              [&](auto *output, auto philox, auto grid) {
                openreg_exponential(output, philox, grid, lambda);
              });
  return self;
}

// ---- normal with tensors for mean or standard deviation -----------------------------------------

at::Tensor &shape_normal(at::Tensor &out, c10::IntArrayRef size) {
  out.resize_(size);
  return out;
}

at::Tensor &normal_tensor_float_out(const at::Tensor &mean, double std, OptionalGenerator generator,
                                    at::Tensor &out) {
  return shape_normal(out, mean.sizes()).normal_(0, std, std::move(generator)).add_(mean);
}

void check_deviations(const at::Tensor &std) {
  TORCH_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  TORCH_CHECK(std.numel() == 0 || std.min().ge(0).item<bool>(),
              "normal expects all elements of std >= 0.0");
}

at::Tensor &normal_float_tensor_out(double mean, const at::Tensor &std, OptionalGenerator generator,
                                    at::Tensor &out) {
  check_deviations(std);
  return shape_normal(out, std.sizes()).normal_(0, 1, std::move(generator)).mul_(std).add_(mean);
}

at::Tensor &normal_tensor_tensor_out(const at::Tensor &mean, const at::Tensor &std,
                                     OptionalGenerator generator, at::Tensor &out) {
  check_deviations(std);
  const auto size = at::infer_size(mean.sizes(), std.sizes());
  return shape_normal(out, size).normal_(0, 1, std::move(generator)).mul_(std).add_(mean);
}

at::Tensor normal_tensor_float(const at::Tensor &mean, double std, OptionalGenerator generator) {
  auto out = at::empty_like(mean);
  return normal_tensor_float_out(mean, std, std::move(generator), out);
}

at::Tensor normal_float_tensor(double mean, const at::Tensor &std, OptionalGenerator generator) {
  auto out = at::empty_like(std);
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
  fill_random(
      self, generator, "bernoulli_scalar_openreg_", &openreg_bernoulli_words,
      [&](auto *output, auto philox, auto grid) { openreg_bernoulli(output, philox, grid, p); });
  return self;
}

at::Tensor &bernoulli_tensor_(at::Tensor &self, const at::Tensor &p, OptionalGenerator generator) {
  TORCH_CHECK_NOT_IMPLEMENTED(p.is_floating_point(),
                              "expected probabilities tensor to have floating type, got ",
                              p.scalar_type());
  const auto type = self.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto probabilities = p.to(self.device(), type).expand(self.sizes()).contiguous();
  fill_random(
      self, generator, "bernoulli_tensor_openreg_",
      [](const openreg_output *output, openreg_grid) {
        return openreg_bernoulli_tensor_words(output);
      },
      [&](const openreg_output *output, openreg_philox philox, openreg_grid) {
        openreg_bernoulli_tensor(output, philox, kernel_address(probabilities.const_data_ptr()));
      });
  return self;
}

at::Tensor &bernoulli_out(const at::Tensor &self, OptionalGenerator generator, at::Tensor &out) {
  return out.resize_(self.sizes()).bernoulli_(self, std::move(generator));
}

// ---- integers -----------------------------------------------------------------------------------

// The largest n for which every integer up to n is exact in the type; its maximum for integers.
template <class Visit> auto visit_type(at::ScalarType type, Visit visit) {
  switch (type) {
  case at::kByte:
    return visit(uint8_t{});
  case at::kChar:
    return visit(int8_t{});
  case at::kShort:
    return visit(int16_t{});
  case at::kInt:
    return visit(int32_t{});
  case at::kLong:
    return visit(int64_t{});
  case at::kUInt16:
    return visit(uint16_t{});
  case at::kUInt32:
    return visit(uint32_t{});
  case at::kUInt64:
    return visit(uint64_t{});
  case at::kBool:
    return visit(bool{});
  case at::kHalf:
    return visit(at::Half{});
  case at::kBFloat16:
    return visit(at::BFloat16{});
  case at::kFloat:
    return visit(float{});
  case at::kDouble:
    return visit(double{});
  default:
    TORCH_CHECK_NOT_IMPLEMENTED(false, "\"random_\" not implemented for '", c10::toString(type),
                                "'");
  }
}

template <class T>
constexpr bool is_floating =
    std::is_floating_point_v<T> || std::is_same_v<T, at::Half> || std::is_same_v<T, at::BFloat16>;

int64_t largest_integer(at::ScalarType type) {
  return visit_type(type, [](auto zero) -> int64_t {
    using T = decltype(zero);
    if constexpr (is_floating<T>) {
      return int64_t{1} << std::numeric_limits<T>::digits;
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      return std::numeric_limits<int64_t>::max();
    } else {
      return static_cast<int64_t>(std::numeric_limits<T>::max());
    }
  });
}

// Moves bounds that a floating type cannot represent to the neighbour inside the range.
template <class T> int64_t round_from(int64_t from) {
  const auto bound = from + 1;
  const auto rounded = static_cast<int64_t>(static_cast<T>(bound));
  if (rounded < bound) {
    const int exponent = std::ilogb(static_cast<double>(std::abs(bound)));
    return rounded + (int64_t{1} << (exponent - std::numeric_limits<T>::digits + 1));
  }
  return from;
}

template <class T> int64_t round_to(int64_t to) {
  const auto bound = to - 1;
  const auto rounded = static_cast<int64_t>(static_cast<T>(bound));
  if (rounded >= to) {
    const int exponent = std::ilogb(static_cast<double>(std::abs(bound)));
    return rounded - (int64_t{1} << (exponent - std::numeric_limits<T>::digits + 1));
  }
  return to;
}

void check_bounds(at::ScalarType type, int64_t from, int64_t last) {
  visit_type(type, [&](auto zero) {
    using T = decltype(zero);
    const auto check_bound = [&](int64_t bound, const char *name) {
      if constexpr (is_floating<T>) {
        const auto digits = std::numeric_limits<T>::digits;
        const auto limit = static_cast<double>(std::numeric_limits<T>::max());
        TORCH_CHECK(static_cast<double>(bound) >= -limit && static_cast<double>(bound) <= limit,
                    name, " is out of bounds for ", type);
        if (bound < -(int64_t{1} << digits) || bound > (int64_t{1} << digits)) {
          TORCH_WARN(name, " is out of bounds [-(2^", digits, "), 2^", digits, "]. ",
                     "Due to precision limitations ", type, " can support discrete uniform ",
                     "distribution only within this range. This warning will become an error in ",
                     "a later release, please fix the code in advance");
        }
      } else if constexpr (!std::is_same_v<T, int64_t>) {
        const bool fits = bound >= static_cast<int64_t>(std::numeric_limits<T>::min()) &&
                          static_cast<uint64_t>(std::max<int64_t>(bound, 0)) <=
                              static_cast<uint64_t>(std::numeric_limits<T>::max());
        TORCH_CHECK(fits, name, " is out of bounds for ", type);
      }
    };
    check_bound(from, "from");
    check_bound(last, "to - 1");
  });
}

at::Tensor &fill_integers(at::Tensor &self, const OptionalGenerator &generator,
                          openreg_random_form form, uint64_t range, int64_t base) {
  fill_random(
      self, generator, "random_",
      [&](const openreg_output *output, openreg_grid grid) {
        return openreg_random_words(output, grid, form, range);
      },
      [&](const openreg_output *output, openreg_philox philox, openreg_grid grid) {
        openreg_random(output, philox, grid, form, range, base);
      });
  return self;
}

at::Tensor &random_from_(at::Tensor &self, int64_t from, std::optional<int64_t> to,
                         OptionalGenerator generator) {
  const auto type = self.scalar_type();
  if (to.has_value()) {
    TORCH_CHECK(from < *to, "random_ expects 'from' to be less than 'to', but got from=", from,
                " >= to=", *to);
    auto last = *to;
    visit_type(type, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (is_floating<T>) {
        from = round_from<T>(from);
        last = round_to<T>(last);
        TORCH_CHECK(from < last, "random_ expects 'from' casted to dtype to be less than 'to' ",
                    "casted to dtype, but got from=", from, " >= to=", last);
      }
    });
    check_bounds(type, from, last - 1);
    return fill_integers(self, generator, OPENREG_RANDOM_FROM_TO,
                         static_cast<uint64_t>(last) - static_cast<uint64_t>(from), from);
  }
  if (from == std::numeric_limits<int64_t>::lowest()) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        type == at::kLong || type == at::kDouble || type == at::kFloat || type == at::kBFloat16,
        "random_full_64_bits_range handles only int64, double, float and bfloat16");
    return fill_integers(self, generator, OPENREG_RANDOM_FULL_64, 0, 0);
  }
  const auto last = largest_integer(type);
  visit_type(type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (is_floating<T>) {
      from = round_from<T>(from);
      TORCH_CHECK(from < last, "random_ expects 'from' casted to dtype to be less than or equal ",
                  "to 'to_inc' casted to dtype, but got from=", from, " > to_inc=", last);
    }
  });
  check_bounds(type, from, last);
  return fill_integers(self, generator, OPENREG_RANDOM_FROM_TO,
                       static_cast<uint64_t>(last) - static_cast<uint64_t>(from) + 1, from);
}

at::Tensor &random_to_(at::Tensor &self, int64_t to, OptionalGenerator generator) {
  return random_from_(self, 0, to, std::move(generator));
}

at::Tensor &random_(at::Tensor &self, OptionalGenerator generator) {
  return fill_integers(self, generator, OPENREG_RANDOM_WHOLE_TYPE, 0, 0);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("uniform_", &uniform_);
  library.impl("normal_", &normal_);
  library.impl("exponential_", &exponential_);
  library.impl("normal.Tensor_float", &normal_tensor_float);
  library.impl("normal.Tensor_float_out", &normal_tensor_float_out);
  library.impl("normal.float_Tensor", &normal_float_tensor);
  library.impl("normal.float_Tensor_out", &normal_float_tensor_out);
  library.impl("normal.Tensor_Tensor", &normal_tensor_tensor);
  library.impl("normal.Tensor_Tensor_out", &normal_tensor_tensor_out);
  library.impl("bernoulli_.float", &bernoulli_float_);
  library.impl("bernoulli_.Tensor", &bernoulli_tensor_);
  library.impl("bernoulli.out", &bernoulli_out);
  library.impl("random_", &random_);
  library.impl("random_.to", &random_to_);
  library.impl("random_.from", &random_from_);
}

} // namespace openreg
