// Whether operators that are not PyTorch's own write in front of or behind the memory of their
// tensors.
//
// A block is longer than what was asked for, unless that was a multiple of 512 bytes: the rest is
// nobody's. Before the work of such an operator it is filled with a pattern, behind the work it is
// looked at: both in the order of the operator's stream, so whatever may have used the memory
// before is done, and nobody has it yet who comes later. What is found is mended. Nothing of it
// shows in figures of memory.
//
// Never wrong, so silent: where operators on several streams have the same block at the same time,
// and where work of another stream may still use the memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "allocator/allocator.h"
#include "sanitizer/report_order.h"

namespace openreg {

// The zones of one call, by the thread that makes it. Those of blocks that the thread allocates
// while it lives are watched, too.
class RedZones {
public:
  // Null: nobody wants to know. `name` and `overload` live as long as the operator.
  static std::unique_ptr<RedZones> make(ToldOrder &order, Queue queue, uint64_t place,
                                        const char *name, const char *overload);
  ~RedZones();
  RedZones(const RedZones &) = delete;
  RedZones &operator=(const RedZones &) = delete;

  // The block in which an address lies: of an argument, that `tag` describes.
  void watch(uint64_t address, uint64_t tag);
  // Right before the call, when all arguments are watched.
  void begin();
  void name_result(const at::Tensor &tensor);
  // Behind the call: looks at the zones when its work is done.
  void end();

private:
  struct Zone {
    uint64_t begin, end;
    openreg_sanitizer_block owner; // what lies in front of the zone
    openreg_sanitizer_block block; // the tensor's: that, or what lies behind the zone
    uint64_t tag;                  // 0: it is not known
    bool is_filled;
  };
  struct Watched; // what work on the stream knows of it

  RedZones(ToldOrder &order, Queue queue, uint64_t place, const char *name, const char *overload);
  bool has_zone_of(uint64_t owner) const;
  void add(const openreg_sanitizer_block &owner, const openreg_sanitizer_block &block,
           uint64_t tag);
  void add_in_front(const openreg_sanitizer_block &block, uint64_t tag);
  void allocated(const openreg_block &made);
  static void look(Watched &watched);
  static void report(const Watched &watched, const Zone &zone, openreg_sanitizer_run bytes);

  friend void note_allocation(const openreg_block &block);

  ToldOrder &order_;
  const char *name_, *overload_;
  std::shared_ptr<Watched> watched_;
  RedZones *outer_;
  bool has_ended_ = false;
};

// Whether calls are to have any: it is not for one that has begun.
void watch_red_zones(bool are_watched);

// This thread has allocated memory, which observers of the allocator know already.
void note_allocation(const openreg_block &block);

} // namespace openreg
