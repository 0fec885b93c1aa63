// What the random operators share: outputs and grids in the generator layer's terms.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "../torch_generator.h"
#include "../turn.h"
#include "generator.h"

namespace openreg {

using OptionalGenerator = std::optional<at::Generator>;

// A tensor's element type. Raises `"<kernel>" not implemented for '<dtype>'` for one that the
// generator layer does not have.
openreg_type random_type(const at::Tensor &tensor, const char *kernel);

// The grid of the GPU that the device shows itself as.
openreg_grid grid_of(c10::Device device);

// A tensor as a kernel fills it. Borrows the tensor's sizes and strides. Refuses a tensor whose
// elements overlap.
openreg_output output_of(const at::Tensor &tensor, const char *kernel);

void check_floating(const at::Tensor &tensor, const char *kernel);

// Runs `fill(share)` for each of so many shares of the work on n elements as PyTorch computes with
// threads, at the same time. The numbers do not depend on how many these are.
template <class Fill> void fill_in_shares(uint64_t n, Fill fill) {
  constexpr uint64_t grain = 32768; // that of PyTorch's pointwise operators
  if (n < 2 * grain) {
    fill(openreg_whole);
    return;
  }
  const auto threads = static_cast<uint64_t>(at::get_num_threads());
  const auto count = static_cast<uint32_t>(std::min(n / grain, threads));
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (auto index = begin; index < end; index++) {
      fill(openreg_share{static_cast<uint32_t>(index), count});
    }
  });
}

// Takes an operator's words and runs it: `words(&output, grid)`, then `fill(&output, share, philox,
// grid)` for each share. Complex tensors are filled as real ones, re and im in the last dimension.
template <class Words, class Fill>
void fill_random(const at::Tensor &tensor, const OptionalGenerator &generator, const char *kernel,
                 Words words, Fill fill) {
  auto &source = generator_for(generator, tensor.device());
  if (tensor.numel() == 0) {
    return;
  }
  const auto output = output_of(tensor, kernel);
  const auto grid = grid_of(tensor.device());
  const auto philox = source.take(words(&output, grid));
  const Turn turn(tensor.device().index());
  fill_in_shares(static_cast<uint64_t>(tensor.numel()),
                 [&](openreg_share share) { fill(&output, share, philox, grid); });
}

} // namespace openreg
