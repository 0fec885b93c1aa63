#include "registration/bridge_functions.h"

#include "graph/graph.h"
#include "memory/allocation/blas_workspaces.h"
#include "operators/random/torch_generator.h"
#include "streams/sleep.h"

namespace openreg {

namespace {

BlasLibrary library_of(bool is_lt) {
  return is_lt ? BlasLibrary::kCublasLt : BlasLibrary::kCublas;
}

} // namespace

HostFunctions::PhiloxPosition BridgeFunctions::reserve_philox(c10::GeneratorImpl &generator,
                                                              uint64_t words) const {
  auto *const source = dynamic_cast<GeneratorImpl *>(&generator);
  TORCH_CHECK(source != nullptr, "openreg: expected a generator of a device, got one of ",
              generator.device());
  const auto position = source->reserve(words);
  if (position.seed() != nullptr) {
    return {0, 0, position.seed(), position.offset(), position.words()};
  }
  const auto begin = position.begin();
  return {begin.seed, begin.offset, nullptr, nullptr, 0};
}

void BridgeFunctions::register_generator(at::GraphImplInterface &graph,
                                         const at::Generator &generator) const {
  dynamic_cast<Graph &>(graph).register_generator(generator);
}

void BridgeFunctions::sleep(int64_t cycles) const {
  sleep_on_current_stream(cycles);
}

size_t BridgeFunctions::blas_workspace_bytes(bool is_lt) const {
  return openreg::blas_workspace_bytes(static_cast<c10::DeviceIndex>(openreg_device_current()),
                                       library_of(is_lt));
}

void BridgeFunctions::set_blas_workspace_bytes(bool is_lt, size_t bytes) const {
  openreg::set_blas_workspace_bytes(library_of(is_lt), bytes);
}

void BridgeFunctions::reset_blas_workspace_bytes(bool is_lt) const {
  openreg::reset_blas_workspace_bytes(library_of(is_lt));
}

void BridgeFunctions::clear_blas_workspaces() const {
  openreg::clear_blas_workspaces();
}

} // namespace openreg
