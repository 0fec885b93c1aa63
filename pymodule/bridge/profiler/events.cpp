#include "profiler/events.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "core/device_type.h"
#include "core/status.h"
#include "streams/pace.h"

namespace openreg {

using libkineto::ActivityType;

// ---- time ---------------------------------------------------------------------------------------

// The quickest of some looks at both clocks, for the thread may be interrupted between them.
void Clock::measure() {
  constexpr int kLooks = 100;
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  Pair best{};
  auto best_ns = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kLooks; ++i) {
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

struct Calls {
  const char *kernel, *copy, *fill, *wait;
};

// What a thread calls to give work to a stream: CUDA's functions, or ours.
const Calls &calls() {
  static constexpr Calls kCuda{"cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync",
                               "cudaStreamWaitEvent"};
  static constexpr Calls kOwn{"openregLaunch", "openregCopy", "openregFill", "openregWaitEvent"};
  return in_cuda_mode() ? kCuda : kOwn;
}

ActivityType call_type() {
  return in_cuda_mode() ? ActivityType::CUDA_RUNTIME : ActivityType::PRIVATEUSE1_RUNTIME;
}

// "aten::mm" becomes "mm_kernel", so that tables tell the kernel from the operator.
std::string kernel_name(std::string_view name) {
  constexpr std::string_view kAten = "aten::";
  if (name.starts_with(kAten)) {
    name.remove_prefix(kAten.size());
  }
  return name.empty() ? "unnamed_kernel" : c10::str(name, "_kernel");
}

std::string collective_name(const torch::ParamCommsDebugInfo &info) {
  return c10::str(in_cuda_mode() ? "nccl" : "occl", ":", info.getCollectiveName());
}

struct Named {
  ActivityType type;
  std::string name;
  const char *call;
};

Named name_work(const WorkRecord &record, const libkineto::ITraceActivity *linked) {
  if (record.note == nullptr) { // of before the profile
    return {ActivityType::CONCURRENT_KERNEL, kernel_name(""), calls().kernel};
  }
  const auto &note = *record.note;
  if (note.memory != nullptr) {
    const bool is_copy = std::string_view(note.memory).starts_with("Memcpy");
    return is_copy ? Named{ActivityType::GPU_MEMCPY, note.memory, calls().copy}
                   : Named{ActivityType::GPU_MEMSET, note.memory, calls().fill};
  }
  if (note.collective != nullptr) {
    return {ActivityType::CONCURRENT_KERNEL, collective_name(*note.collective), calls().kernel};
  }
  const auto name = linked != nullptr ? linked->name() : note.name;
  return {ActivityType::CONCURRENT_KERNEL, kernel_name(name), calls().kernel};
}

// PyTorch's names, which tools that read traces of NCCL look for.
void describe_collective(libkineto::GenericTraceActivity &activity,
                         const torch::ParamCommsDebugInfo &info) {
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(info.getDType()));
  const auto elements = std::max(info.getInMessageNelems(), info.getOutMessageNelems());
  activity.addMetadataQuoted("Collective name", info.getCollectiveName());
  activity.addMetadata("In msg nelems", info.getInMessageNelems());
  activity.addMetadata("Out msg nelems", info.getOutMessageNelems());
  activity.addMetadata("bytes", elements * element_bytes);
  activity.addMetadata("Group size", info.getWorldSize());
  activity.addMetadataQuoted("dtype", c10::toString(info.getDType()));
  activity.addMetadataQuoted("Process Group Name", info.getProcessGroupName());
  activity.addMetadataQuoted("Process Group Description", info.getProcessGroupDesc());
  activity.addMetadata("Rank", info.getRank());
  activity.addMetadata("Seq", info.getSequenceNumber());
}

void describe_memory(libkineto::GenericTraceActivity &activity, const WorkNote &note) {
  activity.addMetadata("bytes", note.bytes);
  if (const auto ns = activity.duration(); ns > 0) {
    activity.addMetadata("memory bandwidth (GB/s)",
                         static_cast<double>(note.bytes) / static_cast<double>(ns));
  }
}

} // namespace

