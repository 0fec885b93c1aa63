// Kineto events for the recorded work.
#pragma once

#define FMT_HEADER_ONLY
#include <kineto/libkineto.h>
#include <kineto/output_base.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "profiler/notes.h"

namespace openreg {

// Converts openreg_now_ns to Unix time, which Kineto uses. Interpolates between the first and the
// last measurement of both clocks.
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

// Events that appear in the trace file, but would disturb PyTorch's tables: names of tracks, waits
// and counters. They are written with the first event.
struct FileOnly {
  // The work that a stream had when a piece of work began, including that piece, and the time that
  // the stream had worked before.
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

class ApiCall;

class Events {
public:
  // Adds the events of the given types to `buffer`, which must outlive this object. Ignores work
  // that ended before the buffer's span begins.
  Events(libkineto::CpuTraceBuffer &buffer, const Clock &clock,
         const libkineto::getLinkedActivityCallback &linked_activity,
         const std::set<libkineto::ActivityType> &types)
      : buffer_(buffer), clock_(clock), linked_activity_(linked_activity), types_(types) {}

  void add(Records records);

  // Logs the events that PyTorch reads too. The others follow when the trace is written.
  void log(libkineto::ActivityLogger &logger);

private:
  using Activity = libkineto::GenericTraceActivity;
  using Track = std::pair<int, int>; // device and stream, or process and thread

  struct Span {
    int64_t begin_ns, end_ns;
  };

  void add_event(std::unique_ptr<Activity> activity, Span span, Track track);
  void add_work(WorkRecord record, Span span);
  void add_parts(const WorkRecord &record, Span span);
  void add_wait(const openreg_trace_work &work, Span span);
  void add_host_wait(const HostWaitRecord &wait);
  void add_call(const WorkRecord &record, const Activity &work, const char *name, Span span);
  const libkineto::ITraceActivity *operator_of(uint64_t correlation) const;
  const libkineto::ITraceActivity *operator_of(const WorkRecord &record) const;
  void count(const openreg_trace_work &work, Span span);
  void extend_ranges(const WorkNote &note, Track track, Span span);
  void add_ranges();
  void name_tracks();

  libkineto::CpuTraceBuffer &buffer_;
  const Clock &clock_;
  const libkineto::getLinkedActivityCallback &linked_activity_;
  const std::set<libkineto::ActivityType> &types_;
  std::map<std::pair<Track, uint64_t>, Span> ranges_;
  std::map<Track, int64_t> busy_ns_;
  std::unique_ptr<FileOnly> file_ = std::make_unique<FileOnly>();
};

// Returns the devices in JSON, in the form that Kineto uses for GPUs.
std::string device_properties();

} // namespace openreg
