// What operators do with the memory of their arguments, as far as the sanitizer must know it: from
// schemas and tags, and from lists of names where these do not say it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

namespace openreg {

// Of an argument, as bits.
enum Role : uint8_t {
  kUntouched = 0, // only its sizes, strides and the like are looked at
  kReads = 1,
  kWrites = 2,
  kMoves = 4,  // with kReads: bytes are taken elsewhere as they are, or not all of them are used
  kPartly = 8, // which elements depends on what is in other arguments
};

struct Roles {
  // Told of as one piece of work. Else what it calls is told of, or it does nothing to memory.
  bool is_leaf = false;
  // Of a leaf: of another library, so that nothing is known of its kernel; one in Python calls
  // other operators.
  bool is_foreign = false;
  // The memory that it allocates is not written to.
  bool leaves_unwritten = false;
  // The host knows when it is done: it returns what depends on what is in memory.
  bool is_waited_for = false;
  // How results come of arguments byte by byte: nothing is known, the first result or argument
  // written to is the moved argument, of the same sizes or broadcast, or the moved ones in a row.
  enum class Movement { kNone, kCopy, kConcatenation } movement = Movement::kNone;
  std::vector<Role> arguments; // each of the schema's, lists as one
  // The place of `beta`: if it is 0, the argument `self` is not read. -1: there is none.
  int beta = -1;
  // Of a convolution's backward, the place of `output_mask`: argument 1, the input, is only for the
  // second gradient, the weight's, and argument 2, the weight, for the first, the input's.
  int mask = -1;
};

// Of an operator; lives as long as the process.
const Roles &roles_of(const c10::OperatorHandle &op);

} // namespace openreg
