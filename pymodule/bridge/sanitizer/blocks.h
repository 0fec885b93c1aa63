// What the layer sanitizer/ is told of memory: the blocks that a program has, as the allocator
// gives them.
#pragma once

#include "sanitizer/report_order.h"

namespace openreg {

// Null: nobody is told any more.
void watch_blocks(ToldOrder *order);

// This thread is about to free memory: where its program is needs the GIL, which nobody waits for
// in the allocator.
void note_free();

} // namespace openreg
