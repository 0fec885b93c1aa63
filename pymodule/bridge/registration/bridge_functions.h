// What the stand-in libraries of PyTorch's CUDA build need of this extension module.
#pragma once

#include "core/host_functions.h"

namespace openreg {

class BridgeFunctions : public HostFunctions {
public:
  PhiloxPosition reserve_philox(c10::GeneratorImpl &generator, uint64_t words) const override;
  void register_generator(at::GraphImplInterface &graph,
                          const at::Generator &generator) const override;
  void sleep(int64_t cycles) const override;
  size_t blas_workspace_bytes(bool is_lt) const override;
  void set_blas_workspace_bytes(bool is_lt, size_t bytes) const override;
  void reset_blas_workspace_bytes(bool is_lt) const override;
  void clear_blas_workspaces() const override;

protected:
  ~BridgeFunctions() = default;
};

} // namespace openreg
