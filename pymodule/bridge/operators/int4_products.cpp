// Products with weights of 4 bits, which PyTorch has for CUDA under these names. Packed weights
// have the bits and the shape that CUDA's kernel gives them, so packed checkpoints can be
// exchanged.
//
// CUDA packs for its matrix instruction of 16 x 8 x 16. A lane, one of 32, belongs to a row of the
// weight and to two columns of each half of a tile of 16 columns. A word has the lane's numbers of
// two neighbouring tiles.

#include <ATen/Operators.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>

#include "core/registration.h"
#include "launch/host_operator.h"

namespace openreg {

namespace {

using at::Tensor;

constexpr int64_t kRows = 8;     // of a tile of the weight
constexpr int64_t kColumns = 16; // of a tile
constexpr int64_t kLanes = 32;

// Returns the place of each number in its word, by tile, half and column: (2, 2, 2).
Tensor shifts(const Tensor &like) {
  const auto two = at::arange(2, like.options().dtype(at::kLong));
  return two.mul(8).view({2, 1, 1}).add(two.mul(4).view({2, 1})).add(two.mul(16));
}

// ---- packing ------------------------------------------------------------------------------------

// `weight`: (n, k / 2) bytes with two numbers each, the first in the upper bits.
Tensor pack_on_host(const Tensor &weight, int64_t tiles) {
  const HostKernel kernel;
  const auto bytes = weight.to(at::kLong);
  const auto padding = (kRows - weight.size(0) % kRows) % kRows;
  const auto numbers = at::constant_pad_nd(
      at::stack({at::bitwise_right_shift(bytes, 4), at::bitwise_and(bytes, 15)}, -1).flatten(1),
      {0, 0, 0, padding});
  const auto rows = numbers.size(0) / kRows;
  const auto columns = numbers.size(1) / (tiles * kColumns);
  const auto lanes =
      numbers.view({rows, kRows, columns, tiles / 2, 2, 2, 4, 2}).permute({0, 2, 1, 6, 3, 4, 5, 7});
  return at::bitwise_left_shift(lanes, shifts(bytes))
      .sum({5, 6, 7})
      .to(at::kInt)
      .reshape({rows, columns, kLanes, tiles / 2});
}

// Returns the numbers: (n, k), from 0 to 15.
Tensor unpacked(const Tensor &packed) {
  const auto rows = packed.size(0), columns = packed.size(1), pairs = packed.size(3);
  const auto words = packed.to(at::kLong).view({rows, columns, kRows, 4, pairs, 1, 1, 1});
  return at::bitwise_and(at::bitwise_right_shift(words, shifts(packed)), 15)
      .permute({0, 2, 1, 4, 5, 6, 3, 7})
      .reshape({rows * kRows, columns * pairs * 2 * kColumns});
}

// ---- products -----------------------------------------------------------------------------------

// As on CUDA, weights are rounded to bfloat16 and products are added up in float32.
Tensor multiply_on_host(const Tensor &self, const Tensor &packed, int64_t group,
                        const Tensor &scales_and_zeros) {
  const HostKernel kernel;
  const auto of_columns = [&](int64_t which) { // (n, k)
    return scales_and_zeros.select(2, which).to(at::kFloat).repeat_interleave(group, 0).t();
  };
  const auto weight = unpacked(packed).sub(8).to(at::kFloat).mul(of_columns(0)).add(of_columns(1));
  return at::mm(self.to(at::kFloat), weight.to(at::kBFloat16).to(at::kFloat).t()).to(at::kBFloat16);
}

TORCH_LIBRARY_FRAGMENT(openreg_host, library) {
  library.def("_convert_weight_to_int4pack(Tensor self, int innerKTiles) -> Tensor");
  library.def("_weight_int4pack_mm(Tensor self, Tensor mat2, int qGroupSize, "
              "Tensor qScaleAndZeros) -> Tensor");
}

TORCH_LIBRARY_IMPL(openreg_host, CPU, library) {
  library.impl("_convert_weight_to_int4pack", &pack_on_host);
  library.impl("_weight_int4pack_mm", &multiply_on_host);
}

// ---- the operators, with CUDA's conditions ------------------------------------------------------

bool is_number_of_tiles(int64_t tiles) {
  return tiles == 2 || tiles == 4 || tiles == 8;
}

Tensor pack(const Tensor &weight, int64_t tiles) {
  TORCH_CHECK(
      weight.dim() == 2 && weight.scalar_type() == at::kByte && weight.is_contiguous(),
      "_convert_weight_to_int4pack: the weight must be a contiguous matrix of uint8, but is ",
      weight.scalar_type(), weight.sizes());
  TORCH_CHECK(is_number_of_tiles(tiles),
              "_convert_weight_to_int4pack: innerKTiles must be 2, 4 or 8, but is ", tiles);
  TORCH_CHECK(weight.size(1) * 2 % (tiles * kColumns) == 0,
              "_convert_weight_to_int4pack: ", weight.size(1) * 2, " columns are no multiple of ",
              tiles * kColumns);
  return launch_host<&pack_on_host>("openreg_host::_convert_weight_to_int4pack", weight, tiles);
}

Tensor multiply(const Tensor &self, const Tensor &packed, int64_t group,
                const Tensor &scales_and_zeros) {
  TORCH_CHECK(self.dim() == 2 && self.scalar_type() == at::kBFloat16 && self.is_contiguous(),
              "_weight_int4pack_mm: self must be a contiguous matrix of bfloat16, but is ",
              self.scalar_type(), self.sizes());
  TORCH_CHECK(packed.dim() == 4 && packed.scalar_type() == at::kInt && packed.is_contiguous() &&
                  packed.size(2) == kLanes && is_number_of_tiles(packed.size(3) * 2) &&
                  packed.size(1) * packed.size(3) * 2 * kColumns == self.size(1),
              "_weight_int4pack_mm: mat2 must be a result of _convert_weight_to_int4pack with ",
              self.size(1), " columns, but is ", packed.scalar_type(), packed.sizes());
  TORCH_CHECK((group == 32 || group == 64 || group == 128 || group == 256) &&
                  self.size(1) % group == 0,
              "_weight_int4pack_mm: qGroupSize must be 32, 64, 128 or 256 and divide ",
              self.size(1), ", but is ", group);
  const auto sizes = scales_and_zeros.sizes();
  TORCH_CHECK(scales_and_zeros.scalar_type() == at::kBFloat16,
              "expected scalar type BFloat16 but found ", scales_and_zeros.scalar_type());
  TORCH_CHECK(sizes == at::IntArrayRef({self.size(1) / group, packed.size(0) * kRows, 2}),
              "_weight_int4pack_mm: qScaleAndZeros must have a scale and a zero for each of ",
              self.size(1) / group, " groups and ", packed.size(0) * kRows, " rows, but is ",
              sizes);
  return launch_host<&multiply_on_host>("openreg_host::_weight_int4pack_mm", self, packed, group,
                                        scales_and_zeros);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("_convert_weight_to_int4pack", &pack);
  library.impl("_weight_int4pack_mm", &multiply);
}

} // namespace openreg
