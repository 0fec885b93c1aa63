#include "python/bind.h"

#include <torch/csrc/Event.h>

#include <cstring>
#include <string_view>

#include "memory/exchange/ipc.h"

namespace py = pybind11;

namespace openreg {

namespace {

openreg_ipc_handle handle_of(std::string_view bytes) {
  openreg_ipc_handle handle;
  TORCH_CHECK(bytes.size() == sizeof(handle.bytes), "openreg: got an IPC handle of ", bytes.size(),
              " bytes, expected ", sizeof(handle.bytes));
  std::memcpy(handle.bytes, bytes.data(), bytes.size());
  return handle;
}

py::bytes bytes_of(const openreg_ipc_handle &handle) {
  return {reinterpret_cast<const char *>(handle.bytes), sizeof(handle.bytes)};
}

c10::Event &event_of(const py::object &event) {
  TORCH_CHECK_TYPE(THPEvent_Check(event.ptr()), "expected a torch.Event, got ",
                   Py_TYPE(event.ptr())->tp_name);
  return reinterpret_cast<THPEvent *>(event.ptr())->event;
}

py::object import_new_event(int device, const py::bytes &handle) {
  auto event =
      py::reinterpret_steal<py::object>(THPEvent_new(kDeviceType, c10::EventFlag::PYTORCH_DEFAULT));
  import_event(event_of(event), device_index(device), handle_of(handle));
  return event;
}

} // namespace

void define_ipc(py::module &module) {
  module.def("export_storage",
             [](const c10::Storage &storage) { return bytes_of(export_storage(storage)); });
  module.def("import_storage", [](int device, size_t bytes, const py::bytes &handle) {
    return import_storage(device_index(device), bytes, handle_of(handle));
  });
  module.def("export_event",
             [](const py::object &event) { return bytes_of(export_event(event_of(event))); });
  module.def("import_event", &import_new_event);
  module.def("import_event_into", [](const py::object &event, int device, const py::bytes &handle) {
    import_event(event_of(event), device_index(device), handle_of(handle));
  });
  module.def("device_of_handle",
             [](const py::bytes &handle) { return device_of_handle(handle_of(handle)); });
  module.def("ipc_collect", &collect_shared_memory);
}

} // namespace openreg