// ---- events -------------------------------------------------------------------------------------

namespace {

// Kineto has each of its events write itself to the file. This one writes more.
class WithFileOnly final : public libkineto::GenericTraceActivity {
public:
  WithFileOnly(const GenericTraceActivity &event, std::unique_ptr<const FileOnly> file)
      : GenericTraceActivity(event), file_(std::move(file)) {}

  void log(libkineto::ActivityLogger &logger) const override {
    for (const auto &device : file_->devices) {
      logger.handleDeviceInfo(device, file_->time_ns);
    }
    for (const auto &stream : file_->streams) {
      logger.handleResourceInfo(stream, file_->time_ns);
    }
    logger.handleGenericActivity(*this);
    for (const auto &activity : file_->activities) {
      logger.handleGenericActivity(*activity);
    }
  }

private:
  std::unique_ptr<const FileOnly> file_;
};

} // namespace

void Events::add(std::vector<WorkRecord> records) {
  std::ranges::sort(records, {}, [](const auto &record) { return record.work.begin_ns; });
  for (const auto &record : records) {
    add_work(record);
  }
  add_ranges();
  name_tracks();
}

void Events::tell(libkineto::ActivityLogger &logger) {
  file_->time_ns = begin_ns_;
  if (auto &events = buffer_.activities; !events.empty()) {
    events.front() = std::make_unique<WithFileOnly>(*events.front(), std::move(file_));
  }
  for (const auto &event : buffer_.activities) {
    logger.handleActivity(*event); // it keeps the pointer
  }
}

libkineto::GenericTraceActivity &Events::add_activity(ActivityType type, const std::string &name,
                                                      Span span) {
  buffer_.emplace_activity(buffer_.span, type, name);
  auto &activity = *buffer_.activities.back();
  activity.startTime = span.begin_ns;
  activity.endTime = span.end_ns;
  return activity;
}

libkineto::GenericTraceActivity &Events::add_to_file(ActivityType type, const std::string &name,
                                                     int64_t at_ns) {
  file_->activities.push_back(std::make_unique<Activity>(buffer_.span, type, name));
  auto &activity = *file_->activities.back();
  activity.startTime = at_ns;
  activity.endTime = at_ns;
  return activity;
}

void Events::add_work(const WorkRecord &record) {
  const auto &work = record.work;
  const Span span{clock_.unix_ns(work.begin_ns), clock_.unix_ns(work.end_ns)};
  if (span.end_ns < begin_ns_) {
    return;
  }
  if (work.kind == OPENREG_TRACE_WAIT) {
    add_wait(record, span);
    return;
  }
  const auto *note = record.note.get();
  const auto *linked = note == nullptr || note->correlation == 0
                           ? nullptr
                           : linked_activity_(static_cast<int32_t>(note->correlation));
  const auto [type, name, call] = name_work(record, linked);
  auto &activity = add_activity(type, name, span);
  activity.device = work.device;
  activity.resource = work.stream;
  activity.linked = linked;
  activity.addMetadata("device", work.device);
  activity.addMetadata("stream", work.stream);
  activity.addMetadataQuoted("done by", work.kind == OPENREG_TRACE_INLINE ? "caller" : "worker");
  add_counters(record);
  if (note == nullptr) {
    return;
  }
  if (note->memory != nullptr) {
    describe_memory(activity, *note);
  } else if (note->collective != nullptr) {
    describe_collective(activity, *note->collective);
  }
  extend_ranges(*note, {work.device, work.stream}, span);
  activity.id = ++last_id_;
  activity.addMetadata("correlation", activity.id);
  activity.flow.id = static_cast<uint32_t>(activity.id);
  activity.flow.type = libkineto::kLinkAsyncCpuGpu;
  activity.flow.start = 0;
  add_call(record, activity, call);
}

