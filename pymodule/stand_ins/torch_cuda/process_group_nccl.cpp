// What the import of PyTorch calls of the NCCL process group. CUDA mode replaces the process group
// itself (torch_openreg/cuda/nccl.py).
#include <malloc.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstring>

namespace c10d {

using gil_checker_t = bool (*)();
__attribute__((visibility("default"))) gil_checker_t &get_gil_checker();

// A function through which libtorch_python tells the watchdog of NCCL whether the GIL is free.
gil_checker_t &get_gil_checker() {
  static gil_checker_t checker = nullptr;
  return checker;
}

class ProcessGroupNCCL {
public:
  struct __attribute__((visibility("default"))) Options : Backend::Options {
    explicit Options(bool is_high_priority_stream);
    ~Options() override = default;
  };
};

// The import makes one as the default of an argument. The rest of the object belongs to NCCL, and
// its size depends on NCCL's release. All zeros are valid there: no stream priority, no parent.
// PyTorch creates the object only with `new`, so the size of the allocation covers it.
ProcessGroupNCCL::Options::Options(bool) : Backend::Options("nccl") {
  std::memset(static_cast<char *>(static_cast<void *>(this)) + sizeof(Options), 0,
              malloc_usable_size(this) - sizeof(Options));
}

} // namespace c10d
