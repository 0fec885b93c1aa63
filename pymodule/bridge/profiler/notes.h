// What work on streams is, as far as the thread knows that gives it to them, and when it was done:
// from this the profiler makes its events (kineto.cpp).
//
// A note is made where work is given to a stream. It goes with the work, and with the times of it
// becomes a record, which is kept by the thread that did it until records are taken.
#pragma once

#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/trace.h"
#include "profiler/memory_note.h"

namespace openreg {

// A range that the program named, within others.
struct NamedRange {
  uint64_t correlation; // Kineto's number of it
  std::shared_ptr<const NamedRange> outer;
};

struct WorkNote {
  uint64_t recording;       // in which it was made
  uint64_t correlation = 0; // Kineto's number of the operator; 0: none
  std::shared_ptr<const NamedRange> range;
  std::string name; // of the operator; empty where Kineto knows it
  int32_t system_thread = 0, thread = 0;
  int64_t made_ns = 0;
  const char *memory = nullptr; // of a copy or fill, its name; else null
  size_t bytes = 0;
  std::unique_ptr<torch::ParamCommsDebugInfo> collective; // null: it is none
};

// A part of work that is done as one: a node of a graph.
struct WorkPart {
  std::string name; // of its operator or kernel
  int64_t begin_ns, end_ns;
};

struct WorkRecord {
  openreg_trace_work work;
  std::unique_ptr<WorkNote> note; // null: it was given to its stream before the recording
  std::vector<WorkPart> parts;
};

// The parts so far of the work that the calling thread does.
std::vector<WorkPart> &parts_of_work();

// Records from now on. `names_operators`: nobody else does.
void begin_recording(bool names_operators);
void end_recording();

// Leaves out what is done between both, of a recording that there may be.
void pause_recording();
void resume_recording();

// All records of the last recording, of whatever threads, without order. Work that has not ended
// has none.
std::vector<WorkRecord> take_records();

// The calling thread enters and leaves operators and ranges, by Kineto's numbers.
void enter_operator(uint64_t correlation);
void leave_operator();
void enter_range(uint64_t correlation);
void leave_range();

} // namespace openreg
