#include "profiler/events.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <ctime>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "compat/profiler_resources.h"
#include "core/device_type.h"
#include "core/status.h"
#include "streams/run_ahead.h"

namespace openreg {

using libkineto::ActivityType;

// ---- time ---------------------------------------------------------------------------------------

// Uses the fastest of several measurements, because the thread may be interrupted between both
// clocks.
void Clock::measure() {
  constexpr int kMeasurements = 100;
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  Pair best{};
  auto best_ns = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kMeasurements; ++i) {
    timespec time{};
    const auto before_ns = now_ns();
    clock_gettime(CLOCK_REALTIME, &time);
    const auto after_ns = now_ns();
    if (after_ns - before_ns < best_ns) {
      best_ns = after_ns - before_ns;
      best = {before_ns + (best_ns / 2), (time.tv_sec * kNsPerSecond) + time.tv_nsec};
    }
  }
  pairs_.push_back(best);
}

int64_t Clock::unix_ns(int64_t ns) const {
  const auto &first = pairs_.front(), &last = pairs_.back();
  const auto since = ns - first.ns, all = last.ns - first.ns;
  if (all <= 0) {
    return first.unix_ns + since;
  }
  const auto drift = static_cast<double>(last.unix_ns - first.unix_ns - all);
  const auto part = static_cast<double>(since) / static_cast<double>(all);
  return first.unix_ns + since + static_cast<int64_t>(drift * part);
}

// ---- names --------------------------------------------------------------------------------------

