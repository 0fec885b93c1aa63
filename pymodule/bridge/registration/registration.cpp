// Registers everything with PyTorch, in order. Nothing registers itself in a static initializer.

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
#include "registration/torchscript.h"
#include "operators/autocast.h"
#include "operators/sparse_indices.h"
#include "profiler/profiler.h"
#include "tensor/metadata.h"

namespace openreg {

void register_with_pytorch() {
  // The device type.
  register_guard();
  register_hooks();
  install_allocator_settings();
  install_allocators();
  install_pinned_allocator();
  install_debug_stacks();
  if (!in_cuda_mode()) { // PyTorch supports it for PrivateUse1 only
    register_metadata();
  }
  register_profiler();
  register_graphs();
  if (in_cuda_mode()) { // TorchScript knows no other device module
    register_torchscript();
  }

  // Kernels. Named ones come first, because boxed launches serve the operators without a kernel.
  LibraryBlock::register_all();
  register_sparse_indices();
  register_boxed_kernels();
  if (!in_cuda_mode()) { // PyTorch has its own for CUDA
    register_autocast_kernels();
  }
  if (std::getenv("OPENREG_GPU_OVERHEAD") != nullptr) { // else the first use of a device does it
    register_blas_launches();
  }
  register_unsupported(); // last: replaces kernels
}

} // namespace openreg
