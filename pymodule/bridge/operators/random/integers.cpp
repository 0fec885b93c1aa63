// The three overloads of random_, which randint calls: which integers a dtype can hold, and which
// bounds it can represent.

#include <cmath>
#include <limits>

#include "core/registration.h"
#include "operators/random/random.h"

namespace openreg {

namespace {

// Calls `visit` with a value of the C++ type of a dtype. `kernel` is the name in the error for
// other dtypes.
template <class Visit>
auto visit_type(at::ScalarType type, Visit visit, const char *kernel = "random_") {
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
    TORCH_CHECK_NOT_IMPLEMENTED(false, '"', kernel, "\" not implemented for '", c10::toString(type),
                                "'");
  }
}

template <class T>
constexpr bool is_floating =
    std::is_floating_point_v<T> || std::is_same_v<T, at::Half> || std::is_same_v<T, at::BFloat16>;

// The largest n such that the type represents all integers up to n exactly; for integers the
// maximum.
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

// Rounds a bound that a floating-point type cannot represent to the nearest one inside the range.
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
      [=](auto *output, auto share, auto philox, auto grid) {
        openreg_random(output, share, philox, grid, form, range, base);
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
    const auto round = [&](auto zero) {
      using T = decltype(zero);
      if constexpr (is_floating<T>) {
        from = round_from<T>(from);
        last = round_to<T>(last);
        TORCH_CHECK(from < last, "random_ expects 'from' casted to dtype to be less than 'to' ",
                    "casted to dtype, but got from=", from, " >= to=", last);
      }
    };
    visit_type(type, round, "random_update_from_to");
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

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("random_", &random_);
  library.impl("random_.to", &random_to_);
  library.impl("random_.from", &random_from_);
}

} // namespace openreg