namespace {

struct ApiNames {
  const char *kernel, *copy, *fill, *graph;
  const char *wait_for_device, *wait_for_stream, *wait_for_event;
};

// Functions that give work to a stream or wait for it: CUDA's names in CUDA mode, otherwise
// openreg's.
const ApiNames &api_names() {
  static constexpr ApiNames kCuda{
      "cudaLaunchKernel",      "cudaMemcpyAsync",       "cudaMemsetAsync",     "cudaGraphLaunch",
      "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"};
  static constexpr ApiNames kOwn{"openregLaunch",
                                 "openregCopy",
                                 "openregFill",
                                 "openregGraphLaunch",
                                 "openregDeviceSynchronize",
                                 "openregStreamSynchronize",
                                 "openregEventSynchronize"};
  return in_cuda_mode() ? kCuda : kOwn;
}

const char *api_name(Awaited awaited) {
  const auto &names = api_names();
  return awaited == Awaited::kDevice   ? names.wait_for_device
         : awaited == Awaited::kStream ? names.wait_for_stream
                                       : names.wait_for_event;
}

// CUPTI's names of the same waits on the device.
const char *sync_name(Awaited awaited) {
  return awaited == Awaited::kDevice   ? "Context Sync"
         : awaited == Awaited::kStream ? "Stream Sync"
                                       : "Event Sync";
}

ActivityType call_type() {
  return in_cuda_mode() ? ActivityType::CUDA_RUNTIME : ActivityType::PRIVATEUSE1_RUNTIME;
}

// What cuBLAS calls a product. Tools that sort kernels into classes look for these words.
std::string_view product_name(std::string_view name) {
  constexpr std::array<std::string_view, 8> kOfMatrices{
      "mm", "bmm", "addmm", "addbmm", "baddbmm", "_addmm_activation", "_scaled_mm", "_int_mm"};
  constexpr std::array<std::string_view, 2> kOfVector{"mv", "addmv"};
  if (name.ends_with('_')) {
    name.remove_suffix(1); // in place
  }
  if (std::ranges::find(kOfMatrices, name) != kOfMatrices.end()) {
    return "_gemm";
  }
  return std::ranges::find(kOfVector, name) != kOfVector.end() ? "_gemv" : "";
}

// "aten::relu" becomes "relu_kernel", so that tables distinguish the kernel from the operator.
// "aten::mm" becomes "mm_gemm_kernel". A kernel for a list has CUDA's word in its name.
std::string kernel_name(std::string_view name, bool is_of_list = false) {
  constexpr std::string_view kAten = "aten::";
  std::string_view product;
  if (name.starts_with(kAten)) {
    name.remove_prefix(kAten.size());
    product = product_name(name);
  }
  return name.empty() ? "unnamed_kernel"
                      : c10::str(name, product, is_of_list ? "_multi_tensor_apply" : "", "_kernel");
}

std::string collective_name(const torch::ParamCommsDebugInfo &info) {
  return c10::str(in_cuda_mode() ? "nccl" : "occl", ":", info.getCollectiveName());
}

// Links work and its call. PyTorch numbers its operators from 1, and tools expect numbers that no
// other event of the process has.
int32_t next_id() {
  constexpr int32_t kFirst = 1 << 30;
  static std::atomic<int32_t> last{kFirst};
  return ++last;
}

struct Named {
  ActivityType type;
  std::string name;
  const char *call;
};

Named name_work(const WorkRecord &record, const libkineto::ITraceActivity *linked) {
  if (record.note == nullptr) { // submitted before the profile
    return {ActivityType::CONCURRENT_KERNEL, kernel_name(""), api_names().kernel};
  }
  const auto &note = *record.note;
  if (note.memory != nullptr) {
    const bool is_copy = std::string_view(note.memory).starts_with("Memcpy");
    return is_copy ? Named{ActivityType::GPU_MEMCPY, note.memory, api_names().copy}
                   : Named{ActivityType::GPU_MEMSET, note.memory, api_names().fill};
  }
  if (note.collective != nullptr) {
    return {ActivityType::CONCURRENT_KERNEL, collective_name(*note.collective), api_names().kernel};
  }
  const auto name = linked != nullptr ? linked->name() : note.name;
  return {ActivityType::CONCURRENT_KERNEL, kernel_name(name, note.is_of_list), api_names().kernel};
}

// Escapes text from the program for JSON.
std::string quoted(const std::string &text) {
  std::string json;
  for (const char each : text) {
    if (each == '"' || each == '\\') {
      json += '\\';
    }
    json += static_cast<unsigned char>(each) < ' ' ? ' ' : each;
  }
  return json;
}

// PyTorch's names. Tools that read traces of NCCL look for them.
std::string metadata_of(const torch::ParamCommsDebugInfo &info) {
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(info.getDType()));
  const auto elements = std::max(info.getInMessageNelems(), info.getOutMessageNelems());
  return fmt::format(
      R"("Collective name": "{}", "In msg nelems": {}, "Out msg nelems": {}, "bytes": {}, )"
      R"("Group size": {}, "dtype": "{}", "Process Group Name": "{}", )"
      R"("Process Group Description": "{}", "Rank": {}, "Seq": {})",
      info.getCollectiveName(), info.getInMessageNelems(), info.getOutMessageNelems(),
      elements * element_bytes, info.getWorldSize(), c10::toString(info.getDType()),
      quoted(info.getProcessGroupName()), quoted(info.getProcessGroupDesc()), info.getRank(),
      info.getSequenceNumber());
}

std::string metadata_of(const WorkNote &note, int64_t ns) {
  if (note.memory != nullptr) {
    const auto rate =
        static_cast<double>(note.bytes) / static_cast<double>(std::max<int64_t>(ns, 1));
    return fmt::format(R"-("bytes": {}, "memory bandwidth (GB/s)": {})-", note.bytes, rate);
  }
  return note.collective != nullptr ? metadata_of(*note.collective) : "";
}

// ---- events that produce their metadata when the trace is written -------------------------------

class DeviceWork final : public libkineto::GenericTraceActivity {
public:
  DeviceWork(const libkineto::TraceSpan &span, const Named &named)
      : GenericTraceActivity(span, named.type, named.name) {}

  void set_record(WorkRecord record) { record_ = std::move(record); }
  void attach(std::unique_ptr<const FileOnly> file) { file_ = std::move(file); }

