// What PyTorch's own code asks of an accelerator outside of operators and guards.

#include "module/hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "launch/blas_launch.h"
#include "launch/boxed.h"
#include "tensor/device_tensor.h"
#include "memory/allocator_settings.h"
#include "memory/pinned.h"
#include "operators/random/torch_generator.h"

namespace openreg {

namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
public:
  bool isBuilt() const override { return true; }

  bool isAvailable() const override { return deviceCount() > 0; }

  bool hasPrimaryContext(c10::DeviceIndex) const override { return openreg_is_initialized(); }

  // PyTorch comes by here, or by the Python module's `_lazy_init`, before it makes a tensor.
  void init() const override { initialize_devices(); }

  c10::DeviceIndex deviceCount() const override {
    int count = 0;
    return openreg_device_count(&count) == OPENREG_OK ? static_cast<c10::DeviceIndex>(count)
                                                      : static_cast<c10::DeviceIndex>(0);
  }

  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(openreg_device_current());
  }

  void setCurrentDevice(c10::DeviceIndex device) const override {
    check(openreg_device_set_current(device));
  }

  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const auto previous = getCurrentDevice();
    setCurrentDevice(device);
    return previous;
  }

  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? getCurrentDevice() : exchangeDevice(device);
  }

  const at::Generator &getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }

  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return make_generator(device);
  }

  at::Device getDeviceFromPtr(void *data) const override {
    const int device = openreg_arena_device_of(data);
    TORCH_CHECK(device >= 0, "openreg: the address ", data, " is not in the memory of any device");
    return {kDeviceType, static_cast<c10::DeviceIndex>(device)};
  }

  bool isPinnedPtr(const void *data) const override { return openreg_pinned_contains(data); }

  at::Allocator *getPinnedMemoryAllocator() const override { return pinned_allocator(); }

  void resizePrivateUse1Bytes(const c10::Storage &storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

} // namespace

void initialize_devices() {
  require_allocator_settings();
  check(openreg_initialize());
  register_composite_fallbacks();
  register_blas_launches();
}

// Never destroyed, for PyTorch keeps the pointer.
void register_hooks() {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
}

} // namespace openreg
