// PyTorch's accelerator hooks: what it needs from a device type besides operators and the guard.

#include "registration/hooks.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <array>
#include <atomic>
#include <memory>

#include "launch/blas_launch.h"
#include "launch/boxed.h"
#include "memory/allocation/allocator_settings.h"
#include "memory/allocation/memory.h"
#include "memory/allocation/pinned.h"
#include "operators/random/torch_generator.h"
#include "profiler/host_wait.h"
#include "registration/bridge_functions.h"
#include "streams/observer.h"
#include "streams/inline_guard.h"
#include "tensor/device_tensor.h"

namespace openreg {

namespace {

// The hooks that both device types share.
template <class Interface> class Hooks : public Interface {
public:
  bool isBuilt() const override { return true; }

  bool isAvailable() const override { return deviceCount() > 0; }

  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return openreg_device_has_context(device);
  }

  // PyTorch calls this, or the Python module's `_lazy_init`, before it makes a tensor.
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
    TORCH_CHECK(device >= 0 || !openreg_pinned_contains(data), "openreg: ", data,
                " is pinned host memory, which cannot be the memory of a device's tensor: copy it");
    TORCH_CHECK(device >= 0,
                "The specified pointer resides on host memory and is not registered with any ",
                platform_name(), " device.");
    return {kDeviceType, static_cast<c10::DeviceIndex>(device)};
  }

  bool isPinnedPtr(const void *data) const override { return openreg_pinned_contains(data); }

  at::Allocator *getPinnedMemoryAllocator() const override { return pinned_allocator(); }
};

class OpenregHooks final : public Hooks<at::PrivateUse1HooksInterface> {
public:
  void resizePrivateUse1Bytes(const c10::Storage &storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

// Programs choose between cuSOLVER and MAGMA, so both are reported as present, although the CPU's
// kernels compute everything. Other libraries beyond CUDA's runtime, such as cuDNN, are absent.
class CudaHooks final : public Hooks<at::CUDAHooksInterface>, public BridgeFunctions {
public:
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasCuBLASLt() const override { return true; }
  bool hasCuSOLVER() const override { return true; }
  bool hasMAGMA() const override { return true; }

  c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  int getNumGPUs() const override { return deviceCount(); }
  at::Allocator *getCUDADeviceAllocator() const override { return device_allocator(); }
  void deviceSynchronize(c10::DeviceIndex device) const override {
    notify_observers([device](Observer &observer) { observer.synchronize(device); });
    const HostWait wait(Awaited::kDevice, device);
    wait_for_device(device);
  }

  std::string showConfig() const override { return "  - CUDA simulated by openreg\n"; }

  // Transforms make no plans. The size of a device's cache can be set, but it is always empty.
  int64_t cuFFTGetPlanCacheMaxSize(c10::DeviceIndex device) const override {
    return max_plans(device);
  }
  void cuFFTSetPlanCacheMaxSize(c10::DeviceIndex device, int64_t size) const override {
    TORCH_CHECK(size >= 0, "cuFFT plan cache size must be non-negative, but got ", size);
    max_plans(device) = size;
  }
  int64_t cuFFTGetPlanCacheSize(c10::DeviceIndex) const override { return 0; }
  void cuFFTClearPlanCache(c10::DeviceIndex) const override {}

private:
  struct MaxPlans {
    std::atomic<int64_t> value = 4096; // PyTorch's default
  };

  std::atomic<int64_t> &max_plans(c10::DeviceIndex device) const {
    TORCH_CHECK_INDEX(device >= 0 && device < deviceCount(), "expected a device index from 0 to ",
                      deviceCount() - 1, ", got ", static_cast<int>(device));
    return max_plans_[static_cast<size_t>(device)].value;
  }

  mutable std::array<MaxPlans, OPENREG_MAX_DEVICES> max_plans_;
};

} // namespace

void initialize_devices() {
  require_allocator_settings();
  check(openreg_initialize());
  register_composite_fallbacks();
  register_blas_launches();
}

// PyTorch looks for CUDA's hooks once, when torch._C is loaded. So this must be called before.
extern "C" __attribute__((visibility("default"))) void openreg_register_cuda_hooks() {
  if (in_cuda_mode() && !at::CUDAHooksRegistry()->Has("CUDAHooks")) {
    at::CUDAHooksRegistry()->Register("CUDAHooks", [](at::CUDAHooksArgs) {
      return std::unique_ptr<at::CUDAHooksInterface>(new CudaHooks());
    });
  }
}

// The hooks are never destroyed, because PyTorch keeps the pointer.
void register_hooks() {
  if (!in_cuda_mode()) {
    at::RegisterPrivateUse1HooksInterface(new OpenregHooks());
    return;
  }
  openreg_register_cuda_hooks();
  TORCH_CHECK(
      at::detail::getCUDAHooks().hasCUDA(),
      "openreg: PyTorch was imported before OPENREG_DEVICE_TYPE=cuda was set. Set the variable "
      "before the program starts, or use `openreg run`.");
}

} // namespace openreg
