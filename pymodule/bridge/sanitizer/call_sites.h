// Where in a program something was done, as numbers: a line of Python, and for work of a backward
// also the line of its forward.
//
// A place is the innermost frame that is the program's own, not PyTorch's nor openreg's; or, if
// whole stacks are kept, all frames. Code objects that were seen are kept for good.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace openreg {

struct Frame {
  std::string file;
  int line;
  std::string function;
};
using Stack = std::vector<Frame>; // innermost first

struct Place {
  Stack stack;
  Stack forward; // empty: not of a backward, or nothing is known of its forward
};

void keep_whole_stacks(bool whole);

// Where this thread's program is. Takes the GIL, if the thread has ever had it. 0: nothing is
// known.
uint64_t place_here();

// The place of something that is done in the backward of what was done in `forward`.
uint64_t backward_place(uint64_t here, uint64_t forward);

// With the GIL.
Place describe_place(uint64_t place);

} // namespace openreg
