// Finds out-of-bounds writes by operators that are not PyTorch's own.
//
// A block ends with unused bytes, unless its requested size is a multiple of 512 bytes. These are
// its red zone. Before the operator's work, a pattern is written to the zones of its tensors; after
// the work, the zones are checked. Both run in the order of the operator's stream. So whatever used
// the memory before is done, and no later user has it yet. Damage is reported and repaired. Memory
// statistics do not change. allocator/red_zone.c fills and checks the zones; OPENREG_DEBUG_MEMORY=1
// uses it for all blocks, and makes each zone 512 bytes longer.
//
// No false reports: the check is silent if operators on several streams use a block at the same
// time, or if work of another stream may still use the memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "allocator/allocator.h"
#include "sanitizer/session.h"

namespace openreg {

// The red zones of one call, used by the thread that makes it. They include the zones of blocks
// that this thread allocates during the call.
class RedZones {
public:
  // Returns null if red zones are off. `name` and `overload` must live as long as the operator.
  static std::unique_ptr<RedZones> make(SanitizerSession &session, StreamKey stream,
                                        uint64_t call_site, const char *name, const char *overload);
  ~RedZones();
  RedZones(const RedZones &) = delete;
  RedZones &operator=(const RedZones &) = delete;

  // Adds the block of an argument that `tag` describes.
  void watch(uint64_t address, uint64_t tag);
  // Call it right before the operator, after all arguments were added.
  void begin();
  void name_result(const at::Tensor &tensor);
  // Call it after the operator. The zones are checked when its work is done.
  void end();

private:
  struct Zone {
    uint64_t begin, end;
    openreg_sanitizer_block owner; // the block in front of the zone
    openreg_sanitizer_block block; // the tensor's block: `owner`, or the block behind the zone
    uint64_t tag;                  // 0: not known yet
    bool is_filled;
  };
  struct State; // shared with work on the stream

  RedZones(SanitizerSession &session, StreamKey stream, uint64_t call_site, const char *name,
           const char *overload);
  bool has_zone_of(uint64_t owner) const;
  void add(const openreg_sanitizer_block &owner, const openreg_sanitizer_block &block,
           uint64_t tag);
  void add_in_front(const openreg_sanitizer_block &block, uint64_t tag);
  void add_allocated(const openreg_block &made);
  static void check(State &state);
  static void report(const State &state, const Zone &zone, openreg_sanitizer_run bytes);

  friend void watch_allocated_block(const openreg_block &block);

  SanitizerSession &session_;
  const char *name_, *overload_;
  std::shared_ptr<State> state_;
  RedZones *outer_;
  bool has_ended_ = false;
};

// Enables red zones for calls that begin from now on.
void enable_red_zones(bool are_watched);

// Adds the zone of a block that this thread allocated, if it is in a call. The allocator's
// observers know the block already.
void watch_allocated_block(const openreg_block &block);

} // namespace openreg