  void log(libkineto::ActivityLogger &logger) const override {
    if (file_ != nullptr) {
      file_->log(*traceSpan(), logger);
    }
    logger.handleGenericActivity(*this);
  }

  const std::string metadataJson() const override {
    const auto &[work, note, parts] = record_;
    auto json = fmt::format(R"("device": {}, "stream": {}, "done by": "{}")", work.device,
                            work.stream, work.kind == OPENREG_TRACE_INLINE ? "caller" : "worker");
    if (note != nullptr) {
      json += fmt::format(R"(, "correlation": {})", id);
      if (const auto metadata = metadata_of(*note, duration()); !metadata.empty()) {
        json += ", " + metadata;
      }
    }
    return json;
  }

private:
  WorkRecord record_{};
  std::unique_ptr<const FileOnly> file_; // only in the first event
};

} // namespace

class ApiCall final : public libkineto::GenericTraceActivity {
public:
  using GenericTraceActivity::GenericTraceActivity;

  const std::string metadataJson() const override {
    return fmt::format(R"("correlation": {})", id);
  }
};

// ---- events -------------------------------------------------------------------------------------

void FileOnly::log(const libkineto::TraceSpan &span, libkineto::ActivityLogger &logger) const {
  for (const auto &device : devices) {
    logger.handleDeviceInfo(device, span.startTime);
  }
  for (const auto &stream : streams) {
    logger.handleResourceInfo(stream, span.startTime);
  }
  for (const auto &wait : waits) {
    logger.handleGenericActivity(wait);
  }
  for (const auto &count : counts) {
    log(count, span, logger);
  }
}

// Kineto writes counters of this type only.
void FileOnly::log(const Count &count, const libkineto::TraceSpan &span,
                   libkineto::ActivityLogger &logger) {
  constexpr double kNsPerMs = 1e6;
  const auto write = [&](const char *what, int64_t at_ns, double value) {
    libkineto::GenericTraceActivity counter(span, ActivityType::MTIA_COUNTERS,
                                            fmt::format("stream {} {}", count.stream, what));
    counter.startTime = at_ns;
    counter.endTime = at_ns;
    counter.device = count.device;
    counter.resource = count.stream;
    counter.addCounterValue(what, value);
    logger.handleGenericActivity(counter);
  };
  const auto busy_ns = count.busy_ns + count.end_ns - count.begin_ns;
  write("queue depth", count.begin_ns, static_cast<double>(count.ahead));
  write("busy ms", count.begin_ns, static_cast<double>(count.busy_ns) / kNsPerMs);
  write("queue depth", count.end_ns, static_cast<double>(count.ahead - 1));
  write("busy ms", count.end_ns, static_cast<double>(busy_ns) / kNsPerMs);
}

void Events::add(Records records) {
  std::ranges::sort(records.work, {}, [](const auto &record) { return record.work.begin_ns; });
  for (auto &record : records.work) {
    const Span span{clock_.unix_ns(record.work.begin_ns), clock_.unix_ns(record.work.end_ns)};
    if (span.end_ns < buffer_.span.startTime) {
      continue;
    }
    if (record.work.kind == OPENREG_TRACE_WAIT) {
      add_wait(record.work, span);
    } else {
      count(record.work, span);
      if (record.note != nullptr && !record.parts.empty()) {
        add_parts(record, span);
      } else {
        add_work(std::move(record), span);
      }
    }
  }
  std::ranges::for_each(records.waits, [this](const auto &wait) { add_host_wait(wait); });
  add_ranges();
  name_tracks();
}

void Events::log(libkineto::ActivityLogger &logger) {
  auto &events = buffer_.activities;
  std::erase_if(events, [this](const auto &event) { return !types_.contains(event->type()); });
  const auto first = std::ranges::find_if(
      events, [](const auto &event) { return dynamic_cast<DeviceWork *>(event.get()) != nullptr; });
  if (first != events.end()) {
    static_cast<DeviceWork &>(**first).attach(std::move(file_));
  }
  for (const auto &event : events) {
    logger.handleActivity(*event); // the logger keeps the pointer
  }
}

