#include "python/bind_occl.h"

#include <pybind11/chrono.h>

#include "distributed/flight/recorder.h"
#include "distributed/occl/occl.h"
#include "python/held_without_gil.h"

namespace py = pybind11;

namespace openreg {

namespace {

using NoGil = py::call_guard<py::gil_scoped_release>;
using Options = Occl::Options;
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
  py::class_<Occl::Config> config(group, "NCCLConfig");
  config.def(py::init<>())
      .def_readwrite("net_name", &Occl::Config::net_name)
      .def_readwrite("comm_name", &Occl::Config::comm_name)
      .def("__copy__", [](const Occl::Config &self) { return self; })
      .def("__deepcopy__", [](const Occl::Config &self, const py::dict &) { return self; });
#define OPENREG_FIELD(name) config.def_readwrite(#name, &Occl::Config::name);
  OPENREG_NCCL_CONFIG(OPENREG_FIELD)
#undef OPENREG_FIELD
}

// By the names that PyTorch has for NCCL's.
void define_flight_recorder(py::module module) {
  auto recorder = module.def_submodule("_flight_recorder");
  using Asked = std::optional<bool>;
  recorder.def(
      "_dump_nccl_trace",
      [](Asked calls, Asked frames, Asked only_active) {
        return py::bytes(FlightRecorder::get().dump(
            {calls.value_or(true), frames.value_or(true), only_active.value_or(false)}));
      },
      py::arg("includeCollectives") = Asked(), py::arg("includeStackTraces") = Asked(),
      py::arg("onlyActive") = Asked());
  recorder.def(
      "_dump_nccl_trace_json",
      [](Asked calls, Asked only_active) {
        return py::bytes(FlightRecorder::get().dump_json(
            {calls.value_or(true), false, only_active.value_or(false)}));
      },
      py::arg("includeCollectives") = Asked(), py::arg("onlyActive") = Asked());
  recorder.def("_reset_fr_recording_nccl", [] { FlightRecorder::get().reset(); });
  recorder.def("set_library_version", [](std::string version) {
    FlightRecorder::set_library_version(std::move(version));
  });
  register_flight_requests();
}

} // namespace

void define_occl(const py::module &module) {
  using Milliseconds = std::chrono::milliseconds;
  py::class_<Occl, c10d::Backend, HeldWithoutGil<Occl>> group(module, class_name().c_str());
  define_flight_recorder(module);
  define_config(group);
  define_options(group);
  group
      .def(py::init([](const Occl::StorePtr &store, int rank, int size, OptionsPtr options) {
             return c10::make_intrusive<Occl>(store, rank, size, std::move(options));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"), NoGil())
      .def(py::init([](const Occl::StorePtr &store, int rank, int size, Milliseconds timeout) {
             auto options = c10::make_intrusive<Options>();
             options->timeout = timeout;
             return c10::make_intrusive<Occl>(store, rank, size, std::move(options));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"),
           py::arg("timeout") = Options().timeout, NoGil())
      .def_property_readonly("options", &Occl::options)
      .def_property_readonly("uid", &Occl::id)
      .def_property("bound_device_id", &Occl::getBoundDeviceId, &Occl::setBoundDeviceId)
      .def("_set_default_timeout", &Occl::setTimeout, py::arg("timeout"), NoGil())
      .def(
          "_verify_work_timeout",
          [](const Occl &, const c10::intrusive_ptr<c10d::Work> &work, Milliseconds timeout) {
            const auto *own = dynamic_cast<const OcclWork *>(work.get());
            return own != nullptr && own->timeout() == timeout;
          },
          py::arg("work"), py::arg("timeout"))
      .def("comm_split_count", &Occl::split_count)
      .def("perform_nocolor_split", [](Occl &, at::Device) {}) // nothing is to be agreed on
      .def("_group_start", &Occl::startCoalescing, NoGil())
      .def("_group_end", &Occl::endCoalescing, NoGil())
      .def("_wait_for_pending_works", &Occl::waitForPendingWorks, NoGil())
      .def("_enable_collectives_timing", &Occl::enableCollectivesTiming)
      .def("_add_ephemeral_timeout", &Occl::add_ephemeral_timeout, py::arg("timeout"))
      .def_property_readonly("mem_allocator", &Occl::memory_allocator)
      .def(
          "register_mem_pool",
          [](Occl &self, const py::object &pool, bool) {
            const auto device = pool.attr("device").cast<int>();
            const py::gil_scoped_release no_gil;
            self.check_pool(device);
          },
          py::arg("pool"), py::arg("symm") = false)
      .def(
          "deregister_mem_pool", [](Occl &, const py::object &) {}, py::arg("pool"))
      .def("_is_initialized", &Occl::is_connected, NoGil())
      .def("get_error", &Occl::getError, NoGil());
}

} // namespace openreg
