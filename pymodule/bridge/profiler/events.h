// Kineto's events of what was recorded.
#pragma once

#define FMT_HEADER_ONLY
#include <kineto/libkineto.h>
#include <kineto/output_base.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "profiler/notes.h"

namespace openreg {

// From openreg_now_ns to the time of day, which is Kineto's: both as they were at the first and
// the last measurement, and in between in proportion.
class Clock {
public:
  void measure();
  int64_t unix_ns(int64_t ns) const;

private:
  struct Pair {
    int64_t ns, unix_ns;
  };
  std::vector<Pair> pairs_;
};

// What stands in the file of a trace and would disturb PyTorch's tables: names of tracks, waits,
// counters. It is written with the first event.
struct FileOnly {
  // Of a stream: how much work it had when some began, with that, and for how long it had worked.
  struct Count {
    int device, stream;
    int64_t begin_ns, end_ns, ahead, busy_ns;
  };

  void log(const libkineto::TraceSpan &span, libkineto::ActivityLogger &logger) const;
  static void log(const Count &count, const libkineto::TraceSpan &span,
                  libkineto::ActivityLogger &logger);

  std::vector<libkineto::DeviceInfo> devices;
  std::vector<libkineto::ResourceInfo> streams;
  std::vector<libkineto::GenericTraceActivity> waits;
  std::vector<Count> counts;
};

class Call;

class Events {
public:
  // They are added to `buffer`, which lasts as long as this; work that ended before its span began
  // is left out.
  Events(libkineto::CpuTraceBuffer &buffer, const Clock &clock,
         const libkineto::getLinkedActivityCallback &linked_activity)
      : buffer_(buffer), clock_(clock), linked_activity_(linked_activity) {}

  void add(std::vector<WorkRecord> records);

  // At once what are events to PyTorch too, the rest when the trace is written.
  void tell(libkineto::ActivityLogger &logger);

private:
  using Activity = libkineto::GenericTraceActivity;
  using Track = std::pair<int, int>; // device and stream, or process and thread

  struct Span {
    int64_t begin_ns, end_ns;
  };

  void put(std::unique_ptr<Activity> activity, Span span, Track track);
  void add_work(WorkRecord record, Span span);
  void add_parts(const WorkRecord &record, Span span);
  void add_wait(const openreg_trace_work &work, Span span);
  void put_call(const WorkRecord &record, const Activity &work, const char *name, Span span);
  const libkineto::ITraceActivity *operator_of(const WorkRecord &record) const;
  void count(const openreg_trace_work &work, Span span);
  void extend_ranges(const WorkNote &note, Track track, Span span);
  void add_ranges();
  void name_tracks();

  libkineto::CpuTraceBuffer &buffer_;
  const Clock &clock_;
  const libkineto::getLinkedActivityCallback &linked_activity_;
  int32_t last_id_ = 0;
  std::map<std::pair<Track, uint64_t>, Span> ranges_;
  std::map<Track, int64_t> busy_ns_;
  std::unique_ptr<FileOnly> file_ = std::make_unique<FileOnly>();
};

// In JSON, as Kineto writes it of GPUs.
std::string device_properties();

} // namespace openreg
