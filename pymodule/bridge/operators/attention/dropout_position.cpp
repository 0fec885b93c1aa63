#include "operators/attention/dropout_position.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <optional>

#include "compat/attention.h"
#include "launch/policy.h"
#include "memory/allocation/memory.h"
#include "operators/random/random.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

using at::Scalar;
using at::Tensor;

Scalar to_scalar(uint64_t number) {
  return Scalar(static_cast<int64_t>(number));
}

uint64_t to_number(const Scalar &scalar) {
  return static_cast<uint64_t>(scalar.to<int64_t>());
}

Scalar to_scalar(const uint64_t *address) {
  return to_scalar(static_cast<uint64_t>(reinterpret_cast<uintptr_t>(address)));
}

const uint64_t *to_address(const Scalar &scalar) {
  return reinterpret_cast<const uint64_t *>(static_cast<uintptr_t>(to_number(scalar)));
}

} // namespace

PhiloxOffset reserve_words(const Tensor &query, double dropout, int64_t words) {
  if (dropout == 0) {
    return PhiloxOffset({0, 0});
  }
  return generator_for(std::nullopt, query.device())
      .reserve(static_cast<uint64_t>(words + 3) / 4 * 4);
}

DropoutPosition::DropoutPosition(const PhiloxOffset &from)
    : seed_address(to_scalar(from.seed())), offset_address(to_scalar(from.offset())) {
  const bool is_known = from.seed() == nullptr;
  seed = to_scalar(is_known ? from.begin().seed : 0);
  offset = to_scalar(is_known ? from.begin().offset : from.words());
}

openreg_philox position_of(const Scalar &seed, const Scalar &offset, const Scalar &seed_address,
                           const Scalar &offset_address) {
  const auto *at = to_address(seed_address);
  return at == nullptr ? openreg_philox{to_number(seed), to_number(offset)}
                       : PhiloxOffset(at, to_address(offset_address), to_number(offset)).begin();
}

Tensor state_of(openreg_philox position, const Tensor &query) {
  auto state = at::empty({2}, query.options().dtype(at::kUInt64));
  if (state.is_meta()) {
    return state;
  }
  auto *numbers = state.mutable_data_ptr<uint64_t>();
  numbers[0] = position.seed;
  numbers[1] = position.offset;
  return state;
}

openreg_philox words_of_state(double dropout, const Tensor &state) {
  if (state.is_meta() || !(dropout > 0)) { // the state may be of any dtype, if it is not used
    return {0, 0};
  }
  const auto *numbers = state.const_data_ptr<uint64_t>();
  return own_words({numbers[0], numbers[1]});
}

std::pair<Tensor, Tensor> unused_position(double dropout, const Tensor &query) {
  if (!kUnusedPositionOnDevice || dropout > 0) {
    return {};
  }
  const auto options = query.options().dtype(at::kLong);
  return {at::zeros({}, options), at::zeros({}, options)};
}

openreg_philox words_of_position(double dropout, const Tensor &seed, const Tensor &offset) {
  return dropout > 0 && !seed.is_meta()
             ? own_words({static_cast<uint64_t>(*seed.const_data_ptr<int64_t>()),
                          static_cast<uint64_t>(*offset.const_data_ptr<int64_t>())})
             : openreg_philox{0, 0};
}

std::pair<Tensor, Tensor> position_tensors(const PhiloxOffset &position, const Tensor &query) {
  const auto index = query.device().index();
  if (!is_capturing(index)) {
    const auto at = position.begin();
    return {at::scalar_tensor(static_cast<int64_t>(at.seed), at::kLong),
            at::scalar_tensor(static_cast<int64_t>(at.offset), at::kLong)};
  }
  auto seed = at::empty({}, query.options().dtype(at::kLong));
  auto offset = at::empty_like(seed);
  run_on_stream(
      index, [position, to_seed = static_cast<uint64_t *>(kernel_address(seed.mutable_data_ptr())),
              to_offset = static_cast<uint64_t *>(kernel_address(offset.mutable_data_ptr()))] {
        const auto at = position.begin();
        *to_seed = at.seed;
        *to_offset = at.offset;
      });
  return {std::move(seed), std::move(offset)};
}

} // namespace openreg
