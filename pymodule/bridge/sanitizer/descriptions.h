// What a program's accesses were, as numbers for the layer sanitizer/: which argument of which
// operator, and the tensor's dtype, sizes and device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace openreg {

struct Description {
  std::string name; // of the operator, or of other work
  std::string argument;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<int64_t> sizes;
  c10::DeviceIndex device = -1;
};

// `name` lives as long as the operator; `argument`: its place, or -1 for a result.
uint64_t describe(const char *name, const char *overload, int argument, const at::Tensor &tensor);

// Of memory that is no tensor's.
uint64_t describe(const char *name);

// Empty for 0.
Description description_of(uint64_t number);

} // namespace openreg
