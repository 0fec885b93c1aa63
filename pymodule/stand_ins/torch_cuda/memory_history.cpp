// torch/csrc/cuda/memory_snapshot.h: turns the history of device memory on and off. The checks and
// their messages are PyTorch's. c10::cuda::CUDACachingAllocator::snapshot returns the history.

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/cuda/memory_snapshot.h>
#include <torch/version.h>

#include "bridge/core/host_functions.h"

namespace torch::cuda {

namespace {

using Options = openreg::AllocatorHistory::Options;
using Stacks = openreg::AllocatorHistory::Stacks;

void record(const Options &options) {
  auto *const history =
      dynamic_cast<openreg::AllocatorHistory *>(c10::getDeviceAllocator(c10::DeviceType::CUDA));
  TORCH_CHECK(history != nullptr, "openreg: _record_memory_history needs CUDA mode: set "
                                  "OPENREG_DEVICE_TYPE=cuda before the program starts");
  history->record_history(options);
}

void check_one_of(const std::optional<std::string> &word,
                  std::initializer_list<const char *> allowed, const char *sentence) {
  TORCH_CHECK(!word || std::ranges::find(allowed, *word) != allowed.end(), sentence);
}

Stacks stacks_of(const std::optional<std::string> &context) {
  return !context              ? Stacks::NEVER
         : *context == "state" ? Stacks::STATE
         : *context == "alloc" ? Stacks::ALLOC
                               : Stacks::ALL;
}

// PyTorch has these arguments since 2.14.
[[maybe_unused]] void require_device_history(bool of_pinned_memory, bool of_devices) {
  TORCH_CHECK_NOT_IMPLEMENTED(!of_pinned_memory && of_devices,
                              "openreg records the history of device memory only: leave out "
                              "record_pinned_host_memory and record_cuda");
}

} // namespace

#if TORCH_VERSION_MINOR >= 14
#define PINNED_PARAMETERS , bool record_pinned_host_memory, bool record_cuda
#define CHECK_PINNED      require_device_history(record_pinned_host_memory, record_cuda)
#else
#define PINNED_PARAMETERS
#define CHECK_PINNED
#endif

void _record_memory_history(bool enabled, bool record_context, int64_t trace_alloc_max_entries,
                            bool trace_alloc_record_context, bool record_cpp_context,
                            bool clearHistory, bool compileContext, bool globalRecordAllocations,
                            const std::vector<std::string> &skip_actions PINNED_PARAMETERS) {
  CHECK_PINNED;
  record({.enabled = enabled,
          .cpp_frames = record_cpp_context,
          .max_entries = static_cast<size_t>(trace_alloc_max_entries),
          .stacks = trace_alloc_record_context ? Stacks::ALLOC
                    : record_context           ? Stacks::STATE
                                               : Stacks::NEVER,
          .clear = clearHistory,
          .compile_context = compileContext,
          .annotations_of_all_threads = globalRecordAllocations,
          .skipped_actions = skip_actions});
}

void _record_memory_history(std::optional<std::string> enabled, std::optional<std::string> context,
                            const std::string &stacks, size_t max_entries, bool clearHistory,
                            bool compileContext, bool globalRecordAllocations,
                            const std::vector<std::string> &skip_actions PINNED_PARAMETERS) {
  CHECK_PINNED;
  check_one_of(enabled, {"state", "all"}, "expected state to be 'state', 'all', or None");
  check_one_of(context, {"state", "alloc", "all"},
               "expected context to be 'state', 'alloc', 'all', or None");
  check_one_of(stacks, {"python", "all"}, "expected stacks to be 'python', or 'all'");
  record({.enabled = enabled.has_value(),
          .cpp_frames = stacks == "all",
          .max_entries = enabled == "all" ? max_entries : 1,
          .stacks = stacks_of(context),
          .clear = clearHistory,
          .compile_context = compileContext,
          .annotations_of_all_threads = globalRecordAllocations,
          .skipped_actions = skip_actions});
}

} // namespace torch::cuda
