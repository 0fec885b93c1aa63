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

// What stands in the file of a trace and would disturb PyTorch's tables.
struct FileOnly {
  std::vector<std::unique_ptr<libkineto::GenericTraceActivity>> activities;
  std::vector<libkineto::DeviceInfo> devices;
  std::vector<libkineto::ResourceInfo> streams;
  int64_t time_ns = 0;
};

class Events {
public:
  // They are added to `buffer`, which lasts as long as this.
  Events(libkineto::CpuTraceBuffer &buffer, const Clock &clock,
         const libkineto::getLinkedActivityCallback &linked_activity, int64_t begin_ns)
      : buffer_(buffer), clock_(clock), linked_activity_(linked_activity), begin_ns_(begin_ns) {}

  void add(std::vector<WorkRecord> records);

  // All that was added: at once what are events to PyTorch too, the rest when the trace is written.
  void tell(libkineto::ActivityLogger &logger);

private:
  using Activity = libkineto::GenericTraceActivity;
  using Track = std::pair<int, int>; // device, stream

  struct Span {
    int64_t begin_ns, end_ns;
  };

  Activity &add_activity(libkineto::ActivityType type, const std::string &name, Span span);
  Activity &add_to_file(libkineto::ActivityType type, const std::string &name, int64_t at_ns);
  void add_work(const WorkRecord &record);
  void add_wait(const WorkRecord &record, Span span);
  void add_call(const WorkRecord &record, const Activity &work, const char *name);
  void add_counters(const WorkRecord &record);
  void extend_ranges(const WorkNote &note, Track track, Span span);
  void add_ranges();
  void name_tracks();

  libkineto::CpuTraceBuffer &buffer_;
  const Clock &clock_;
  const libkineto::getLinkedActivityCallback &linked_activity_;
  int64_t begin_ns_;
  int32_t last_id_ = 0;
  std::map<std::pair<Track, uint64_t>, Span> ranges_;
  std::map<Track, int64_t> busy_ns_;
  std::unique_ptr<FileOnly> file_ = std::make_unique<FileOnly>();
};

// In JSON, as Kineto writes it of GPUs.
std::string device_properties();

} // namespace openreg