// Where the arrow begins. What the thread does itself takes it as long as the work.
void Events::add_call(const WorkRecord &record, const Activity &work, const char *name) {
  const auto &note = *record.note;
  const auto made_ns = std::min(clock_.unix_ns(note.made_ns), work.startTime);
  const auto span = record.work.kind == OPENREG_TRACE_INLINE ? Span{work.startTime, work.endTime}
                                                             : Span{made_ns, made_ns};
  auto &call = add_activity(call_type(), name, span);
  call.device = libkineto::processId();
  call.resource = note.system_thread;
  call.threadId = note.thread;
  call.id = work.id;
  call.linked = work.linked;
  call.addMetadata("correlation", call.id);
  call.flow = work.flow;
  call.flow.start = 1;
}

// Not an event to PyTorch, whose tables would count it as the device's work.
void Events::add_wait(const WorkRecord &record, Span span) {
  const auto &work = record.work;
  auto &activity = add_to_file(ActivityType::CUDA_SYNC, "Stream Wait Event", span.begin_ns);
  activity.endTime = span.end_ns;
  activity.device = work.device;
  activity.resource = work.stream;
  activity.addMetadata("device", work.device);
  activity.addMetadata("stream", work.stream);
  activity.addMetadata("wait_on_device", work.awaited_device);
  activity.addMetadata("wait_on_stream", work.awaited_stream);
}

// How much work the stream had, and for how long it had worked, when the work began and ended.
// Kineto writes counters of this type alone.
void Events::add_counters(const WorkRecord &record) {
  constexpr double kNsPerMs = 1e6;
  const auto &work = record.work;
  auto &busy_ns = busy_ns_[{work.device, work.stream}];
  const auto count = [&](const char *what, int64_t ns, double value) {
    auto &counter = add_to_file(ActivityType::MTIA_COUNTERS,
                                c10::str("stream ", work.stream, " ", what), clock_.unix_ns(ns));
    counter.device = work.device;
    counter.resource = work.stream;
    counter.addCounterValue(what, value);
  };
  const auto ahead = static_cast<double>(work.ahead);
  count("queue depth", work.begin_ns, ahead);
  count("busy ms", work.begin_ns, static_cast<double>(busy_ns) / kNsPerMs);
  busy_ns += work.end_ns - work.begin_ns;
  count("queue depth", work.end_ns, ahead - 1);
  count("busy ms", work.end_ns, static_cast<double>(busy_ns) / kNsPerMs);
}

// ---- ranges -------------------------------------------------------------------------------------

void Events::extend_ranges(const WorkNote &note, Track track, Span span) {
  for (const auto *range = note.range.get(); range != nullptr; range = range->outer.get()) {
    auto &whole = ranges_.try_emplace({track, range->correlation}, span).first->second;
    whole.begin_ns = std::min(whole.begin_ns, span.begin_ns);
    whole.end_ns = std::max(whole.end_ns, span.end_ns);
  }
}

// From the first to the last work of the range on a stream.
void Events::add_ranges() {
  for (const auto &[key, span] : ranges_) {
    const auto &[track, correlation] = key;
    const auto *linked = linked_activity_(static_cast<int32_t>(correlation));
    if (linked == nullptr) {
      continue;
    }
    auto &activity = add_activity(ActivityType::GPU_USER_ANNOTATION, linked->name(), span);
    activity.device = track.first;
    activity.resource = track.second;
    activity.id = static_cast<int32_t>(correlation);
    activity.linked = linked;
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

// Processes are devices, threads are streams. Kineto gives devices names of its own before.
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
    file_->streams.push_back({stream, stream, device,
                              stream == OPENREG_STREAM_DEFAULT ? "default stream"
                                                               : c10::str("stream ", stream)});
  }
}

std::string device_properties() {
  int count = 0;
  check(openreg_device_count(&count));
  std::string json;
  for (int device = 0; device < count; ++device) {
    const auto properties = properties_of(device);
    json += c10::str(json.empty() ? "" : ",\n", "    {\"id\": ", device, ", \"name\": \"",
                     properties.profile.name,
                     "\", \"totalGlobalMem\": ", properties.total_memory_bytes,
                     ", \"computeMajor\": ", properties.profile.major,
                     ", \"computeMinor\": ", properties.profile.minor,
                     ", \"numSms\": ", properties.profile.multiprocessor_count, "}");
  }
  return json;
}

} // namespace openreg
