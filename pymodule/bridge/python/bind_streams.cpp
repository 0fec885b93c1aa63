#include "python/bind.h"

#include <torch/csrc/Event.h>

#include <memory>

#include "core/status.h"
#include "streams/current.h"
#include "streams/handle.h"
#include "streams/sleep.h"

namespace py = pybind11;

namespace openreg {

namespace {

int stream_priority(int device, int stream) {
  int priority = 0;
  check(openreg_stream_priority(device, stream, &priority));
  return priority;
}

// The current device, if the handle is that of a default stream.
int device_of_stream_handle(uintptr_t handle) {
  int device = openreg_device_current();
  int stream = 0;
  if (in_cuda_mode()) {
    check(openreg_stream_parse_handle(handle, &device, &stream));
  }
  return device;
}

// torch.Event.elapsed_time() for classes that derive from torch.Event, too.
double event_elapsed_time(const py::object &start, const py::object &end) {
  TORCH_CHECK_TYPE(THPEvent_Check(start.ptr()) && THPEvent_Check(end.ptr()), "expected two events");
  return reinterpret_cast<THPEvent *>(start.ptr())
      ->event.elapsedTime(reinterpret_cast<THPEvent *>(end.ptr())->event);
}

} // namespace

void define_streams(py::module &module) {
  module.def("current_stream", &current_stream);
  module.def("set_current_stream",
             [](int device, int stream) { check(openreg_stream_set_current(device, stream)); });
  module.def("stream_priority", &stream_priority);
  module.def("stream_handle", py::overload_cast<int, int64_t>(&handle_of_stream));
  module.def("stream_of_handle", &stream_of_handle);
  module.def("device_of_stream_handle", &device_of_stream_handle);
  module.def("event_elapsed_time", &event_elapsed_time);
  module.def("sleep_on_current_stream", &sleep_on_current_stream);
}

} // namespace openreg
