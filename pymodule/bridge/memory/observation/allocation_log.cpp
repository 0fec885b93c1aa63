#include "memory/observation/allocation_log.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/hash.h>
#include <torch/csrc/utils/pybind.h>

#include <mutex>
#include <unordered_map>

#include "compat/autograd_node.h"
#include "core/status.h"
#include "memory/observation/memory_history.h"

namespace py = pybind11;

namespace openreg {

namespace {

constexpr int64_t kNsPerUs = 1000;
constexpr size_t kMaxFrames = 256; // of a stack; a recursive program may have more
constexpr uint8_t kMaxThreads = UINT8_MAX;

// What the log knows of a thread. Allocated on first use and never freed, as in memory_history.cpp.
struct ThreadState {
  uint8_t number;
  uint32_t module_call = 0;
  std::vector<const char *> operators; // that run now, innermost last
};
constinit thread_local ThreadState *own_state = nullptr;

ThreadState &thread_state() {
  static std::atomic<uint32_t> threads = 0;
  if (own_state == nullptr) {
    const auto number = std::min<uint32_t>(threads.fetch_add(1), kMaxThreads);
    own_state = new ThreadState{static_cast<uint8_t>(number), 0, {}};
  }
  return *own_state;
}

// ---- stacks -------------------------------------------------------------------------------------

struct Frame {
  PyCodeObject *code;
  int instruction;
  bool operator==(const Frame &other) const = default;
};
using FrameList = std::vector<Frame>;

struct HashFrames {
  size_t operator()(const FrameList &frames) const {
    size_t hash = frames.size();
    for (const auto &frame : frames) {
      hash = c10::hash_combine(hash, std::hash<const void *>()(frame.code));
      hash = c10::hash_combine(hash, static_cast<size_t>(frame.instruction));
    }
    return hash;
  }
};

// All different stacks. It keeps the code objects, so their addresses stay unique. Callers hold the
// GIL, which protects it.
struct Stacks {
  std::unordered_map<FrameList, uint32_t, HashFrames> indices;
  std::vector<const FrameList *> by_index{nullptr};

  static Stacks &get() {
    static auto &one = *new Stacks;
    return one;
  }
};

uint32_t index_of_stack() {
  if (!has_python_stack()) {
    return 0;
  }
  const py::gil_scoped_acquire gil;
  FrameList frames;
  walk_python_stack([&](PyCodeObject *code, int instruction) {
    frames.push_back({code, instruction});
    return frames.size() < kMaxFrames;
  });
  if (frames.empty()) {
    return 0;
  }
  auto &stacks = Stacks::get();
  const auto next = static_cast<uint32_t>(stacks.by_index.size());
  const auto [found, is_new] = stacks.indices.try_emplace(std::move(frames), next);
  if (is_new) {
    for (const auto &frame : found->first) {
      Py_INCREF(frame.code);
    }
    stacks.by_index.push_back(&found->first);
  }
  return found->second;
}

// ---- the log ------------------------------------------------------------------------------------

// Its lock is an innermost lock, like that of the history.
struct Log {
  std::mutex mutex;
  std::vector<LogEvent> events;
  std::vector<std::string> operations{""};
  std::unordered_map<std::string, uint32_t> operation_indices;
  std::unordered_map<uint64_t, int64_t> live; // addresses of blocks: the events that allocated them
  size_t max_events = 0;
  uint64_t lost = 0;

  static Log &get() {
    static auto &one = *new Log; // threads may outlive static objects
    return one;
  }

