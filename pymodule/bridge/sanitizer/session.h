// The sanitizer of this process: the C layer's sanitizer object, and the program's streams and
// events as its threads and tokens.
//
// The host is one thread of the sanitizer, for all host threads: what one of them does counts as
// after everything that the others did before. The GIL orders Python's threads that way, and queues
// order PyTorch's own.
//
// Files of this folder include each other in one direction, from the last line to the first
// (tools/check-includes):
//   tables, call_sites, forward_sites, descriptions, accesses, roles
//   session
//   host_memory, red_zones, bad_indices
//   calls         calls of operators and their accesses
//   blocks        allocations, as the allocator reports them
//   captures      launches, at once or at each replay of a graph
//   launches      operators and other work
//   report_order  the stream observer, which passes each event to one of the above
//   runtime_calls the program's calls of the CUDA runtime, passed to the stream observer
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "sanitizer/sanitizer.h"
#include "streams/observer.h"

namespace openreg {

class SanitizerSession {
public:
  // `sanitizer` must live as long as the process.
  explicit SanitizerSession(openreg_sanitizer *sanitizer);

  // The session to report to. Null: the sanitizer is off.
  static SanitizerSession *active();
  static void activate(SanitizerSession *session);

  openreg_sanitizer *sanitizer() const { return sanitizer_; }
  openreg_sanitizer_thread *host() const { return host_; }
  openreg_sanitizer_thread *thread_of(StreamKey stream);
  openreg_sanitizer_token *token_of(const openreg_event *event);
  void release_token(const openreg_event *event) noexcept;

  static constexpr uint64_t kHostTag = 1;
  static uint64_t tag_of(StreamKey stream);
  // Device and stream are -1 if the tag is not a stream's.
  static StreamKey stream_of_tag(uint64_t tag);

  // Everything `first` did so far happens before everything `second` does from now on.
  void order(StreamKey first, StreamKey second);

  // Marks the memory of tensors as written.
  void initialize(at::TensorList tensors);

  // The block at `address` is used by a stream that does not own it, as record_stream() says.
  void add_use(const void *address, StreamKey stream);
  // The block is freed. The allocator waits for the recorded streams before it reuses the memory,
  // so what they did so far happens before what the owner does from now on.
  void end_uses(uint64_t address, StreamKey owner);

private:
  openreg_sanitizer *const sanitizer_;
  openreg_sanitizer_thread *host_ = nullptr;
  std::mutex mutex_; // of the maps; the sanitizer has a lock of its own
  std::unordered_map<uint64_t, openreg_sanitizer_thread *> threads_; // by tag
  std::unordered_map<const openreg_event *, openreg_sanitizer_token *> tokens_;
  std::unordered_multimap<uint64_t, StreamKey> uses_; // by the address of the block
};

} // namespace openreg
