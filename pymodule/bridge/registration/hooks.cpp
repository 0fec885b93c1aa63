// What PyTorch's own code asks of an accelerator outside of operators and guards.

#include "registration/hooks.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <atomic>
#include <memory>

#include "launch/blas_launch.h"
#include "launch/boxed.h"
#include "memory/allocation/allocator_settings.h"
#include "memory/allocation/memory.h"
#include "memory/allocation/pinned.h"
#include "operators/random/torch_generator.h"
#include "streams/gpu_trace.h"
#include "streams/inline_guard.h"
#include "tensor/device_tensor.h"

namespace openreg {

namespace {

// What is asked of either device type.
template <class Interface> class Hooks : public Interface {
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
};

class OwnHooks final : public Hooks<at::PrivateUse1HooksInterface> {
public:
  void resizePrivateUse1Bytes(const c10::Storage &storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

// The libraries beside CUDA's runtime are not there: cuDNN, MAGMA and cuSOLVER are not looked for.
class CudaHooks final : public Hooks<at::CUDAHooksInterface> {
public:
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasCuBLASLt() const override { return true; }

  c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  int getNumGPUs() const override { return deviceCount(); }
  at::Allocator *getCUDADeviceAllocator() const override { return device_allocator(); }
  void deviceSynchronize(c10::DeviceIndex device) const override {
    trace_device_synchronization(device);
    wait_for_device(device);
  }

  std::string showConfig() const override { return "  - CUDA simulated by openreg\n"; }

  // Plans are made anew by each transform: the cache has a size that can be set, and no plans.
  int64_t cuFFTGetPlanCacheMaxSize(c10::DeviceIndex) const override { return most_plans_; }
  void cuFFTSetPlanCacheMaxSize(c10::DeviceIndex, int64_t size) const override {
    most_plans_ = size;
  }
  int64_t cuFFTGetPlanCacheSize(c10::DeviceIndex) const override { return 0; }
  void cuFFTClearPlanCache(c10::DeviceIndex) const override {}

private:
  mutable std::atomic<int64_t> most_plans_ = 4096; // PyTorch's default
};

} // namespace

void initialize_devices() {
  require_allocator_settings();
  check(openreg_initialize());
  register_composite_fallbacks();
  register_blas_launches();
}

// PyTorch looks for CUDA's hooks once, when `torch._C` is loaded: so this is called before that.
extern "C" __attribute__((visibility("default"))) void openreg_register_cuda_hooks() {
  if (in_cuda_mode() && !at::CUDAHooksRegistry()->Has("CUDAHooks")) {
    at::CUDAHooksRegistry()->Register("CUDAHooks", [](at::CUDAHooksArgs) {
      return std::unique_ptr<at::CUDAHooksInterface>(new CudaHooks());
    });
  }
}

// Never destroyed, for PyTorch keeps the pointer.
void register_hooks() {
  if (!in_cuda_mode()) {
    at::RegisterPrivateUse1HooksInterface(new OwnHooks());
    return;
  }
  openreg_register_cuda_hooks();
  TORCH_CHECK(at::detail::getCUDAHooks().hasCUDA(),
              "openreg: PyTorch was loaded before OPENREG_DEVICE_TYPE=cuda could be seen: set the "
              "variable before the program starts, or use `openreg run`");
}

} // namespace openreg
