#include "profiler/notes.h"

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <kineto/ThreadUtil.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "core/device_type.h"
#include "core/status.h"
#include "streams/run_ahead.h"
#include "launch/argument_devices.h"
#include "profiler/list_note.h"

namespace openreg {

std::atomic<bool> records_work{false};
constinit thread_local const MemoryNote *MemoryNote::current_ = nullptr;

namespace {

std::atomic<uint64_t> recording{0};           // the number of the last recording
std::atomic<bool> is_recording{false};        // or is paused
std::atomic<bool> operators_are_named{false}; // by `name_callback`
std::optional<at::CallbackHandle> name_callback;

// ---- operators and ranges of the calling thread -------------------------------------------------

struct ThreadContext {
  uint64_t recording = 0; // in which this was entered; older contexts are discarded
  std::vector<uint64_t> operators;
  std::vector<const char *> names;
  std::shared_ptr<const NamedRange> range;
};

ThreadContext &thread_context() {
  thread_local ThreadContext here;
  if (const auto now = recording.load(std::memory_order_relaxed); here.recording != now) {
    here = {now, {}, {}, nullptr};
  }
  return here;
}

std::unique_ptr<at::ObserverContext> push_name(const at::RecordFunction &function) {
  thread_context().names.push_back(function.name()); // an operator's name, which is never freed
  return nullptr;
}

void pop_name(const at::RecordFunction &, at::ObserverContext *) {
  auto &names = thread_context().names;
  if (!names.empty()) { // otherwise the operator was entered before the recording
    names.pop_back();
  }
}

// ---- records ------------------------------------------------------------------------------------

struct ThreadRecords {
  std::mutex mutex; // contended only while records are taken
  Records list;
};

std::mutex all_mutex;
std::vector<std::shared_ptr<ThreadRecords>> &all_records() {
  static auto &all =
      *new std::vector<std::shared_ptr<ThreadRecords>>(); // never destroyed: threads may outlive it
  return all;
}

ThreadRecords &thread_records() {
  thread_local const auto own = [] {
    auto made = std::make_shared<ThreadRecords>();
    const std::lock_guard lock(all_mutex);
    all_records().push_back(made);
    return made;
  }();
  return *own;
}

// ---- the tracer ---------------------------------------------------------------------------------

void describe_work(WorkNote &note) {
  const auto &here = thread_context();
  if (!here.operators.empty()) {
    note.correlation = here.operators.back();
  }
  note.range = here.range;
  note.is_of_list = ListNote::exists();
  if (operators_are_named.load(std::memory_order_relaxed)) {
    note.name = here.names.empty() ? last_launch : here.names.back();
  }
  if (const auto *memory = MemoryNote::current(); memory != nullptr) {
    note.memory = memory->name();
    note.bytes = memory->bytes();
    return;
  }
  using c10::DebugInfoKind;
  const auto *info = c10::ThreadLocalDebugInfo::get(DebugInfoKind::PARAM_COMMS_INFO);
  if (info != nullptr) {
    const auto &collective = *static_cast<const torch::ParamCommsDebugInfo *>(info);
    note.collective = std::make_unique<torch::ParamCommsDebugInfo>(collective);
  }
}

void *create_note(openreg_trace_kind kind, int, int) {
  auto note = std::make_unique<WorkNote>();
  note->recording = recording.load(std::memory_order_relaxed);
  note->system_thread = libkineto::systemThreadId();
  note->thread = libkineto::threadId();
  note->made_ns = now_ns();
  if (kind != OPENREG_TRACE_WAIT) {
    describe_work(*note);
  }
  return note.release();
}

void record_work(const openreg_trace_work *work) {
  std::unique_ptr<WorkNote> note(static_cast<WorkNote *>(work->note));
  if (!records_work.load(std::memory_order_relaxed)) {
    return;
  }
  if (note != nullptr && note->recording != recording.load(std::memory_order_relaxed)) {
    note.reset();
  }
  auto parts = std::exchange(parts_of_work(), {});
  std::erase_if(parts, [&](const auto &part) {
    return part.begin_ns < work->begin_ns;
  }); // parts of earlier work
  auto &records = thread_records();
  const std::lock_guard lock(records.mutex);
  records.list.work.push_back({*work, std::move(note), std::move(parts)});
}

constexpr openreg_tracer kTracer{&create_note, &record_work};

void name_operators(bool name) {
  if (name_callback.has_value()) {
    at::removeCallback(*name_callback);
    name_callback.reset();
  }
  if (name) {
    name_callback = at::addGlobalCallback(
        at::RecordFunctionCallback(&push_name, &pop_name).scopes({at::RecordScope::FUNCTION}));
  }
  operators_are_named = name;
}

} // namespace

std::vector<WorkPart> &parts_of_work() {
  thread_local std::vector<WorkPart> parts;
  return parts;
}

void begin_recording(bool names_operators) {
  take_records();
  ++recording;
  name_operators(names_operators);
  openreg_trace_install(&kTracer);
  is_recording = true;
  resume_recording();
}

void end_recording() {
  pause_recording();
  name_operators(false);
  is_recording = false;
}

void pause_recording() {
  openreg_trace_end();
  records_work = false;
}

void resume_recording() {
  if (is_recording) {
    records_work = true;
    openreg_trace_begin();
  }
}

Records take_records() {
  Records taken;
  if (openreg_in_bad_fork()) { // another thread of the parent may have held the locks
    return taken;
  }
  const std::lock_guard lock(all_mutex);
  auto &all = all_records();
  for (const auto &each : all) {
    const std::lock_guard own_lock(each->mutex);
    auto &[work, waits] = each->list;
    std::move(work.begin(), work.end(), std::back_inserter(taken.work));
    taken.waits.insert(taken.waits.end(), waits.begin(), waits.end());
    work.clear();
    waits.clear();
  }
  std::erase_if(
      all, [](const auto &each) { return each.use_count() == 1; }); // of threads that have ended
  return taken;
}

void enter_operator(uint64_t correlation) {
  thread_context().operators.push_back(correlation);
}

void leave_operator() {
  auto &operators = thread_context().operators;
  if (!operators.empty()) {
    operators.pop_back();
  }
}

void enter_range(uint64_t correlation) {
  auto &here = thread_context();
  here.range = std::make_shared<const NamedRange>(correlation, std::move(here.range));
}

void leave_range() {
  auto &here = thread_context();
  if (here.range != nullptr) {
    here.range = here.range->outer;
  }
}

// ---- waits of the host --------------------------------------------------------------------------

void HostWait::begin(Awaited awaited, int device, int stream) {
  const auto &operators = thread_context().operators;
  record_ = {awaited,
             device,
             stream,
             libkineto::systemThreadId(),
             libkineto::threadId(),
             operators.empty() ? 0 : operators.back(),
             now_ns(),
             0};
}

void HostWait::begin_on_current_stream(c10::DeviceIndex device) {
  int stream = OPENREG_STREAM_DEFAULT;
  check(openreg_stream_current(device, &stream));
  begin(Awaited::kStream, device, stream);
}

void HostWait::end() noexcept {
  if (!records_work.load(std::memory_order_relaxed)) {
    return;
  }
  record_.end_ns = now_ns();
  auto &records = thread_records();
  const std::lock_guard lock(records.mutex);
  records.list.waits.push_back(record_);
}

// ---- copies and fills ---------------------------------------------------------------------------

void MemoryNote::begin(const char *name, size_t bytes) {
  name_ = name;
  bytes_ = bytes;
  outer_ = std::exchange(current_, this);
}

// CUPTI's names, which tools look for.
void MemoryNote::begin_copy(const at::Tensor &to, const at::Tensor &from) {
  const char *name = "Memcpy DtoD (Device -> Device)";
  if (from.is_cpu()) {
    name = from.is_pinned() ? "Memcpy HtoD (Pinned -> Device)" : "Memcpy HtoD (Pageable -> Device)";
  } else if (to.is_cpu()) {
    name = to.is_pinned() ? "Memcpy DtoH (Device -> Pinned)" : "Memcpy DtoH (Device -> Pageable)";
  } else if (to.device() != from.device()) {
    name = "Memcpy PtoP (Device -> Device)";
  }
  begin(name, to.nbytes());
}

} // namespace openreg
