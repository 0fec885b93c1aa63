// What the stand-in libraries of PyTorch's CUDA build need of this extension module, which they do
// not link. They cast objects that the extension registers in PyTorch: dynamic_cast compares types
// by name, also between libraries. So nothing here is exported.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace at {
struct GraphImplInterface;
}

namespace openreg {

// The hooks that the extension registers for CUDA implement it. The functions raise the exceptions
// of torch.cuda.
class HostFunctions {
public:
  // Where the random words of a launch begin. In a capture, `seed` and `offset` are addresses that
  // each replay of the graph writes, and `words` is added to the offset. Otherwise the addresses
  // are null, and the values count.
  struct PhiloxPosition {
    uint64_t seed_value, offset_value;
    const uint64_t *seed, *offset;
    uint64_t words;
  };

  // Reserves `words` random words, rounded up to a multiple of 4, of a generator of a device for a
  // launch on its current stream.
  virtual PhiloxPosition reserve_philox(c10::GeneratorImpl &generator, uint64_t words) const = 0;

  // Allows a graph that the extension made to draw from a generator. Call it before the capture.
  virtual void register_generator(at::GraphImplInterface &graph,
                                  const at::Generator &generator) const = 0;

  // Queues work on the current stream that takes `cycles` of a GPU's clock.
  virtual void sleep(int64_t cycles) const = 0;

  // The sizes of the workspaces of cuBLAS, or of cuBLASLt.
  virtual size_t blas_workspace_bytes(bool is_lt) const = 0;
  virtual void set_blas_workspace_bytes(bool is_lt, size_t bytes) const = 0;
  virtual void reset_blas_workspace_bytes(bool is_lt) const = 0;
  virtual void clear_blas_workspaces() const = 0;

protected:
  ~HostFunctions() = default;
};

// The allocator that the extension registers for CUDA implements it.
class AllocatorHistory {
public:
  using Stacks = c10::CachingDeviceAllocator::RecordContext;
  using Context = std::shared_ptr<c10::GatheredContext>;

  struct Options {
    bool enabled = false;
    Context (*gather)() = nullptr; // returns the caller's stack; null: Python's, TorchScript's
    bool cpp_frames = false;       // without `gather`: and those of C++
    size_t max_entries = 1;
    Stacks stacks = Stacks::NEVER;
    bool clear = false, compile_context = false, annotations_of_all_threads = false;
    std::vector<std::string> skipped_actions;
  };

  virtual void record_history(const Options &options) = 0;
  virtual bool is_history_on() const = 0;

  // Returns the recorded events of a device, oldest first.
  virtual std::vector<c10::CachingDeviceAllocator::TraceEntry> history_of(int device) const = 0;

  // Records that a snapshot of the device, or of one pool, was taken.
  virtual void note_snapshot(int device, size_t active_bytes, uint64_t mempool) = 0;

  // Returns the stack of the allocated block that starts at an address, or null.
  virtual Context block_context(int device, uintptr_t address) const = 0;

  virtual void set_metadata(const std::string &metadata) = 0;
  virtual std::string metadata() const = 0;

  // The arguments are those of c10::cuda::CUDACachingAllocator::OutOfMemoryObserver.
  virtual void attach_observer(std::function<void(int64_t, size_t, size_t, size_t)> observer) = 0;

protected:
  ~AllocatorHistory() = default;
};

} // namespace openreg
