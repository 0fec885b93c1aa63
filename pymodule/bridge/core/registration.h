// Registers kernels under dispatch keys that are known only at run time.
//
//   OPENREG_LIBRARY_IMPL(aten, dense, library) { library.impl("abs", &abs); }
//
// stands for TORCH_LIBRARY_IMPL(aten, <the devices' dense key>, library). The block runs when the
// extension registers its kernels, not when it is loaded.
#pragma once

#include <torch/library.h>

#include "core/device_type.h"

namespace openreg {

// The kernels of one namespace and key in one file. A static object.
class LibraryBlock {
public:
  using Key = c10::DispatchKey DeviceKeys::*;

  LibraryBlock(const char *name_space, Key key, void (*fill)(torch::Library &), const char *file,
               uint32_t line)
      : name_space_(name_space), key_(key), fill_(fill), file_(file), line_(line), next_(first_) {
    first_ = this;
  }

  // Runs all blocks. Call it once. The libraries are leaked: unregistering at exit takes time, and
  // another thread may still call a kernel.
  static void register_all() {
    for (const auto *block = first_; block != nullptr; block = block->next_) {
      block->fill_(*new torch::Library(torch::Library::IMPL, block->name_space_,
                                       kDeviceKeys.*block->key_, block->file_, block->line_));
    }
  }

private:
  static constinit inline LibraryBlock *first_ = nullptr;

  const char *name_space_;
  Key key_;
  void (*fill_)(torch::Library &);
  const char *file_;
  uint32_t line_;
  LibraryBlock *next_;
};

} // namespace openreg

// `key`: a member of DeviceKeys.
#define OPENREG_LIBRARY_IMPL(name_space, key, library)                                             \
  OPENREG_LIBRARY_BLOCK(name_space, key, library, __COUNTER__)
#define OPENREG_LIBRARY_BLOCK(name_space, key, library, number)                                    \
  OPENREG_NUMBERED_BLOCK(name_space, key, library, number)
#define OPENREG_NUMBERED_BLOCK(name_space, key, library, number)                                   \
  static void fill_library_##number(torch::Library &library);                                      \
  static ::openreg::LibraryBlock library_block_##number(                                           \
      #name_space, &::openreg::DeviceKeys::key, &fill_library_##number, __FILE__, __LINE__);       \
  static void fill_library_##number(torch::Library &library)
