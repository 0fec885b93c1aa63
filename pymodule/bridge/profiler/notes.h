// Records of work on streams and of waits for it, from which the profiler makes its events
// (kineto.cpp).
//
// Submitting work creates a note: what the submitting thread knows of the work. The note travels
// with the work. When the work ends, note and times become a record. The executing thread keeps its
// records until take_records().
#pragma once

#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/trace.h"
#include "profiler/host_wait.h"
#include "profiler/memory_note.h"

namespace openreg {

// A range that the program named. Ranges nest.
struct NamedRange {
  uint64_t correlation; // Kineto's number of the range
  std::shared_ptr<const NamedRange> outer;
};

struct WorkNote {
  uint64_t recording;       // the recording in which the note was made
  uint64_t correlation = 0; // Kineto's number of the operator; 0: none
  std::shared_ptr<const NamedRange> range;
  std::string name; // of the operator; empty if Kineto knows it
  int32_t system_thread = 0, thread = 0;
  int64_t made_ns = 0;
  bool is_of_list = false;      // one kernel for a list of tensors (list_note.h)
  const char *memory = nullptr; // the name of a copy or fill; otherwise null
  size_t bytes = 0;
  std::unique_ptr<torch::ParamCommsDebugInfo> collective; // null: not a collective
};

// A part of work that is submitted as a whole: a node of a graph.
struct WorkPart {
  std::string name; // of its operator or kernel
  int64_t begin_ns, end_ns;
};

struct WorkRecord {
  openreg_trace_work work;
  std::unique_ptr<WorkNote> note; // null: submitted before the recording
  std::vector<WorkPart> parts;
};

// The parts so far of the work that the calling thread executes.
std::vector<WorkPart> &parts_of_work();

// Begins a recording. Pass `names_operators` if nothing else records the names of operators.
void begin_recording(bool names_operators);
void end_recording();

// Pauses and resumes the current recording, if there is one.
void pause_recording();
void resume_recording();

struct Records {
  std::vector<WorkRecord> work;
  std::vector<HostWaitRecord> waits;
};

// Returns and removes all records of the last recording, of all threads, in no particular order.
// Work that has not ended has no record.
Records take_records();

// The calling thread enters and leaves operators and ranges. The numbers are Kineto's.
void enter_operator(uint64_t correlation);
void leave_operator();
void enter_range(uint64_t correlation);
void leave_range();

} // namespace openreg