  uint32_t index_of_operation(const std::string &name) {
    const std::lock_guard guard(mutex);
    const auto next = static_cast<uint32_t>(operations.size());
    const auto [found, is_new] = operation_indices.try_emplace(name, next);
    if (is_new) {
      operations.push_back(name);
    }
    return found->second;
  }
};

void observe(const openreg_memory_event *event) {
  const auto *const scope = MemoryStackScope::current_cause();
  // Memory that no scope covers is freed by another thread's work, after events of streams.
  const auto cause = scope != nullptr ? *scope : find_cause(/*with_stack=*/false);
  auto &log = Log::get();
  const std::lock_guard guard(log.mutex);
  if (log.events.size() >= log.max_events) {
    ++log.lost;
    return;
  }
  if (event->action == OPENREG_MEMORY_ALLOCATED) {
    log.live[event->address] = static_cast<int64_t>(log.events.size());
  } else if (event->action == OPENREG_MEMORY_FREE_REQUESTED) {
    log.live.erase(event->address);
  }
  log.events.push_back({.time_us = c10::getTime() / kNsPerUs,
                        .address = event->address,
                        .bytes = event->bytes,
                        .block_bytes = event->block_bytes,
                        .sequence = cause.sequence,
                        .stack = cause.stack,
                        .operation = cause.operation,
                        .module_call = cause.module_call,
                        .stream = static_cast<int16_t>(event->stream),
                        .device = static_cast<uint8_t>(event->device),
                        .action = static_cast<uint8_t>(event->action),
                        .flags = cause.flags,
                        .thread = cause.thread,
                        .mempool = static_cast<uint16_t>(event->mempool)});
}

// Keeps the names of the operators that run on each thread.
void follow_operators() {
  at::addGlobalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction &function) -> std::unique_ptr<at::ObserverContext> {
            thread_state().operators.push_back(function.name());
            return nullptr;
          },
          [](const at::RecordFunction &, at::ObserverContext *) {
            auto &operators = thread_state().operators;
            if (!operators.empty()) { // else it began before the log
              operators.pop_back();
            }
          })
          .scopes({at::RecordScope::FUNCTION}));
}

} // namespace

std::atomic<bool> is_logging = false;

void start_allocation_log(size_t max_events) {
  if (is_logging.exchange(true)) {
    return;
  }
  Log::get().max_events = max_events;
  check(openreg_memory_add_observer(&observe));
  follow_operators();
}

LogCause find_cause(bool with_stack) {
  auto &state = thread_state();
  LogCause cause;
  cause.thread = state.number;
  cause.module_call = state.module_call;
  cause.sequence = static_cast<int64_t>(at::sequence_number::peek());
  if (at::GradMode::is_enabled()) {
    cause.flags |= kLogGradEnabled;
  }
  std::string name;
  if (with_stack && !state.operators.empty()) {
    name = state.operators.back();
  }
  if (is_in_backward()) {
    cause.flags |= kLogInBackward;
    const auto sequence = running_autograd_node(with_stack && name.empty() ? &name : nullptr);
    cause.sequence = sequence >= 0 ? sequence : cause.sequence;
  }
  if (with_stack) {
    cause.operation = name.empty() ? 0 : Log::get().index_of_operation(name);
    cause.stack = index_of_stack();
  }
  return cause;
}

uint32_t set_module_call(uint32_t call) {
  return std::exchange(thread_state().module_call, call);
}

LogPlace place_in_log(bool with_stack) {
  const auto stack = with_stack ? index_of_stack() : 0;
  auto &log = Log::get();
  const auto thread = thread_state().number;
  const std::lock_guard guard(log.mutex);
  return {log.events.size(), static_cast<int64_t>(at::sequence_number::peek()), stack, thread};
}

AllocationLog copy_allocation_log() {
  auto &log = Log::get();
  const std::lock_guard guard(log.mutex);
  return {log.events, log.operations, log.lost};
}

std::vector<int64_t> allocations_at(const std::vector<uint64_t> &addresses) {
  auto &log = Log::get();
  std::vector<int64_t> found;
  found.reserve(addresses.size());
  const std::lock_guard guard(log.mutex);
  for (const auto address : addresses) {
    const auto live = log.live.find(address);
    found.push_back(live == log.live.end() ? -1 : live->second);
  }
  return found;
}

std::vector<FrameText> frames_of_stack(uint32_t stack) {
  std::vector<FrameText> texts;
  const auto &stacks = Stacks::get();
  if (stack != 0 && stack < stacks.by_index.size()) {
    for (const auto &frame : *stacks.by_index[stack]) {
      texts.push_back(describe_frame(frame.code, frame.instruction));
    }
  }
  return texts;
}

} // namespace openreg
