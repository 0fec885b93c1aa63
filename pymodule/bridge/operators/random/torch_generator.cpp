#include "operators/random/torch_generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstring>
#include <mutex>

#include "device/capture.h"
#include "launch/policy.h"

namespace openreg {

namespace {

std::shared_ptr<openreg_generator> create() {
  std::shared_ptr<openreg_generator> generator(openreg_generator_create(),
                                               &openreg_generator_destroy);
  TORCH_CHECK(generator != nullptr, "openreg: out of host memory: cannot create a generator");
  return generator;
}

c10::DeviceIndex checked(c10::DeviceIndex index) {
  int count = 0;
  check(openreg_device_count(&count));
  TORCH_CHECK(count > 0, "No ", platform_name(), " GPUs are available");
  const auto device = index < 0 ? static_cast<c10::DeviceIndex>(openreg_device_current()) : index;
  TORCH_CHECK(device < count, "openreg: invalid device index ", static_cast<int>(device),
              " for a generator: expected 0 to ", count - 1);
  return device;
}

} // namespace

GeneratorImpl::GeneratorImpl(c10::DeviceIndex device)
    : c10::GeneratorImpl({kDeviceType, device}, c10::DispatchKeySet(kDeviceKeys.dense)),
      generator_(create()) {}

void GeneratorImpl::set_current_seed(uint64_t seed) {
  if (openreg_captures_exist() && is_capturing(device_.index())) [[unlikely]] {
    TORCH_CHECK(seed == current_seed(),
                "CUDAGeneratorImpl::set_current_seed can be called during stream capture only if "
                "new seed is the same as the original seed.");
    return; // replays continue from the generator's state
  }
  openreg_generator_seed(generator_.get(), seed);
}

void GeneratorImpl::set_offset(uint64_t offset) {
  const auto seed = current_seed();
  TORCH_CHECK(openreg_generator_set(generator_.get(), {seed, offset}),
              "offset must be a multiple of 4");
}

uint64_t GeneratorImpl::get_offset() const {
  return openreg_generator_get(generator_.get()).offset;
}

uint64_t GeneratorImpl::current_seed() const {
  return openreg_generator_get(generator_.get()).seed;
}

uint64_t GeneratorImpl::seed() {
  const auto seed = openreg_generator_entropy();
  set_current_seed(seed);
  return seed;
}

void GeneratorImpl::become_default() {
  is_default_ = true;
  openreg_generator_seed(generator_.get(), openreg_generator_entropy());
}

void GeneratorImpl::set_state(const c10::TensorImpl &state) {
  at::detail::check_rng_state(state);
  const auto bytes = static_cast<size_t>(state.numel());
  TORCH_CHECK(bytes == OPENREG_GENERATOR_STATE_BYTES || bytes == sizeof(uint64_t),
              "RNG state is wrong size");
  const auto *const data = static_cast<const uint8_t *>(state.data());
  if (openreg_captures_exist() && is_capturing(device_.index())) [[unlikely]] {
    set_captured_state(data, bytes);
    return;
  }
  TORCH_CHECK(openreg_generator_set_state(generator_.get(), data, bytes),
              "offset must be a multiple of 4");
}

// A state of a capture has the position in the graph as its offset. So a checkpoint that is part of
// a capture draws the same numbers again in its backward pass.
void GeneratorImpl::set_captured_state(const uint8_t *data, size_t bytes) {
  constexpr uint64_t kBlock = 4;
  uint64_t seed = 0;
  uint64_t offset = 0;
  std::memcpy(&seed, data, sizeof seed);
  if (bytes == OPENREG_GENERATOR_STATE_BYTES) {
    std::memcpy(&offset, data + sizeof seed, sizeof offset);
  }
  set_current_seed(seed); // checks it
  TORCH_CHECK(offset % kBlock == 0, "offset must be a multiple of 4");
  set_captured_position(device_.index(), generator_, offset);
}

c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  auto state = at::detail::empty_cpu({OPENREG_GENERATOR_STATE_BYTES}, c10::kByte, std::nullopt,
                                     std::nullopt, std::nullopt, std::nullopt);
  auto *const data = static_cast<uint8_t *>(state.mutable_data_ptr());
  openreg_generator_get_state(generator_.get(), data);
  if (const auto position = captured_position(device_.index(), generator_)) [[unlikely]] {
    std::memcpy(data + sizeof(uint64_t), &*position, sizeof *position);
  }
  return state.getIntrusivePtr();
}

void GeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl> &state) {
  auto *other = dynamic_cast<GeneratorImpl *>(state.get());
  TORCH_CHECK(other != nullptr,
              "openreg: graphsafe_set_state expects a generator on a device of type ", kDeviceType);
  generator_ = other->generator_;
}

c10::intrusive_ptr<c10::GeneratorImpl> GeneratorImpl::graphsafe_get_state() const {
  auto copy = c10::make_intrusive<GeneratorImpl>(device_.index());
  copy->generator_ = generator_;
  return copy;
}

GeneratorImpl *GeneratorImpl::clone_impl() const {
  auto *copy = new GeneratorImpl(device_.index());
  openreg_generator_set(copy->generator_.get(), openreg_generator_get(generator_.get()));
  return copy;
}

const at::Generator &default_generator(c10::DeviceIndex index) {
  static std::array<std::once_flag, OPENREG_MAX_DEVICES> seeded;
  static auto *generators = new std::array<at::Generator, OPENREG_MAX_DEVICES>();
  const auto device = static_cast<size_t>(checked(index));
  std::call_once(seeded[device], [&] {
    (*generators)[device] = make_generator(static_cast<c10::DeviceIndex>(device));
    (*generators)[device].get<GeneratorImpl>()->become_default();
  });
  return (*generators)[device];
}

at::Generator make_generator(c10::DeviceIndex index) {
  return at::make_generator<GeneratorImpl>(checked(index));
}

GeneratorImpl &generator_for(const std::optional<at::Generator> &generator, c10::Device device) {
  const auto &chosen = generator.has_value() && generator->defined()
                           ? *generator
                           : default_generator(device.index());
  TORCH_CHECK(chosen.device().type() == device.type(), "Expected a '", device.type(),
              "' device type for generator but found '", chosen.device().type(), "'");
  return *static_cast<GeneratorImpl *>(chosen.unsafeGetGeneratorImpl());
}

} // namespace openreg
