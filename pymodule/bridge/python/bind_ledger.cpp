// Converts the ledger's snapshots to plain Python objects, for `openreg smi`.

#include "python/bind.h"

#include <cstring>
#include <memory>

#include "device/device.h"
#include "core/status.h"

namespace py = pybind11;

namespace openreg {

namespace {

// The names of other processes may not be valid UTF-8.
py::object text_of(const char *bytes) {
  auto *text = PyUnicode_DecodeUTF8(bytes, static_cast<Py_ssize_t>(std::strlen(bytes)), "replace");
  if (text == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(text);
}

py::dict device_to_dict(const openreg_ledger_device &device) {
  py::dict dict;
  dict["profile"] = text_of(device.profile);
  dict["name"] = text_of(device.name);
  char uuid[OPENREG_UUID_TEXT_BYTES];
  openreg_device_write_uuid(device.uuid, uuid);
  dict["uuid"] = uuid;
  dict["total_bytes"] = device.total_bytes;
  dict["used_bytes"] = device.used_bytes;
  dict["busy_percent"] = device.busy_percent;
  dict["numa_node"] = device.numa_node;
  dict["cpuset"] = text_of(device.cpuset);
  return dict;
}

py::dict process_to_dict(const openreg_ledger_process &process, int device_count) {
  py::list bytes;
  for (int i = 0; i < device_count; ++i) {
    bytes.append(process.bytes[i]);
  }
  py::dict dict;
  dict["pid"] = process.pid;
  dict["has_exited"] = process.has_exited;
  dict["started_ns"] = process.started_ns;
  dict["name"] = text_of(process.name);
  dict["bytes"] = bytes;
  return dict;
}

py::dict snapshot_to_dict(const openreg_ledger_snapshot &snapshot) {
  py::list devices;
  for (int i = 0; i < snapshot.device_count; ++i) {
    devices.append(device_to_dict(snapshot.devices[i]));
  }
  py::list processes;
  for (int i = 0; i < snapshot.process_count; ++i) {
    processes.append(process_to_dict(snapshot.processes[i], snapshot.device_count));
  }
  py::dict dict;
  dict["group"] = text_of(snapshot.group);
  dict["devices"] = devices;
  dict["processes"] = processes;
  return dict;
}

struct Snapshots {
  openreg_ledger_snapshot *first = nullptr;
  int count = 0;
  ~Snapshots() { openreg_ledger_free_snapshots(first, count); }
};

// Returns all device groups of this user, and a message about what could not be read, or None.
py::tuple ledger_list() {
  Snapshots snapshots;
  const char *problem = nullptr;
  {
    const py::gil_scoped_release released;
    check(openreg_ledger_list(&snapshots.first, &snapshots.count, &problem));
  }
  py::list groups;
  for (int i = 0; i < snapshots.count; ++i) {
    groups.append(snapshot_to_dict(snapshots.first[i]));
  }
  return py::make_tuple(groups, problem == nullptr ? py::none() : text_of(problem));
}

py::dict ledger_preview() {
  const auto snapshot = std::make_unique<openreg_ledger_snapshot>();
  check(openreg_ledger_preview(snapshot.get()));
  return snapshot_to_dict(*snapshot);
}

} // namespace

void define_ledger(py::module &module) {
  module.def("ledger_list", &ledger_list);
  module.def("ledger_preview", &ledger_preview);
}

} // namespace openreg
