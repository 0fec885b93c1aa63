// What random operators share: outputs and grids for the generator layer, and draws on a stream.
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
#include "tensor/known_values.h"

namespace openreg {

using OptionalGenerator = std::optional<at::Generator>;

// Returns a tensor's element type. Raises `"<kernel>" not implemented for '<dtype>'` if the
// generator layer does not support it.
openreg_type random_type(const at::Tensor &tensor, const char *kernel);

// Returns the Philox grid of the GPU that the device's profile names.
openreg_grid grid_of(c10::Device device);

// A tensor to fill, for work that outlives the call: has the address and owns the shape, but does
// not keep the tensor alive. The constructor raises for a tensor whose elements overlap.
class Output {
public:
  Output(const at::Tensor &tensor, const char *kernel);

  // The result points into this object.
  openreg_output get() const {
    return {address_, type_, static_cast<int>(sizes_.size()), sizes_.data(), strides_.data()};
  }

private:
  void *address_;
  openreg_type type_;
  c10::SmallVector<int64_t, 5> sizes_, strides_;
};

// Raises like random_type() if the tensor is not floating-point.
void check_floating(const at::Tensor &tensor, const char *kernel);

// Divides the work on n elements into one share per PyTorch thread and runs `fill(share)` for all
// shares in parallel. The numbers do not depend on the number of shares.
template <class Fill> void fill_in_shares(uint64_t n, Fill fill) {
  constexpr uint64_t grain = 32768; // GRAIN_SIZE of PyTorch's pointwise operators
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

// Runs or queues a draw of `n` numbers on the current stream, by the policy of launch/policy.h. The
// words are reserved at the call, so the numbers do not depend on when `draw` runs. `draw` is
// copied and must hold addresses only, not tensors.
template <class Draw> void draw_on_stream(c10::DeviceIndex device, uint64_t n, Draw draw) {
  static LaunchCost cost; // one per type of draw
  submit(cost, static_cast<int64_t>(n), device, std::move(draw));
}

// Fills a tensor with random numbers. Reserves `words(&output, grid)` words and runs `fill(&output,
// share, philox, grid)` for each share, on the current stream. `fill` must capture by value. Pass
// complex tensors as real ones, with real and imaginary parts in the last dimension. `reads` are
// the tensors that `fill` reads.
template <class Words, class Fill>
void fill_random(const at::Tensor &tensor, const OptionalGenerator &generator, const char *kernel,
                 Words words, Fill fill, SomeTensors reads = {}) {
  auto &source = generator_for(generator, tensor.device());
  if (tensor.numel() == 0) {
    return;
  }
  const Output kept(tensor, kernel);
  const auto output = kept.get();
  const auto grid = grid_of(tensor.device());
  const auto begin = source.reserve(words(&output, grid));
  if (skip_kernel(reads, {tensor})) {
    return;
  }
  const auto n = static_cast<uint64_t>(tensor.numel());
  draw_on_stream(tensor.device().index(), n, [=] {
    const auto target = kept.get();
    const auto philox = begin.begin();
    fill_in_shares(n, [&](openreg_share share) { fill(&target, share, philox, grid); });
  });
}

} // namespace openreg
