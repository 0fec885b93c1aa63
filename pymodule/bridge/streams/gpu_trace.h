// PyTorch's callbacks for what watches how a program uses streams, events and memory, as
// torch.cuda._sanitizer does. Nobody watches unless PyTorch was told to: then a launch pays for it.
#pragma once

#include <c10/core/impl/GPUTrace.h>

#include <memory>

#include "streams/handle.h"
#include "streams/stream_observer.h"

namespace openreg {

// Holds the GIL, and keeps the exception that Python has raised, if it has: memory is freed while
// one is on its way, and who watches is Python.
class KeptPythonError {
public:
  KeptPythonError();
  ~KeptPythonError();

private:
  struct State;
  std::unique_ptr<State> state_;
};

// Tells it to the watcher.
template <class Tell> void trace_gpu(Tell tell) {
  if (const auto *const watcher = c10::impl::GPUTrace::get_trace(); watcher != nullptr)
      [[unlikely]] {
    const KeptPythonError kept;
    tell(**watcher);
  }
}

// The host is about to wait for a device, or a stream, or finds that it need not.
inline void trace_device_synchronization(c10::DeviceIndex device) {
  tell_watcher([device](Watcher &watcher) { watcher.synchronize(device); });
  trace_gpu([](const auto &watcher) { watcher.trace_gpu_device_synchronization(kDeviceType); });
}

inline void trace_stream_synchronization(const c10::Stream &stream) {
  tell_watcher([&](Watcher &watcher) { watcher.synchronize(queue_of(stream)); });
  trace_gpu([&](const auto &watcher) {
    watcher.trace_gpu_stream_synchronization(kDeviceType, handle_of_stream(stream));
  });
}

} // namespace openreg