void Events::add_event(std::unique_ptr<Activity> activity, Span span, Track track) {
  activity->startTime = span.begin_ns;
  activity->endTime = span.end_ns;
  activity->device = track.first;
  activity->resource = track.second;
  buffer_.activities.push_back(std::move(activity));
}

const libkineto::ITraceActivity *Events::operator_of(uint64_t correlation) const {
  return correlation == 0 ? nullptr : linked_activity_(static_cast<int32_t>(correlation));
}

const libkineto::ITraceActivity *Events::operator_of(const WorkRecord &record) const {
  return record.note == nullptr ? nullptr : operator_of(record.note->correlation);
}

void Events::add_work(WorkRecord record, Span span) {
  const Track track{record.work.device, record.work.stream};
  const auto *linked = operator_of(record);
  const auto named = name_work(record, linked);
  auto work = std::make_unique<DeviceWork>(buffer_.span, named);
  auto &event = *work;
  event.linked = linked;
  if (record.note != nullptr) {
    extend_ranges(*record.note, track, span);
    event.id = next_id();
    event.flow.id = static_cast<uint32_t>(event.id);
    event.flow.type = libkineto::kLinkAsyncCpuGpu;
  }
  add_event(std::move(work), span, track);
  if (record.note != nullptr) {
    add_call(record, event, named.call, span);
  }
  event.set_record(std::move(record));
}

// The nodes of a graph, which one call launched. The arrow leads to the first node.
void Events::add_parts(const WorkRecord &record, Span span) {
  const Track track{record.work.device, record.work.stream};
  extend_ranges(*record.note, track, span);
  const auto id = next_id();
  DeviceWork *first = nullptr;
  for (const auto &part : record.parts) {
    auto work = std::make_unique<DeviceWork>(
        buffer_.span, Named{ActivityType::CONCURRENT_KERNEL, kernel_name(part.name), nullptr});
    work->set_record({record.work, std::make_unique<WorkNote>(), {}});
    work->linked = operator_of(record);
    work->id = id;
    if (first == nullptr) {
      first = work.get();
      first->flow.id = static_cast<uint32_t>(id);
      first->flow.type = libkineto::kLinkAsyncCpuGpu;
    }
    add_event(std::move(work), {clock_.unix_ns(part.begin_ns), clock_.unix_ns(part.end_ns)}, track);
  }
  add_call(record, *first, api_names().graph, span);
}

// Adds the call in which the arrow to `work` begins. Inline work takes as long as its call.
void Events::add_call(const WorkRecord &record, const Activity &work, const char *name, Span span) {
  const auto &note = *record.note;
  auto call = std::make_unique<ApiCall>(buffer_.span, call_type(), name);
  call->threadId = note.thread;
  call->id = work.id;
  call->linked = work.linked;
  call->flow = work.flow;
  call->flow.start = 1;
  const auto made_ns = std::min(clock_.unix_ns(note.made_ns), span.begin_ns);
  const bool is_inline = record.work.kind == OPENREG_TRACE_INLINE;
  add_event(std::move(call), is_inline ? span : Span{made_ns, made_ns},
            {libkineto::processId(), note.system_thread});
}

void Events::add_wait(const openreg_trace_work &work, Span span) {
  Activity wait(buffer_.span, ActivityType::CUDA_SYNC, "Stream Wait Event");
  wait.startTime = span.begin_ns;
  wait.endTime = span.end_ns;
  wait.device = work.device;
  wait.resource = work.stream;
  wait.addMetadata("device", work.device);
  wait.addMetadata("stream", work.stream);
  wait.addMetadata("wait_on_device", work.awaited_device);
  wait.addMetadata("wait_on_stream", work.awaited_stream);
  file_->waits.push_back(std::move(wait));
  busy_ns_.try_emplace({work.device, work.stream}, 0);
}

