// Everything that PyTorch is told, in order. Nothing registers itself while the extension is
// loaded.

#include "registration/registration.h"

#include <cstdlib>

#include "core/device_type.h"
#include "core/unsupported.h"
#include "core/registration.h"
#include "graph/graph.h"
#include "launch/blas_launch.h"
#include "launch/boxed.h"
#include "memory/allocation/allocator_settings.h"
#include "memory/observation/debug_memory.h"
#include "memory/allocation/memory.h"
#include "memory/allocation/pinned.h"
#include "registration/guard.h"
#include "registration/hooks.h"
#include "operators/autocast.h"
#include "operators/sparse_indices.h"
#include "profiler/profiler.h"
#include "tensor/metadata.h"

namespace openreg {

void register_with_pytorch() {
  // what a device is
  register_guard();
  register_hooks();
  install_allocator_settings();
  install_allocators();
  install_pinned_allocator();
  install_debug_memory();
  if (!in_cuda_mode()) { // PyTorch keeps no metadata of CUDA's tensors
    register_metadata();
  }
  register_profiler();
  register_graphs();

  // kernels: those by name first, for the boxed launch serves the operators that have none by then
  LibraryBlock::register_all();
  register_sparse_indices();
  register_boxed_kernels();
  if (!in_cuda_mode()) { // PyTorch has CUDA's
    register_autocast_kernels();
  }
  if (std::getenv("OPENREG_GPU_OVERHEAD") != nullptr) { // else at the first use of a device
    register_blas_launches();
  }
  register_refusals(); // take the place of all others
}

} // namespace openreg
