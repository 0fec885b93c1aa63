// Where the random words of dropout in fused attention begin, as arguments of host kernels
// (launch/host_operator.h). In a graph the numbers are at addresses that each replay writes
// (launch/philox_offsets.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <utility>

#include "generator/generator.h"
#include "launch/philox_offsets.h"

namespace openreg {

// Reserves the words that CUDA's kernel takes from the generator.
PhiloxOffset reserve_words(const at::Tensor &query, double dropout, int64_t words);

// In a graph: the addresses of the seed and of the offset, and a number to add to the offset.
struct DropoutPosition {
  at::Scalar seed{0}, offset{0}, seed_address{0}, offset_address{0};

  explicit DropoutPosition(const PhiloxOffset &from);
};

// Returns the position that a host kernel was given.
openreg_philox position_of(const at::Scalar &seed, const at::Scalar &offset,
                           const at::Scalar &seed_address, const at::Scalar &offset_address);

// The order in which CUDA's fused kernels draw is not known here. The complement of the seed keeps
// these words apart from those that other operators draw.
inline openreg_philox own_words(openreg_philox position) {
  return {~position.seed, position.offset};
}

// The flash kernel returns the position in one tensor, on the device: seed and offset. Its
// gradients draw the same words.
at::Tensor state_of(openreg_philox position, const at::Tensor &query);
openreg_philox words_of_state(double dropout, const at::Tensor &state);

// The memory-efficient kernel returns the position in two tensors. Without dropout they may be made
// by the host kernel, else they are undefined there (compat/attention.h).
std::pair<at::Tensor, at::Tensor> unused_position(double dropout, const at::Tensor &query);
openreg_philox words_of_position(double dropout, const at::Tensor &seed, const at::Tensor &offset);

// Returns the seed and the offset as tensors. In a capture they are on the device, and each replay
// writes them.
std::pair<at::Tensor, at::Tensor> position_tensors(const PhiloxOffset &position,
                                                   const at::Tensor &query);

} // namespace openreg
