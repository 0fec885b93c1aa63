// Device times for PyTorch's legacy profiler, which records an event before and after each
// operator: `torch.autograd.profiler.profile(use_device="openreg", use_kineto=False)`.

#include "profiler/profiler.h"

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "core/status.h"
#include "profiler/kineto.h"

namespace openreg {

namespace {

using torch::profiler::impl::ProfilerStubs;
using torch::profiler::impl::ProfilerVoidEventStub;

constexpr float kMicrosecondsPerMillisecond = 1000;

class Profiler final : public ProfilerStubs {
public:
  void record(c10::DeviceIndex *device, ProfilerVoidEventStub *event,
              int64_t *cpu_ns) const override {
    const int current = openreg_device_current();
    openreg_event *made = nullptr;
    check(openreg_event_create(current, true, &made));
    *event = ProfilerVoidEventStub(
        made, [](void *each) { openreg_event_destroy(static_cast<openreg_event *>(each)); });
    int stream = OPENREG_STREAM_DEFAULT;
    check(openreg_stream_current(current, &stream));
    check(openreg_event_record(made, stream));
    if (device != nullptr) {
      *device = static_cast<c10::DeviceIndex>(current);
    }
    if (cpu_ns != nullptr) {
      *cpu_ns = c10::getTime();
    }
  }

  // In microseconds.
  float elapsed(const ProfilerVoidEventStub *start,
                const ProfilerVoidEventStub *end) const override {
    auto *first = static_cast<openreg_event *>(start->get());
    auto *last = static_cast<openreg_event *>(end->get());
    check(openreg_event_synchronize(first));
    check(openreg_event_synchronize(last));
    double milliseconds = 0;
    check(openreg_event_elapsed_ms(first, last, &milliseconds));
    return static_cast<float>(milliseconds) * kMicrosecondsPerMillisecond;
  }

  bool enabled() const override { return true; }

  void onEachDevice(std::function<void(int)> visit) const override {
    const int current = openreg_device_current();
    int count = 0;
    check(openreg_device_count(&count));
    for (int device = 0; device < count; ++device) {
      check(openreg_device_set_current(device));
      visit(device);
    }
    check(openreg_device_set_current(current));
  }

  void synchronize() const override { check(openreg_device_synchronize(openreg_device_current())); }

  // Marks and ranges are for external tools that observe a device. There are none.
  void mark(const char *) const override {}
  void rangePush(const char *) const override {}
  void rangePop() const override {}
};

} // namespace

// PyTorch keeps the pointer as long as the process lives.
void register_profiler() {
  register_kineto_profiler();
  if (in_cuda_mode()) {
    torch::profiler::impl::registerCUDAMethods(new Profiler());
  } else {
    torch::profiler::impl::registerPrivateUse1Methods(new Profiler());
  }
}

} // namespace openreg
