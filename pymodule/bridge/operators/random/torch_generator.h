// at::Generator, implemented by the generator layer's Philox generator.
#pragma once

#include <ATen/core/Generator.h>

#include <atomic>
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

  // Reserves `words` for a launch on the current stream of the generator's device.
  PhiloxOffset reserve(uint64_t words) {
    return reserve_philox(device_.index(), generator_, is_default_, words);
  }

  const GeneratorSource &source() const { return generator_; }

  // Makes this its device's default generator and seeds it non-deterministically, also during a
  // capture.
  void become_default();

  static c10::DeviceType device_type() { return kDeviceType; }

private:
  GeneratorImpl *clone_impl() const override;
  void set_captured_state(const uint8_t *data, size_t bytes);

  // C++ programs see this object as at::CUDAGeneratorImpl. Its inline function reset_rnn_state
  // changes the byte behind a pointer, and the stand-in for libtorch_cuda has all other functions.
  struct CudaFields {
    void *state = nullptr;
    std::atomic_flag no_reset_rnn_state;
  };
  [[maybe_unused]] CudaFields cuda_fields_;

  // Shared with other generators after graphsafe_set_state().
  GeneratorSource generator_;
  bool is_default_ = false; // the default generator of its device
};

// Returns the device's default generator, seeded non-deterministically at the first call. Does not
// initialize the device. index < 0: the current device. Raises RuntimeError for an invalid index.
const at::Generator &default_generator(c10::DeviceIndex index);

// Makes a new generator. index < 0: on the current device.
at::Generator make_generator(c10::DeviceIndex index);

// Returns the generator from which an operator on `device` draws: the given one, or the device's
// default. As on CUDA, a given generator may be of another device of the type. `device` may be the
// host, because PyTorch also dispatches on the generator's type: then it raises RuntimeError.
GeneratorImpl &generator_for(const std::optional<at::Generator> &generator, c10::Device device);

} // namespace openreg
