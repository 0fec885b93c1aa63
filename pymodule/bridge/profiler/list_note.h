// Marks launches of an operator on a list of tensors, for which CUDA has one kernel. The profiler
// names them as CUDA does.
#pragma once

namespace openreg {

// While one lives, launches of the calling thread are marked.
class ListNote {
public:
  ListNote() { ++depth_; }
  ~ListNote() { --depth_; }
  ListNote(const ListNote &) = delete;
  ListNote &operator=(const ListNote &) = delete;

  static bool exists() { return depth_ > 0; }

private:
  static inline constinit thread_local int depth_ __attribute__((tls_model("initial-exec"))) = 0;
};

} // namespace openreg
