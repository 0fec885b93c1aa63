// The device guard: the current device and stream of each thread, and events. torch.accelerator,
// torch.Stream, torch.Event and autograd's device threads use it.

#include "registration/guard.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "memory/observation/debug_memory.h"
#include "memory/exchange/ipc.h"
#include "device/capture.h"
#include "profiler/host_wait.h"
#include "streams/handle.h"
#include "streams/observer.h"
#include "streams/sync_debug.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

class Guard final : public c10::impl::DeviceGuardImplInterface {
public:
  c10::DeviceType type() const override { return kDeviceType; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const auto previous = getDevice();
    if (device.index() != previous.index()) {
      setDevice(device);
    }
    return previous;
  }

  c10::Device getDevice() const override {
    return {kDeviceType, static_cast<c10::DeviceIndex>(openreg_device_current())};
  }

  void setDevice(c10::Device device) const override {
    check(openreg_device_set_current(device.index()));
  }

  void uncheckedSetDevice(c10::Device device) const noexcept override {
    openreg_device_set_current(device.index()); // an invalid index has no effect
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    int count = 0;
    return openreg_device_count(&count) == OPENREG_OK ? static_cast<c10::DeviceIndex>(count)
                                                      : static_cast<c10::DeviceIndex>(0);
  }

  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    return {}; // all dtypes
  }

  // ---- streams ----------------------------------------------------------------------------------

  c10::Stream getStream(c10::Device device) const override {
    int stream = OPENREG_STREAM_DEFAULT;
    check(openreg_stream_current(resolve(device).index(), &stream));
    return make_stream(resolve(device), stream);
  }

  c10::Stream getDefaultStream(c10::Device device) const override {
    return make_stream(resolve(device), OPENREG_STREAM_DEFAULT);
  }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return getNewStream(device, high_priority ? 1 - OPENREG_STREAM_PRIORITIES : 0);
  }

  c10::Stream getNewStream(c10::Device device, int priority) const override {
    int stream = OPENREG_STREAM_DEFAULT;
    check(openreg_stream_from_pool(resolve(device).index(), priority, &stream));
    const auto made = make_stream(resolve(device), stream);
    notify_observers([&](Observer &observer) { observer.stream_created(stream_key_of(made)); });
    return made;
  }

  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto previous = getStream(stream.device());
    check(openreg_stream_set_current(stream.device_index(), static_cast<int>(stream.id())));
    return previous;
  }

  void *getStreamNativeHandle(c10::Stream stream) const override {
    return reinterpret_cast<void *>(handle_of_stream(stream));
  }

  bool queryStream(const c10::Stream &stream) const override {
    const auto ready =
        is_ready(openreg_stream_query(stream.device_index(), static_cast<int>(stream.id())));
    if (ready) {
      notify_observers([&](Observer &observer) { observer.found_done(stream_key_of(stream)); });
    }
    return ready;
  }

  void synchronizeStream(const c10::Stream &stream) const override {
    note_sync(stream);
    const HostWait wait(Awaited::kStream, stream.device_index(), static_cast<int>(stream.id()));
    wait_for_stream(stream.device_index(), static_cast<int>(stream.id()));
  }

  void synchronizeDevice(c10::DeviceIndex device) const override {
    notify_observers([device](Observer &observer) { observer.synchronize(device); });
    const HostWait wait(Awaited::kDevice, device);
    wait_for_device(device);
    check_memory_damage(device);
  }

  bool isStreamCapturing(const c10::Stream &stream) const override {
    bool is_valid = false;
    return openreg_stream_capture(stream.device_index(), static_cast<int>(stream.id()),
                                  &is_valid) != 0;
  }

  void recordDataPtrOnStream(const c10::DataPtr &pointer,
                             const c10::Stream &stream) const override {
    static_cast<c10::DeviceAllocator *>(c10::GetAllocator(kDeviceType))
        ->recordStream(pointer, stream);
  }

  // ---- events -----------------------------------------------------------------------------------

  void record(void **event, const c10::Stream &stream, c10::DeviceIndex device,
              c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device index ",
                static_cast<int>(device), " does not match recording stream's device index ",
                static_cast<int>(stream.device_index()), ".");
    if (*event == nullptr) {
      if ((*event = PendingEventImport::take()) != nullptr) {
        return;
      }
      openreg_event *made = nullptr;
      check(openreg_event_create(stream.device_index(), flag == c10::EventFlag::BACKEND_DEFAULT,
                                 &made));
      *event = made;
      notify_observers([made](Observer &observer) { observer.event_created(made); });
    }
    notify_observers([&](Observer &observer) {
      observer.record(as_event(*event), stream_key_of(stream), EventOrigin::kProgram);
    });
    const WithoutGil
        no_gil; // a timed record may wait for room in the queue; Ctrl-C does not end it
    check(openreg_event_record(as_event(*event), static_cast<int>(stream.id())));
  }

  void block(void *event, const c10::Stream &stream) const override {
    if (event != nullptr) {
      notify_observers([&](Observer &observer) {
        observer.wait(stream_key_of(stream), as_event(event), EventOrigin::kProgram);
      });
      const WithoutGil no_gil; // it may wait for room in the queue; Ctrl-C does not end it
      check(openreg_stream_wait_event(stream.device_index(), static_cast<int>(stream.id()),
                                      as_event(event)));
    }
  }

  bool queryEvent(void *event) const override {
    check(openreg_capture_refuse_unsafe("querying an event"));
    const auto ready = event == nullptr || is_ready(openreg_event_query(as_event(event)));
    if (ready && event != nullptr) {
      notify_observers([event](Observer &observer) { observer.found_done(as_event(event)); });
    }
    return ready;
  }

  void synchronizeEvent(void *event) const override {
    if (event != nullptr) {
      check(openreg_capture_refuse_unsafe("waiting for an event"));
      notify_observers([event](Observer &observer) {
        observer.synchronize(as_event(event), EventOrigin::kProgram);
      });
      const HostWait wait(Awaited::kEvent,
                          static_cast<c10::DeviceIndex>(openreg_event_device(as_event(event))));
      wait_for_event(as_event(event));
    }
  }

  void destroyEvent(void *event, c10::DeviceIndex) const noexcept override {
    notify_observers(
        [event](Observer &observer) { observer.forget(as_event(event), EventOrigin::kProgram); });
    openreg_event_destroy(as_event(event));
  }

  double elapsedTime(void *start, void *end, c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    double milliseconds = 0;
    const auto status = openreg_event_elapsed_ms(as_event(start), as_event(end), &milliseconds);
    // A RuntimeError, not ValueError, for events of two devices. PyTorch has checked everything
    // else.
    TORCH_CHECK(status != OPENREG_INVALID_ARGUMENT, openreg_last_error());
    check(status);
    return milliseconds;
  }

private:
  static openreg_event *as_event(void *event) { return static_cast<openreg_event *>(event); }

  static bool is_ready(openreg_status status) {
    if (status != OPENREG_NOT_READY) {
      check(status);
    }
    return status == OPENREG_OK;
  }

  c10::Device resolve(c10::Device device) const {
    return device.has_index() ? device : getDevice();
  }

  static c10::Stream make_stream(c10::Device device, int stream) {
    return c10::Stream(c10::Stream::UNSAFE, device, stream);
  }
};

} // namespace

void register_guard() {
  static const c10::impl::DeviceGuardImplRegistrar registrar(kDeviceType, new Guard());
}

} // namespace openreg
