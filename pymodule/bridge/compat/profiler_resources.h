// Tracks of a profile. The order of ResourceInfo's members changed in 2.13.
#pragma once

#include <kineto/libkineto.h>
#include <torch/version.h>

#include <cstdint>
#include <string>
#include <utility>

namespace openreg {

inline libkineto::ResourceInfo make_resource(int64_t device, int64_t id, std::string name) {
#if TORCH_VERSION_MINOR < 13
  return {device, id, /*sortIndex=*/id, std::move(name)};
#else
  return {id, /*sortIndex=*/id, device, std::move(name)};
#endif
}

} // namespace openreg
