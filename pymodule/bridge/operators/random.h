// What the random operators share: outputs and grids in the generator layer's terms.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "../torch_generator.h"
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

// Takes an operator's words and runs it: `words(&output, grid)`, then `fill(&output, philox,
// grid)`. Complex tensors are filled as real ones, re and im in the last dimension.
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
  fill(&output, philox, grid);
}

} // namespace openreg
