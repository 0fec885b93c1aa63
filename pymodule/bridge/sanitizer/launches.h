// What the layer sanitizer/ is told of operators.
//
// PyTorch calls back before and after each call of an operator, on whatever thread. Told of are the
// operators that reach a kernel of the devices, after the call, with the memory of arguments as it
// was before it; what such a kernel itself calls is a part of it. Others are told of by what they
// call.
#pragma once

#include <optional>

#include "sanitizer/report_order.h"

namespace openreg {

// Null: nobody is told any more.
void watch_launches(ToldOrder *order);

// In a fork: nobody is told until that is done anew.
void forget_launches();

// If anyone is told: what a stream is given, at a place of the program; that what it was given
// until now is done before what another is given from now on.
void tell_order(Queue first, Queue second);
void tell_launch(Queue queue, uint64_t place, const openreg_sanitizer_access *accesses,
                 size_t count);

void tell_work(ToldOrder &order, Queue queue, const Watcher::Work &work);

// Of a storage that grows or shrinks outside of a launch, of which it would be a part.
void tell_resize(ToldOrder &order, Queue queue, uint64_t from, uint64_t to, size_t kept,
                 size_t bytes);

// The host waits, in an operator: that is told of behind it. Whether this thread is in one.
bool wait_in_launch();

// Where the operator was called that this thread launches.
uint64_t place_of_launch();

// Of what this thread allocates: where in the program, and whether what allocates it writes to it.
struct Allocating {
  uint64_t place;
  bool leaves_unwritten;
};
Allocating allocating_now();

} // namespace openreg
