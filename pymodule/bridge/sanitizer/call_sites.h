// Call sites: where in a program something happened, as numbers. A call site is a line of Python;
// for work of a backward, also the line of its forward.
//
// The line is the innermost frame of the program itself, not of PyTorch or openreg. If whole stacks
// are kept, it is all frames. Code objects of call sites are never freed.
//
// The frames come from core/python_stack.h. Its class PythonStack is not used: it keeps each stack
// as long as an owner needs it. Here the same few stacks occur again for each operator, so they are
// numbered, and finding the number must be fast.
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

struct CallSite {
  Stack stack;
  Stack forward; // empty if this is no backward, or its forward is not known
};

void set_whole_stacks(bool whole);

// Returns the call site of this thread. Takes the GIL if the thread ever had it. 0: not known.
uint64_t current_call_site();

// Returns the call site of work in the backward of `forward`.
uint64_t backward_call_site(uint64_t here, uint64_t forward);

// Needs the GIL.
CallSite describe_call_site(uint64_t call_site);

} // namespace openreg
