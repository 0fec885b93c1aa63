// Marks work as a copy or fill of memory. Costs one check of a flag while nothing is recorded.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>

namespace openreg {

extern std::atomic<bool> records_work;

// While one lives, all work that its thread submits to streams is this copy or fill. The innermost
// one counts.
class MemoryNote {
public:
  // A copy. Elements may be converted.
  MemoryNote(const at::Tensor &to, const at::Tensor &from) {
    if (records_work.load(std::memory_order_relaxed)) [[unlikely]] {
      begin_copy(to, from);
    }
  }
  // A fill with one byte.
  explicit MemoryNote(const at::Tensor &filled) {
    if (records_work.load(std::memory_order_relaxed) && filled.is_non_overlapping_and_dense())
        [[unlikely]] {
      begin("Memset (Device)", filled.nbytes());
    }
  }
  // A copy of one element to the host.
  enum ToNumber { kToNumber };
  MemoryNote(const at::Tensor &from, ToNumber) {
    if (records_work.load(std::memory_order_relaxed)) [[unlikely]] {
      begin("Memcpy DtoH (Device -> Pageable)", from.itemsize());
    }
  }
  ~MemoryNote() {
    if (name_ != nullptr) [[unlikely]] {
      current_ = outer_;
    }
  }
  MemoryNote(const MemoryNote &) = delete;
  MemoryNote &operator=(const MemoryNote &) = delete;

  static const MemoryNote *current() { return current_; }

  const char *name() const { return name_; }
  size_t bytes() const { return bytes_; }

private:
  void begin(const char *name, size_t bytes);
  void begin_copy(const at::Tensor &to, const at::Tensor &from);

  static constinit thread_local const MemoryNote *current_
      __attribute__((tls_model("initial-exec")));

  const char *name_ = nullptr; // null: nothing was recorded when it began
  size_t bytes_ = 0;
  const MemoryNote *outer_ = nullptr;
};

} // namespace openreg
