// What the random operators share: outputs and grids in the generator layer's terms.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <c10/util/SmallVector.h>

#include <algorithm>

#include "launch/policy.h"
#include "operators/random/torch_generator.h"
#include "streams/inline_guard.h"
#include "generator/generator.h"

namespace openreg {

using OptionalGenerator = std::optional<at::Generator>;

// A tensor's element type. Raises `"<kernel>" not implemented for '<dtype>'` for one that the
// generator layer does not have.
openreg_type random_type(const at::Tensor &tensor, const char *kernel);

// The grid of the GPU that the device shows itself as.
openreg_grid grid_of(c10::Device device);

// A tensor as a kernel fills it, for work that outlives the call: it knows the address and keeps
// the shape. Refuses a tensor whose elements overlap.
class Output {
public:
  Output(const at::Tensor &tensor, const char *kernel);

  // Borrows the shape.
  openreg_output get() const {
    return {address_, type_, static_cast<int>(sizes_.size()), sizes_.data(), strides_.data()};
  }

private:
  void *address_;
  openreg_type type_;
  c10::SmallVector<int64_t, 5> sizes_, strides_;
};

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

// Draws `n` numbers, or whatever takes as long, on the current stream, by the policy of policy.h.
// The words were taken at the call, so that the numbers do not depend on when they are drawn.
// `draw` is copied, and knows addresses only.
template <class Draw> void draw_on_stream(c10::DeviceIndex device, uint64_t n, Draw draw) {
  static LaunchCost cost; // of such draws
  submit(cost, static_cast<int64_t>(n), device, std::move(draw));
}

// Takes an operator's words and runs it: `words(&output, grid)`, then `fill(&output, share, philox,
// grid)` for each share, which captures by value. Complex tensors are filled as real ones, re and
// im in the last dimension.
template <class Words, class Fill>
void fill_random(const at::Tensor &tensor, const OptionalGenerator &generator, const char *kernel,
                 Words words, Fill fill) {
  auto &source = generator_for(generator, tensor.device());
  if (tensor.numel() == 0) {
    return;
  }
  const Output kept(tensor, kernel);
  const auto output = kept.get();
  const auto grid = grid_of(tensor.device());
  const auto begin = source.take(words(&output, grid));
  const auto n = static_cast<uint64_t>(tensor.numel());
  draw_on_stream(tensor.device().index(), n, [=] {
    const auto shown = kept.get();
    const auto philox = begin.begin();
    fill_in_shares(n, [&](openreg_share share) { fill(&shown, share, philox, grid); });
  });
}

} // namespace openreg
