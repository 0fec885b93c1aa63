// Descriptions of accesses, as numbers that serve as the C layer's tags: the operator and its
// argument, and the tensor's dtype, sizes and device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace openreg {

struct Description {
  std::string name; // of the operator or of other work
  std::string argument;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<int64_t> sizes;
  c10::DeviceIndex device = -1;
};

// `name` must live as long as the operator. `argument` is the position of the argument; -1: a
// result.
uint64_t describe(const char *name, const char *overload, int argument, const at::Tensor &tensor);

// Describes memory that belongs to no tensor. `name` and `argument` must live as long as the
// process. `device` is -1 for host memory.
uint64_t describe(const char *name, const char *argument = "", int device = -1);

// Returns an empty description for 0.
Description description_of(uint64_t number);

} // namespace openreg
