// A compact log of the allocator's events, from the first allocation of a program on. The report of
// a run comes from it (torch_openreg/dry/report). The history (memory_history.h) is separate,
// because the program may start, stop and clear it at any time. Both are observers of the
// allocator, and the same MemoryStackScope finds the cause of an event.
//
// An event has numbers only. Stacks and names are kept once, in tables, and events refer to them by
// their index. Index 0 stands for "none" everywhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "allocator/allocator.h"
#include "core/python_stack.h"

namespace openreg {

struct LogEvent {
  int64_t time_us;      // since 1970
  uint64_t address;     // as in HistoryEvent
  uint64_t bytes;       // blocks: as requested
  uint64_t block_bytes; // blocks: as the statistics count them
  int64_t sequence;     // autograd's sequence number: the next one, or that of the running node
  uint32_t stack;       // of an allocation
  uint32_t operation;   // the innermost operator or autograd node
  uint32_t module_call; // what set_module_call was given
  int16_t stream;       // of the memory
  uint8_t device;
  uint8_t action; // openreg_memory_action
  uint8_t flags;  // LogFlags
  uint8_t thread; // threads are numbered in the order of their first event
  uint16_t mempool;
};

enum LogFlags : uint8_t {
  kLogInBackward = 1,  // autograd computes gradients on this thread
  kLogGradEnabled = 2, // operators record what a backward needs
  kLogAllocating = 4,  // part of an allocation, such as memory that is released for it
};

// The code that causes an event.
struct LogCause {
  uint32_t stack = 0, operation = 0, module_call = 0;
  int64_t sequence = 0;
  uint8_t flags = 0, thread = 0;
};

extern std::atomic<bool> is_logging;

// Starts the log. Later calls have no effect: it cannot be stopped. After `max_events` events it
// only counts.
void start_allocation_log(size_t max_events);

// The cause of an event that this thread is about to cause. Takes the GIL for a stack.
LogCause find_cause(bool with_stack);

// Sets the number that this thread's events have as `module_call`; returns the previous one.
uint32_t set_module_call(uint32_t call);

// A place in the log: how many events there were. With it comes the calling thread's position in
// autograd's sequence.
struct LogPlace {
  uint64_t position;
  int64_t sequence;
  uint32_t stack;
  uint8_t thread;
};
LogPlace place_in_log(bool with_stack);

struct AllocationLog {
  std::vector<LogEvent> events;
  std::vector<std::string> operations;
  uint64_t events_lost;
};
AllocationLog copy_allocation_log();

// Returns for each address the event that allocated the block there, or -1 if there is none.
std::vector<int64_t> allocations_at(const std::vector<uint64_t> &addresses);

// The frames of a stack, innermost first. The caller holds the GIL.
std::vector<FrameText> frames_of_stack(uint32_t stack);

} // namespace openreg
