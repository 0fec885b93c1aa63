// What operators do with the memory of their arguments. It follows from schemas and tags, and from
// lists of names where these are not enough.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

namespace openreg {

// What an operator does with an argument, as bits.
enum Role : uint8_t {
  kUntouched = 0, // uses only its sizes, strides and similar
  kReads = 1,
  kWrites = 2,
  kMoves = 4,   // with kReads: copies bytes unchanged, or does not use all of them
  kPartial = 8, // other arguments select the elements
};

struct Roles {
  // The operator is reported as one launch. Otherwise the operators that it calls are reported, or
  // it does not access memory.
  bool is_leaf = false;
  // A leaf of another library, whose kernel is not known. If it is written in Python, it calls
  // other operators.
  bool is_foreign = false;
  // It does not write to the memory that it allocates.
  bool leaves_uninitialized = false;
  // The host waits for it, because its result depends on values in memory.
  bool synchronizes = false;
  // How results are copied from arguments. kCopy: the first written argument is a copy of the moved
  // argument, of the same sizes or broadcast. kConcatenation: the result is the moved arguments in
  // a row.
  enum class Movement { kNone, kCopy, kConcatenation } movement = Movement::kNone;
  std::vector<Role> arguments; // one for each argument of the schema; a list is one argument
  // The position of `beta`; -1: none. If `beta` is 0, `self` is not read.
  int beta = -1;
  // The position of `output_mask` of a convolution's backward; -1: none. Argument 1, the input, is
  // only used for the second gradient, the weight's. Argument 2, the weight, is only used for the
  // first, the input's.
  int output_mask = -1;
  // Whether the operator computes with the elements of `self` that `index` selects, as `index_add_`
  // does. If not, it only replaces or moves them.
  enum class Combines {
    kNever,
    kAlways,
    kIfFlag, // if the bool argument at `combine_flag` is true: `accumulate` or `include_self`
  } combines = Combines::kNever;
  int combine_flag = -1;
  int index = -1; // the position of `index` or `indices`; -1: none
};

// The result lives as long as the process.
const Roles &roles_of(const c10::OperatorHandle &op);

} // namespace openreg
