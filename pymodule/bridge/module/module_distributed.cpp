#include "module/module_distributed.h"

#include <pybind11/chrono.h>

#include <utility>

#include "distributed/gloo.h"
#include "distributed/timer.h"
#include "streams/turn.h"

namespace py = pybind11;

namespace openreg {

// As PyTorch has Python hold its groups: the last reference goes without the GIL, for the threads
// of a group, which its end waits for, may want it.
template <class T> class HeldWithoutGil {
public:
  HeldWithoutGil() = default;
  explicit HeldWithoutGil(T *fresh) : held_(c10::intrusive_ptr<T>::unsafe_steal_from_new(fresh)) {}
  HeldWithoutGil(c10::intrusive_ptr<T> held) : held_(std::move(held)) {}
  HeldWithoutGil(const HeldWithoutGil &) = default;
  HeldWithoutGil(HeldWithoutGil &&) noexcept = default;
  HeldWithoutGil &operator=(const HeldWithoutGil &) = default;
  HeldWithoutGil &operator=(HeldWithoutGil &&) noexcept = default;
  ~HeldWithoutGil() {
    if (held_) {
      const WithoutGil no_gil;
      held_.reset();
    }
  }

  T *get() const { return held_.get(); }

private:
  c10::intrusive_ptr<T> held_;
};

} // namespace openreg

// PyTorch's casters see the pointer, which is all that such an object has.
PYBIND11_DECLARE_HOLDER_TYPE(T, openreg::HeldWithoutGil<T>, true)

namespace openreg {

namespace {

constexpr auto kDefaultTimeout = kBackendDefaultTimeout;

// PyTorch's own class must be known to Python before: it is not when this module is loaded before
// torch._C, in CUDA mode.
void define_gloo(const py::module &module) {
  using Options = c10d::ProcessGroupGloo::Options;
  py::class_<Gloo, c10d::ProcessGroupGloo, HeldWithoutGil<Gloo>>(module, "ProcessGroupGloo")
      .def(py::init([](const Gloo::StorePtr &store, int rank, int size,
                       c10::intrusive_ptr<Options> options) {
             return c10::make_intrusive<Gloo>(store, rank, size, std::move(options));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"),
           py::call_guard<py::gil_scoped_release>())
      .def(py::init([](const Gloo::StorePtr &store, int rank, int size,
                       std::chrono::milliseconds timeout) {
             return c10::make_intrusive<Gloo>(store, rank, size, Options::create_default(timeout));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout") = kDefaultTimeout,
           py::call_guard<py::gil_scoped_release>());
}

} // namespace

void define_distributed(py::module &module) {
  module.def("define_gloo", [module] { define_gloo(module); });
  register_timer();
}

} // namespace openreg
