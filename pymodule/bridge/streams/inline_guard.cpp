#include "streams/inline_guard.h"

#include "streams/run_ahead.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace openreg {

namespace {

// Ctrl-C is noticed after at most this time.
constexpr uint64_t kSliceNs = 50'000'000;

// On Python's main thread: raises KeyboardInterrupt, or what another signal's handler raises.
void check_signals() {
  if (Py_IsInitialized() == 0 || Py_IsFinalizing() != 0) {
    return;
  }
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    throw python_error();
  }
}

// Tries once with the GIL held: releasing and retaking it costs more than a wait that ends at once.
template <class Wait> void wait_in_slices(Wait wait) {
  auto status = wait(0);
  if (status != OPENREG_NOT_READY) {
    check(status);
    return;
  }
  const WithoutGil no_gil;
  while ((status = wait(kSliceNs)) == OPENREG_NOT_READY) {
    check_signals();
  }
  check(status);
}

} // namespace

constinit thread_local int InlineGuard::depth_ = 0;
constinit thread_local int64_t launches_queued_by_thread = 0;

void InlineGuard::wait() {
  do { // another thread may take the stream between the wait and the attempt
    wait_for_stream(device_, stream_);
    const auto status = openreg_stream_try_begin_inline(device_, stream_);
    if (status != OPENREG_NOT_READY) {
      check(status);
      begin();
    }
  } while (!held_);
}

WithoutGil::WithoutGil()
    : state_(Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}

WithoutGil::~WithoutGil() {
  if (state_ != nullptr) {
    PyEval_RestoreThread(static_cast<PyThreadState *>(state_));
  }
}

void launch_on_stream(c10::DeviceIndex device, int stream, openreg_stream_function function,
                      void *data) {
  wait_in_slices(
      [=](uint64_t slice) { return openreg_stream_await_room_for(device, stream, slice); });
  check(openreg_stream_launch(device, stream, function, data));
  ++launches_queued_by_thread;
}

void wait_for_stream(c10::DeviceIndex device, int stream) {
  record_wait(device);
  wait_in_slices(
      [=](uint64_t slice) { return openreg_stream_synchronize_for(device, stream, slice); });
}

void wait_for_device(c10::DeviceIndex device) {
  record_wait(device);
  wait_in_slices([=](uint64_t slice) { return openreg_device_synchronize_for(device, slice); });
}

void wait_for_event(const openreg_event *event) {
  record_wait(static_cast<c10::DeviceIndex>(openreg_event_device(event)));
  wait_in_slices([=](uint64_t slice) { return openreg_event_synchronize_for(event, slice); });
}

} // namespace openreg
