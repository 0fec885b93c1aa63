// Dropout, random permutations and multinomial draws.

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include "compat/native_functions.h"
#include "core/registration.h"
#include "launch/by_dtype.h"
#include "launch/argument_devices.h"
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

// CUDA's method: the largest p / q, with exponential q.
at::Tensor draw_without_replacement(const at::Tensor &weights, int64_t samples,
                                    const OptionalGenerator &generator) {
  auto keys = at::empty_like(weights).exponential_(1, generator);
  keys = weights / keys;
  return samples == 1 ? at::argmax(keys, -1, /*keepdim=*/true)
                      : std::get<1>(at::topk(keys, samples));
}

at::Tensor draw_with_replacement(const at::Tensor &weights, int64_t samples,
                                 const OptionalGenerator &generator) {
  const auto categories = weights.size(-1);
  const auto rows = weights.dim() == 1 ? 1 : weights.size(0);
  const auto scaled = (weights / weights.sum(-1, /*keepdim=*/true)).contiguous();
  const auto sums = at::cumsum(scaled, -1).contiguous();
  auto result = weights.dim() == 1 ? at::empty({samples}, weights.options().dtype(at::kLong))
                                   : at::empty({rows, samples}, weights.options().dtype(at::kLong));
  const auto words = generator_for(generator, weights.device())
                         .reserve(openreg_multinomial_words(static_cast<uint64_t>(rows),
                                                            static_cast<uint64_t>(samples)));
  if (skip_kernel({scaled, sums}, {result})) {
    return result;
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
  return result;
}

// The CPU's error messages, which for draws with replacement say more. CUDA's kernel aborts the
// program.
void check_probabilities(const at::Tensor &self, bool draws_with_replacement) {
  if (draws_with_replacement) {
    TORCH_CHECK(self.ge(0).logical_or(self.isnan()).all().item<bool>(),
                "invalid multinomial distribution (encountering probability entry < 0)");
    TORCH_CHECK(
        self.isfinite().all().item<bool>(),
        "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
  } else {
    TORCH_CHECK(self.ge(0).logical_and(self.isfinite()).all().item<bool>(),
                "probability tensor contains either `inf`, `nan` or element < 0");
  }
}

at::Tensor draw_categories(const at::Tensor &self, int64_t samples, bool replacement,
                           OptionalGenerator generator) {
  TORCH_CHECK(self.dim() == 1 || self.dim() == 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(
      self.is_floating_point(),
      "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(replacement || samples <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  // The GPU finds categories in float32, which represents integers exactly up to 2^24.
  TORCH_CHECK(self.size(-1) <= (int64_t{1} << 24), "number of categories cannot exceed 2^24");
  if (self.numel() == 0) {
    return self.dim() == 1 ? at::empty({samples}, self.options().dtype(at::kLong))
                           : at::empty({self.size(0), samples}, self.options().dtype(at::kLong));
  }
  check_probabilities(self, replacement && samples > 1);
  TORCH_CHECK(self.sum(-1).gt(0).all().item<bool>(),
              "invalid multinomial distribution (sum of probabilities <= 0)");
  return replacement && samples > 1 ? draw_with_replacement(self, samples, generator)
                                    : draw_without_replacement(self, samples, generator);
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
  const auto result = draw_categories(self, samples, replacement, std::move(generator));
  return out.resize_(result.sizes()).copy_(result);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("native_dropout", &native_dropout);
  library.impl("randperm.generator_out", &randperm_out);
  library.impl("multinomial", &draw_categories);
  library.impl("multinomial.out", &multinomial_out);
}

} // namespace openreg
