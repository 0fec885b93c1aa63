// Dry runs, and which device memory has known values in one.
//
// In a dry run (docs/dry-run.md) all memory is allocated, but large kernels do not run. So most
// memory never gets the values that it would have on a GPU. Each block is *known* or *unknown*.
// Fresh memory is known. A kernel runs if all that it reads is known and if its tensors are small.
// What a kernel that does not run would have written is unknown. When the host reads unknown
// memory, it gets zeros, and the read is recorded.
//
// The same holds for memory that PyTorch allocates on the host (launch/dry_host.h). Any other
// memory, such as pinned memory and that of another process, is always known.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <atomic>
#include <functional>
#include <initializer_list>

#include "memory/allocation/memory.h"

namespace openreg {

struct DryRun {
  // A kernel may run if its tensors have at most so many bytes.
  size_t known_bytes = 0;
  // Called when the host reads unknown values, with the operator that reads and what it got. Raises
  // if the program wants that. With or without the GIL.
  std::function<void(const char *operator_name, const std::string &value)> record_read;
  // The values that unknown numbers of tokens for each expert get: equal ones, or zeros.
  bool routes_evenly = true;
};

// Starts a dry run, which lasts as long as the process. Call it before the devices are used.
void start_dry_run(DryRun dry_run);

inline std::atomic<bool> dry_run_exists{false};
inline bool is_dry() {
  return dry_run_exists.load(std::memory_order_relaxed);
}
const DryRun &dry_run(); // requires is_dry()

bool is_known(const at::Tensor &tensor);
void set_known(const at::Tensor &tensor, bool known);

// Call this after a kernel has run that overwrote `tensor` with known values. Memory that was
// unknown becomes known if the tensor covers all of it.
void note_overwritten(const at::Tensor &tensor);

// The memory that a kernel accesses, which decides whether it runs in a dry run.
class KernelAccesses {
public:
  void read(const at::Tensor &tensor) {
    has_unknown_ = has_unknown_ || !is_known(tensor);
    overwrite(tensor);
  }
  void overwrite(const at::Tensor &tensor);
  void read_all(c10::ArrayRef<c10::IValue> arguments);
  void read_unknown() { has_unknown_ = true; } // of somebody else

  bool have_unknown() const { return has_unknown_; }
  size_t bytes() const { return bytes_; }
  // With `more` bytes of results. The kernel must not run.
  bool are_skipped(size_t more = 0) const {
    return has_unknown_ || bytes_ + more > dry_run().known_bytes;
  }

  // Sets whether a tensor that the kernel overwrites is known afterwards.
  void mark(const at::Tensor &written) const;

private:
  size_t bytes_ = 0; // on devices
  bool has_unknown_ = false;
};

// For openreg's own kernels: returns whether the kernel must not run. Then what it writes becomes
// unknown, otherwise known. `writes` are the tensors that it overwrites; if it also reads them,
// they are in both lists. Always false if this is no dry run.
using SomeTensors = std::initializer_list<std::reference_wrapper<const at::Tensor>>;
bool skip_kernel(SomeTensors reads, SomeTensors writes);

// For memory that moves to another block, with its first `bytes`. Returns whether nothing is
// copied.
bool skip_move(const openreg_block &from, openreg_block &to, size_t bytes);

// Records that the host read unknown values.
void record_unknown_read(const char *operator_name, const std::string &value);

} // namespace openreg