// The call is shown on the thread that waits. If the program asks for it, the device's track has
// the wait as well.
void Events::add_host_wait(const HostWaitRecord &wait) {
  const Span span{clock_.unix_ns(wait.begin_ns), clock_.unix_ns(wait.end_ns)};
  if (span.end_ns < buffer_.span.startTime) {
    return;
  }
  auto call = std::make_unique<ApiCall>(buffer_.span, call_type(), api_name(wait.awaited));
  call->threadId = wait.thread;
  call->id = next_id();
  call->linked = operator_of(wait.correlation);
  add_event(std::move(call), span, {libkineto::processId(), wait.system_thread});
  if (!types_.contains(ActivityType::CUDA_SYNC)) {
    return;
  }
  Activity sync(buffer_.span, ActivityType::CUDA_SYNC, sync_name(wait.awaited));
  sync.startTime = span.begin_ns;
  sync.endTime = span.end_ns;
  sync.device = wait.device;
  sync.resource = wait.stream;
  sync.addMetadata("device", wait.device);
  file_->waits.push_back(std::move(sync));
  busy_ns_.try_emplace({wait.device, wait.stream}, 0);
}

void Events::count(const openreg_trace_work &work, Span span) {
  auto &busy_ns = busy_ns_[{work.device, work.stream}];
  file_->counts.push_back({work.device, work.stream, span.begin_ns, span.end_ns,
                           static_cast<int64_t>(work.queue_depth), busy_ns});
  busy_ns += span.end_ns - span.begin_ns;
}

// ---- ranges -------------------------------------------------------------------------------------

void Events::extend_ranges(const WorkNote &note, Track track, Span span) {
  for (const auto *range = note.range.get(); range != nullptr; range = range->outer.get()) {
    auto &whole = ranges_.try_emplace({track, range->correlation}, span).first->second;
    whole.begin_ns = std::min(whole.begin_ns, span.begin_ns);
    whole.end_ns = std::max(whole.end_ns, span.end_ns);
  }
}

// A range on a stream extends from its first work to its last.
void Events::add_ranges() {
  for (const auto &[key, span] : ranges_) {
    const auto &[track, correlation] = key;
    const auto *linked = linked_activity_(static_cast<int32_t>(correlation));
    if (linked == nullptr) {
      continue;
    }
    auto range =
        std::make_unique<Activity>(buffer_.span, ActivityType::GPU_USER_ANNOTATION, linked->name());
    range->id = static_cast<int32_t>(correlation);
    range->linked = linked;
    add_event(std::move(range), span, track);
  }
}

// ---- tracks -------------------------------------------------------------------------------------

namespace {

openreg_device_properties properties_of(int device) {
  openreg_device_properties properties{};
  check(openreg_device_get_properties(device, &properties));
  return properties;
}

} // namespace

// Devices appear as processes, streams as threads. Kineto names the devices before this.
void Events::name_tracks() {
  int named = -1;
  for (const auto &[track, busy_ns] : busy_ns_) {
    const auto [device, stream] = track;
    if (device != named) {
      named = device;
      const auto name = c10::str(c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device)),
                                 " ", properties_of(device).profile.name);
      file_->devices.push_back(
          {device, device + libkineto::kExceedMaxPid, name, c10::str("GPU ", device)});
    }
    file_->streams.push_back(make_resource(
        device, stream,
        stream == OPENREG_STREAM_DEFAULT ? "default stream" : c10::str("stream ", stream)));
  }
}

std::string device_properties() {
  int count = 0;
  check(openreg_device_count(&count));
  std::string json;
  for (int device = 0; device < count; ++device) {
    const auto properties = properties_of(device);
    json +=
        c10::str(json.empty() ? "" : ",\n", "    {\"id\": ", device, ", \"name\": \"",
                 properties.profile.name, "\", \"totalGlobalMem\": ", properties.total_memory_bytes,
                 ", \"computeMajor\": ", properties.profile.major,
                 ", \"computeMinor\": ", properties.profile.minor,
                 ", \"numSms\": ", properties.profile.multiprocessor_count, "}");
  }
  return json;
}

} // namespace openreg
