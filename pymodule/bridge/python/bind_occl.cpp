#include "python/bind.h"

#include <pybind11/chrono.h>

#include "distributed/flight/recorder.h"
#include "distributed/occl/process_group_occl.h"
#include "python/held_without_gil.h"

namespace py = pybind11;

namespace openreg {

namespace {

using NoGil = py::call_guard<py::gil_scoped_release>;
using Options = ProcessGroupOccl::Options;
using OptionsPtr = c10::intrusive_ptr<Options>;

std::string class_name() {
  return std::string("ProcessGroup") + backend_title();
}

void define_options(const py::object &group) {
  py::class_<Options, c10d::Backend::Options, OptionsPtr>(group, "Options")
      .def(py::init([](bool is_high_priority_stream) {
             return c10::make_intrusive<Options>(is_high_priority_stream);
           }),
           py::arg("is_high_priority_stream") = false)
      .def_readwrite("is_high_priority_stream", &Options::is_high_priority_stream)
      .def_readwrite("split_from", &Options::split_from)
      .def_readwrite("split_color", &Options::split_color)
      .def_readwrite("config", &Options::config)
      .def("__copy__", [](const Options &self) { return c10::make_intrusive<Options>(self); })
      .def("__deepcopy__", [](const Options &self, const py::dict &) {
        return c10::make_intrusive<Options>(self);
      });
}

void define_config(const py::object &group) {
  py::class_<ProcessGroupOccl::Config> config(group, "NCCLConfig");
  config.def(py::init<>())
      .def_readwrite("net_name", &ProcessGroupOccl::Config::net_name)
      .def_readwrite("comm_name", &ProcessGroupOccl::Config::comm_name)
      .def("__copy__", [](const ProcessGroupOccl::Config &self) { return self; })
      .def("__deepcopy__",
           [](const ProcessGroupOccl::Config &self, const py::dict &) { return self; });
#define OPENREG_FIELD(name) config.def_readwrite(#name, &ProcessGroupOccl::Config::name);
  OPENREG_NCCL_CONFIG(OPENREG_FIELD)
#undef OPENREG_FIELD
}

// The functions have the names of PyTorch's functions for NCCL.
void define_flight_recorder(py::module module) {
  auto recorder = module.def_submodule("_flight_recorder");
  using OptionalBool = std::optional<bool>;
  recorder.def(
      "_dump_nccl_trace",
      [](OptionalBool calls, OptionalBool frames, OptionalBool only_active) {
        return py::bytes(FlightRecorder::get().dump(
            {calls.value_or(true), frames.value_or(true), only_active.value_or(false)}));
      },
      py::arg("includeCollectives") = OptionalBool(),
      py::arg("includeStackTraces") = OptionalBool(), py::arg("onlyActive") = OptionalBool());
  recorder.def(
      "_dump_nccl_trace_json",
      [](OptionalBool calls, OptionalBool only_active) {
        return py::bytes(FlightRecorder::get().dump_json(
            {calls.value_or(true), false, only_active.value_or(false)}));
      },
      py::arg("includeCollectives") = OptionalBool(), py::arg("onlyActive") = OptionalBool());
  recorder.def("_reset_fr_recording_nccl", [] { FlightRecorder::get().reset(); });
  recorder.def("set_library_version", [](std::string version) {
    FlightRecorder::set_library_version(std::move(version));
  });
  register_flight_requests();
}

} // namespace

void define_occl(const py::module &module) {
  using Milliseconds = std::chrono::milliseconds;
  py::class_<ProcessGroupOccl, c10d::Backend, HeldWithoutGil<ProcessGroupOccl>> group(
      module, class_name().c_str());
  define_flight_recorder(module);
  define_config(group);
  define_options(group);
  group
      .def(py::init([](const ProcessGroupOccl::StorePtr &store, int rank, int size,
                       OptionsPtr options) {
             return c10::make_intrusive<ProcessGroupOccl>(store, rank, size, std::move(options));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"), NoGil())
      .def(py::init([](const ProcessGroupOccl::StorePtr &store, int rank, int size,
                       Milliseconds timeout) {
             auto options = c10::make_intrusive<Options>();
             options->timeout = timeout;
             return c10::make_intrusive<ProcessGroupOccl>(store, rank, size, std::move(options));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"),
           py::arg("timeout") = Options().timeout, NoGil())
      .def_property_readonly("options", &ProcessGroupOccl::options)
      .def_property_readonly("uid", &ProcessGroupOccl::id)
      .def_property("bound_device_id", &ProcessGroupOccl::getBoundDeviceId,
                    &ProcessGroupOccl::setBoundDeviceId)
      .def("_set_default_timeout", &ProcessGroupOccl::setTimeout, py::arg("timeout"), NoGil())
      .def(
          "_verify_work_timeout",
          [](const ProcessGroupOccl &, const c10::intrusive_ptr<c10d::Work> &work,
             Milliseconds timeout) {
            const auto *own = dynamic_cast<const OcclWork *>(work.get());
            return own != nullptr && own->getTimeout() == timeout;
          },
          py::arg("work"), py::arg("timeout"))
      .def("comm_split_count", &ProcessGroupOccl::split_count)
      .def("perform_nocolor_split",
           [](ProcessGroupOccl &self, at::Device) { self.split_without_color(); })
      .def("_set_enable_nan_check", &ProcessGroupOccl::set_nan_check, py::arg("enable_nan_check"))
      .def("_group_start", &ProcessGroupOccl::startCoalescing, NoGil())
      .def("_group_end", &ProcessGroupOccl::endCoalescing, NoGil())
      .def("_wait_for_pending_works", &ProcessGroupOccl::waitForPendingWorks, NoGil())
      .def("_enable_collectives_timing", &ProcessGroupOccl::enableCollectivesTiming)
      .def("_add_ephemeral_timeout", &ProcessGroupOccl::addEphemeralTimeout, py::arg("timeout"))
      .def_property_readonly("mem_allocator", &ProcessGroupOccl::memory_allocator)
      .def(
          "register_mem_pool",
          [](ProcessGroupOccl &self, const py::object &pool, bool) {
            const auto device = pool.attr("device").cast<int>();
            const py::gil_scoped_release no_gil;
            self.check_pool(device);
          },
          py::arg("pool"), py::arg("symm") = false)
      .def(
          "deregister_mem_pool", [](ProcessGroupOccl &, const py::object &) {}, py::arg("pool"))
      .def("_is_initialized", &ProcessGroupOccl::is_connected, NoGil())
      .def("get_error", &ProcessGroupOccl::getError, NoGil());
  // Values of NCCLConfig.cta_policy.
  group.attr("NCCL_CTA_POLICY_DEFAULT") = 0;
  group.attr("NCCL_CTA_POLICY_EFFICIENCY") = 1;
  group.attr("NCCL_CTA_POLICY_ZERO") = 2;
}

} // namespace openreg
