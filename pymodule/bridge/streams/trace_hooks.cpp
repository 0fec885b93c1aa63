// PyTorch's GPU trace callbacks as an observer. Python tools such as torch.cuda._sanitizer enable
// them to follow streams, events and memory.
#include <c10/core/impl/GPUTrace.h>
#include <torch/csrc/utils/pybind.h>

#include "streams/handle.h"
#include "streams/observer.h"

namespace openreg {

namespace {

uintptr_t handle_of(StreamKey stream) {
  return handle_of_stream(stream.device, stream.stream);
}

uintptr_t id_of(const openreg_event *event) {
  return reinterpret_cast<uintptr_t>(event);
}

class TraceHooks final : public Observer {
public:
  void stream_created(StreamKey stream) override {
    call([&](const auto &hooks) {
      hooks.trace_gpu_stream_creation(kDeviceType, handle_of(stream));
    });
  }

  void event_created(const openreg_event *event) override {
    call([&](const auto &hooks) { hooks.trace_gpu_event_creation(kDeviceType, id_of(event)); });
  }

  void record(const openreg_event *event, StreamKey stream, EventOrigin origin) override {
    if (origin == EventOrigin::kProgram) {
      call([&](const auto &hooks) {
        hooks.trace_gpu_event_record(kDeviceType, id_of(event), handle_of(stream));
      });
    }
  }

  void wait(StreamKey stream, const openreg_event *event, EventOrigin origin) override {
    if (origin == EventOrigin::kProgram) {
      call([&](const auto &hooks) {
        hooks.trace_gpu_event_wait(kDeviceType, id_of(event), handle_of(stream));
      });
    }
  }

  void forget(const openreg_event *event, EventOrigin origin) noexcept override {
    if (origin == EventOrigin::kProgram) {
      call([&](const auto &hooks) { hooks.trace_gpu_event_deletion(kDeviceType, id_of(event)); });
    }
  }

  void synchronize(const openreg_event *event, EventOrigin origin) override {
    if (origin == EventOrigin::kProgram) {
      call([&](const auto &hooks) {
        hooks.trace_gpu_event_synchronization(kDeviceType, id_of(event));
      });
    }
  }

  void synchronize(StreamKey stream) override {
    call([&](const auto &hooks) {
      hooks.trace_gpu_stream_synchronization(kDeviceType, handle_of(stream));
    });
  }

  void synchronize(c10::DeviceIndex /*device*/) override {
    call([](const auto &hooks) { hooks.trace_gpu_device_synchronization(kDeviceType); });
  }

  void allocated(const openreg_block &block) override {
    if (block.address != nullptr) {
      call([&](const auto &hooks) {
        hooks.trace_gpu_memory_allocation(kDeviceType, reinterpret_cast<uintptr_t>(block.address));
      });
    }
  }

  void begin_free(const openreg_block &block) override {
    if (block.address != nullptr) {
      call([&](const auto &hooks) {
        hooks.trace_gpu_memory_deallocation(kDeviceType,
                                            reinterpret_cast<uintptr_t>(block.address));
      });
    }
  }

private:
  // A callback is Python code. Memory may be freed while an exception propagates, so Python's
  // pending exception is saved.
  template <class Call> static void call(Call function) {
    if (const auto *const hooks = c10::impl::GPUTrace::get_trace(); hooks != nullptr) {
      const pybind11::gil_scoped_acquire gil;
      const pybind11::error_scope error;
      function(**hooks);
    }
  }
};

} // namespace

void add_enabled_trace_hooks() {
  if (c10::impl::GPUTrace::haveState) {
    static const bool is_added = [] {
      add_observer(*new TraceHooks()); // never freed: threads may outlive static objects
      return true;
    }();
    (void)is_added;
  }
}

} // namespace openreg
