#include "streams/inline_guard.h"

#include "streams/run_ahead.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace openreg {

namespace {

// How long a person waits for Ctrl-C to be noticed.
constexpr uint64_t kSliceNs = 50'000'000;

// Raises KeyboardInterrupt, or what another signal's handler raised, on Python's main thread.
void check_signals() {
  if (Py_IsInitialized() == 0 || Py_IsFinalizing() != 0) {
    return;
  }
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    throw python_error();
  }
}

// Nobody is let run where there is nothing to wait for: to give the GIL away and to take it back
// costs more than such a wait.
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

constinit thread_local int Turn::depth_ = 0;
constinit thread_local int64_t queued_by_this_thread = 0;

void Turn::wait() {
  do { // another thread may be faster when the stream becomes idle
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
  ++queued_by_this_thread;
}

void wait_for_stream(c10::DeviceIndex device, int stream) {
  note_wait(device);
  wait_in_slices(
      [=](uint64_t slice) { return openreg_stream_synchronize_for(device, stream, slice); });
}

void wait_for_device(c10::DeviceIndex device) {
  note_wait(device);
  wait_in_slices([=](uint64_t slice) { return openreg_device_synchronize_for(device, slice); });
}

void wait_for_event(const openreg_event *event) {
  note_wait(static_cast<c10::DeviceIndex>(openreg_event_device(event)));
  wait_in_slices([=](uint64_t slice) { return openreg_event_synchronize_for(event, slice); });
}

} // namespace openreg
