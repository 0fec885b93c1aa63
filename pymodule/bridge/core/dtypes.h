// A set of dtypes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <initializer_list>

namespace openreg {

class Dtypes {
public:
  constexpr Dtypes() = default;
  constexpr Dtypes(std::initializer_list<c10::ScalarType> list) {
    for (const auto each : list) {
      bits_ |= bit(each);
    }
  }
  static constexpr uint64_t bit(c10::ScalarType dtype) {
    return uint64_t{1} << static_cast<int>(dtype);
  }
  constexpr uint64_t bits() const { return bits_; }
  constexpr bool contains(c10::ScalarType dtype) const { return (bits_ & bit(dtype)) != 0; }
  constexpr Dtypes operator|(Dtypes other) const {
    other.bits_ |= bits_;
    return other;
  }

private:
  uint64_t bits_ = 0;
};

constexpr bool is_half(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Half || dtype == c10::ScalarType::BFloat16;
}

} // namespace openreg
