// Dropout, random permutations and multinomial draws.

#include <ATen/TensorOperators.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <utility>

#include "compat/native_functions.h"
#include "core/registration.h"
#include "launch/by_dtype.h"
#include "launch/argument_devices.h"
#include "launch/memory_plan.h"
#include "memory/allocation/memory.h"
#include "operators/random/random.h"

namespace openreg {

namespace {

// ---- dropout ------------------------------------------------------------------------------------

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor &input, double p,
                                                  std::optional<bool> train) {
  const auto mask_options = input.options().dtype(at::kBool);
  if (!train.value_or(true)) {
    return {input.clone(), at::ones_like(input, mask_options)};
  }
  TORCH_CHECK(0 <= p && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (p == 1) {
    return {at::zeros_like(input), at::zeros_like(input, mask_options)};
  }
  check_floating(input, "fused_dropout");
  auto mask = at::empty_like(input, mask_options); // the mask first, as on CUDA
  auto result = at::empty_like(input);
  if (input.numel() == 0) {
    return {result, mask};
  }
  const auto type = random_type(input, "fused_dropout");
  const auto n = static_cast<uint64_t>(input.numel());
  const bool dense = input.is_non_overlapping_and_dense();
  const int width = openreg_dropout_vector_width(
      type, n, reinterpret_cast<uintptr_t>(input.const_data_ptr()), dense);
  const auto grid = grid_of(input.device());
  const auto words =
      generator_for(std::nullopt, input.device()).reserve(openreg_dropout_words(n, grid));
  const auto run = [&](const at::Tensor &from, const at::Tensor &to, const at::Tensor &kept) {
    if (skip_kernel({from}, {to, kept})) {
      return;
    }
    const auto *x = kernel_address(from.const_data_ptr());
    auto *dropped = kernel_address(to.mutable_data_ptr());
    auto *keeps = static_cast<bool *>(kernel_address(kept.mutable_data_ptr()));
    draw_on_stream(from.device().index(), n, [=] {
      const auto philox = words.begin();
      fill_in_shares(n, [&](openreg_share share) {
        openreg_dropout(type, n, width, x, dropped, keeps, share, philox, grid, p);
      });
    });
  };
  if (width > 1 || input.is_contiguous()) {
    run(input, result, mask); // memory order
  } else {
    const auto row_major = input.contiguous();
    auto dropped = at::empty_like(row_major);
    auto kept = at::empty_like(row_major, mask_options);
    run(row_major, dropped, kept);
    result.copy_(dropped);
    mask.copy_(kept);
  }
  return {result, mask};
}

// ---- permutations -------------------------------------------------------------------------------

// Raises PyTorch's error if a dtype cannot represent n distinct integers. PyTorch's function needs
// a tensor, for which an empty host tensor suffices.
void check_fits(int64_t n, const at::Tensor &out) {
  if (out.scalar_type() != at::kLong) {
    native::check_supported_max_int_with_precision(
        n, at::empty({0}, at::device(at::kCPU).dtype(out.scalar_type())));
  }
}

at::Tensor &randperm_out(int64_t n, OptionalGenerator generator, at::Tensor &out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  check_fits(n, out);
  out.resize_({n});
  if (n == 0) { // as on CUDA, with any generator
    return out;
  }
  if (out.is_complex() || out.scalar_type() == at::kBool) {
    refuse_kernel_dtype("randperm_cuda", out.scalar_type());
  }
  auto &source = generator_for(generator, out.device());
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::randperm", "generator_out");
  take_planned_memory(op, {n, c10::IValue(), out}, out.device().index());
  const bool direct = out.scalar_type() == at::kLong && out.is_contiguous();
  auto permutation = direct ? out : at::empty({n}, out.options().dtype(at::kLong));
  const auto grid = grid_of(out.device());
  const auto length = static_cast<uint64_t>(n);
  const auto words = source.reserve(openreg_randperm_words(length, grid));
  auto *drawn = static_cast<int64_t *>(kernel_address(permutation.mutable_data_ptr()));
  if (!skip_kernel({}, {permutation})) {
    draw_on_stream(out.device().index(), length, [=] {
      return openreg_randperm(drawn, length, words.begin(), grid)
                 ? OPENREG_OK
                 : openreg_fail(OPENREG_OUT_OF_MEMORY,
                                "openreg: out of host memory: cannot permute %llu elements",
                                static_cast<unsigned long long>(length));
    });
  }
  if (!direct) {
    out.copy_(permutation);
  }
  return out;
}

// ---- categories ---------------------------------------------------------------------------------

// These take memory in the order of CUDA's code.

// In a dry run: CUDA's operator does not read its weights, so nothing is wrong with unknown ones.
bool is_unknown(const at::Tensor &weights) {
  return is_dry() && !is_known(weights);
}

// The checks do not wait for the device, as on CUDA, so a graph can capture the operator. The error
// messages are those of the CPU. CUDA's kernel aborts the program.
void draw_without_replacement(const at::Tensor &weights, int64_t samples,
                              const OptionalGenerator &generator, at::Tensor &result) {
  const auto largest = weights.max(), least = weights.min();
  const auto is_valid =
      largest.lt(std::numeric_limits<double>::infinity()).bitwise_and(least.ge(0));
  const auto has_empty_row = weights.dim() == 1 ? weights.sum().eq(0) : weights.sum(1).eq(0).any();
  if (!is_unknown(weights)) {
    at::_assert_async(is_valid, "probability tensor contains either `inf`, `nan` or element < 0");
    at::_assert_async(has_empty_row.logical_not(),
                      "invalid multinomial distribution (sum of probabilities <= 0)");
  }
  // The largest p / q, with exponential q.
  auto keys = at::empty_like(weights).exponential_(1, generator);
  at::div_out(keys, weights, keys);
  if (samples == 1) {
    at::argmax_out(result, keys, -1, /*keepdim=*/true);
    return;
  }
  auto values = at::empty(result.sizes(), weights.options());
  at::topk_out(values, result, keys, samples);
}

void check_probabilities(const at::Tensor &self) {
  if (is_unknown(self)) {
    return;
  }
  at::_assert_async(self.ge(0).logical_or(self.isnan()).all(),
                    "invalid multinomial distribution (encountering probability entry < 0)");
  at::_assert_async(
      self.isfinite().all(),
      "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
  at::_assert_async(self.sum(-1).gt(0).all(),
                    "invalid multinomial distribution (sum of probabilities <= 0)");
}

// `result` must be contiguous.
void draw_with_replacement(const at::Tensor &weights, int64_t samples,
                           const OptionalGenerator &generator, const at::Tensor &result) {
  check_probabilities(weights);
  constexpr auto kContiguous = at::MemoryFormat::Contiguous;
  const auto categories = weights.size(-1);
  const auto rows = weights.dim() == 1 ? 1 : weights.size(0);
  const auto unscaled = has_planner() ? at::empty_like(weights, kContiguous) : at::Tensor();
  auto scaled = weights.clone(kContiguous);
  scaled.div_(weights.sum(-1, /*keepdim=*/true));
  const auto sums = at::cumsum(scaled, -1).contiguous();
  const auto words = generator_for(generator, weights.device())
                         .reserve(openreg_multinomial_words(static_cast<uint64_t>(rows),
                                                            static_cast<uint64_t>(samples)));
  if (skip_kernel({scaled, sums}, {result})) {
    return;
  }
  draw_on_stream(weights.device().index(), static_cast<uint64_t>(rows * samples),
                 [=, drawn = static_cast<int64_t *>(kernel_address(result.mutable_data_ptr())),
                  type = random_type(sums, "multinomial_kernel_cuda"),
                  p = kernel_address(scaled.const_data_ptr()),
                  sums = kernel_address(sums.const_data_ptr())] {
                   openreg_multinomial(drawn, type, p, sums, static_cast<uint64_t>(rows),
                                       static_cast<uint64_t>(categories),
                                       static_cast<uint64_t>(samples), words.begin());
                 });
}

at::Tensor &multinomial_out(const at::Tensor &self, int64_t samples, bool replacement,
                            OptionalGenerator generator, at::Tensor &out) {
  ArgumentDevices devices("aten::multinomial", "out");
  devices.check(self);
  devices.check(out);
  devices.check_written(out);
  devices.index(); // raises for tensors on different devices
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "multinomial expects Long tensor out, got: ", out.scalar_type());
  TORCH_CHECK(self.dim() == 1 || self.dim() == 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(
      self.is_floating_point(),
      "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(replacement || samples <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  // The GPU finds categories in float32, which represents integers exactly up to 2^24.
  TORCH_CHECK(self.size(-1) <= (int64_t{1} << 24), "number of categories cannot exceed 2^24");
  if (self.dim() == 1) {
    out.resize_({samples});
  } else {
    out.resize_({self.size(0), samples});
  }
  if (self.numel() == 0) {
    return out;
  }
  if (!replacement || samples == 1) {
    draw_without_replacement(self, samples, generator, out);
  } else if (out.is_contiguous()) {
    draw_with_replacement(self, samples, generator, out);
  } else {
    const auto result = at::empty_like(out, at::MemoryFormat::Contiguous);
    draw_with_replacement(self, samples, generator, result);
    out.copy_(result);
  }
  return out;
}

at::Tensor multinomial(const at::Tensor &self, int64_t samples, bool replacement,
                       OptionalGenerator generator) {
  auto result = at::empty({0}, self.options().dtype(at::kLong));
  return multinomial_out(self, samples, replacement, std::move(generator), result);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("native_dropout", &native_dropout);
  library.impl("randperm.generator_out", &randperm_out);
  library.impl("multinomial", &multinomial);
  library.impl("multinomial.out", &multinomial_out);
}

} // namespace openreg
