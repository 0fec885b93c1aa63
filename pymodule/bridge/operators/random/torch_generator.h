// at::Generator over the C layer's Philox generator.
#pragma once

#include <ATen/core/Generator.h>

#include <memory>

#include "generator/generator.h"
#include "launch/philox_offsets.h"
#include "core/status.h"

namespace openreg {

class GeneratorImpl final : public c10::GeneratorImpl {
public:
  explicit GeneratorImpl(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl &state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl> &state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  // Takes `words` for a launch on the current stream of the generator's device.
  LaunchWords take(uint64_t words) {
    return take_words(device_.index(), generator_, is_default_, words);
  }

  const GeneratorSource &source() const { return generator_; }

  // Makes it its device's, and seeds it non-deterministically: also while its stream captures.
  void become_default();

  static c10::DeviceType device_type() { return kDeviceType; }

private:
  GeneratorImpl *clone_impl() const override;

  // Shared by generators that graphsafe_set_state made one stream of numbers.
  GeneratorSource generator_;
  bool is_default_ = false; // its device's
};

// The device's default generator, seeded non-deterministically when first asked for. Does not
// initialize the device. index < 0: the current device.
const at::Generator &default_generator(c10::DeviceIndex index);

at::Generator make_generator(c10::DeviceIndex index);

// The generator an operator on `device` draws from: the one it was given, which as on CUDA may be
// of another device of that type, or the device's default. The device may be the host: PyTorch
// calls kernels of the generator's type, too.
GeneratorImpl &generator_for(const std::optional<at::Generator> &generator, c10::Device device);

} // namespace openreg
