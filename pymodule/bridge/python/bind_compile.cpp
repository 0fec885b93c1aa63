// Kernels that Inductor generated, and memory for their results.
//
// A compiled kernel is a C function that takes an array of words: addresses, and the bits of
// numbers. Calling the Python object launches it on the current stream of its tensors' device, by
// the usual policy (launch/policy.h). The kernel gets kernel addresses, which are device addresses
// plus a constant. So it needs no twins and knows no sizes. Results exist before the kernel runs,
// so it needs no output plan.
//
// A compiled graph calls both for each kernel, so they use CPython's vectorcall protocol.

#include "python/bind.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/python_numbers.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "launch/argument_devices.h"
#include "launch/policy.h"
#include "memory/allocation/memory.h"
#include "operators/attention/choice.h"
#include "streams/denormals.h"
#include "streams/observer.h"

namespace py = pybind11;

namespace openreg {

namespace {

// ---- a launch -----------------------------------------------------------------------------------

using Word = uintptr_t;
using Function = void (*)(const Word *arguments);

// Lasts as long as the process, because queued work outlives the Python object.
struct Kernel {
  std::string name;
  Function function;
  std::string kinds; // one letter per argument, see below
  LaunchCost cost{};
  std::atomic<int64_t> launches{0};
};

// Kinds of arguments: tensors that are read or written, and numbers.
constexpr char kRead = 'r', kWritten = 'w', kInteger = 'i', kFloat = 'f';

std::atomic<int64_t> all_launches{0};

// A host tensor of one element. The launch copies its value.
struct HostNumber {
  size_t argument;
  alignas(16) std::array<std::byte, 16> bytes;
};

struct Launch {
  Kernel *kernel;
  c10::DeviceIndex device;
  int threads;
  unsigned denormals;
  c10::SmallVector<Word, 12> arguments;
  c10::SmallVector<HostNumber, 1> numbers;

  openreg_status operator()() {
    for (auto &number : numbers) {
      arguments[number.argument] = reinterpret_cast<Word>(number.bytes.data());
    }
    if (InlineGuard::any()) {
      const ThreadCount share(threads);
      kernel->function(arguments.data());
      return OPENREG_OK;
    }
    keep_on_share_of_cores(device);
    const ThreadCount share(threads);
    set_denormal_mode(denormals);
    try {
      kernel->function(arguments.data());
      return OPENREG_OK;
    } catch (const c10::Error &error) {
      return fail(error.what_without_backtrace());
    } catch (const std::exception &error) {
      return fail(error.what());
    }
  }

private:
  openreg_status fail(const char *what) const {
    return openreg_fail(OPENREG_LAUNCH_FAILURE,
                        "%s error: '%s' failed after its launch had returned: %s\n"
                        "A later call may report this error, so the stack trace may be misleading. "
                        "For debugging, set OPENREG_LAUNCH_BLOCKING=1.",
                        platform_name(), kernel->name.c_str(), what);
  }
};

// Converts a call's arguments one by one.
class Arguments {
public:
  explicit Arguments(Kernel &kernel) : launch_{&kernel, -1, 1, denormal_mode(), {}, {}} {}

  void take(PyObject *argument, char kind) {
    if (kind == kInteger) {
      const auto value = PyLong_AsLongLong(argument);
      if (value == -1 && PyErr_Occurred() != nullptr) {
        throw python_error();
      }
      push(static_cast<Word>(value));
    } else if (kind == kFloat) {
      const auto value = PyFloat_AsDouble(argument);
      if (value == -1.0 && PyErr_Occurred() != nullptr) {
        throw python_error();
      }
      push(std::bit_cast<uint32_t>(static_cast<float>(value)));
    } else {
      TORCH_CHECK_TYPE(THPVariable_Check(argument), launch_.kernel->name,
                       ": expected a tensor, got ", Py_TYPE(argument)->tp_name);
      take_tensor(THPVariable_Unpack(argument), kind == kWritten);
    }
  }

  void submit_launch() {
    auto &kernel = *launch_.kernel;
    launch_.threads = threads_inline(elements_);
    last_launch = kernel.name.c_str(); // the name of a graph's node
    kernel.launches.fetch_add(1, std::memory_order_relaxed);
    all_launches.fetch_add(1, std::memory_order_relaxed);
    if (launch_.device < 0) { // no device tensors
      const ThreadCount share(launch_.threads);
      kernel.function(launch_.arguments.data());
    } else if (touches_host_) {
      const InlineGuard guard(launch_.device);
      launch_();
    } else {
      submit(kernel.cost, elements_, launch_.device, std::move(launch_));
    }
  }

private:
  void push(Word word) { launch_.arguments.push_back(word); }

  void take_tensor(const at::Tensor &tensor, bool is_written) {
    const void *data = is_written ? tensor.mutable_data_ptr() : tensor.const_data_ptr();
    if (tensor.device().type() == kDeviceType) {
      const auto device = tensor.device().index();
      TORCH_CHECK(launch_.device < 0 || launch_.device == device,
                  "Expected all tensors to be on the same device, but found at least two devices, ",
                  c10::Device(kDeviceType, launch_.device), " and ", tensor.device(), "!");
      launch_.device = device;
      elements_ = std::max(elements_, tensor.numel());
      push(reinterpret_cast<Word>(kernel_address(data)));
      return;
    }
    if (!is_written && tensor.numel() == 1) {
      auto &number = launch_.numbers.emplace_back();
      number.argument = launch_.arguments.size();
      std::memcpy(number.bytes.data(), data, std::min(number.bytes.size(), tensor.itemsize()));
    } else {
      touches_host_ = true;
    }
    push(reinterpret_cast<Word>(data));
  }

  Launch launch_;
  int64_t elements_ = 0;
  bool touches_host_ = false;
};

// ---- the object ---------------------------------------------------------------------------------

struct CompiledKernel {
  PyObject_HEAD vectorcallfunc call;
  Kernel *kernel;
};

// Returns the kernel of a function: the same one for the same function, name and kinds.
Kernel &kernel_at(Word address, const char *name, const char *kinds) {
  static auto &kernels =
      *new std::map<std::tuple<Word, std::string, std::string>, std::unique_ptr<Kernel>>();
  auto &kernel = kernels[{address, name, kinds}];
  if (kernel == nullptr) {
    kernel = std::make_unique<Kernel>();
    kernel->name = name;
    kernel->function = reinterpret_cast<Function>(address);
    kernel->kinds = kinds;
  }
  return *kernel;
}

// Reports to the sanitizer that the kernel writes to memory. Reads are not reported, because a
// kernel may read any part of its arguments.
void report_writes(const Kernel &kernel, PyObject *const *arguments) {
  notify_observers([&](Observer &observer) {
    std::vector<at::Tensor> written;
    for (size_t i = 0; i < kernel.kinds.size(); ++i) {
      if (kernel.kinds[i] == kWritten) {
        written.push_back(THPVariable_Unpack(arguments[i]));
      }
    }
    observer.fill(written);
  });
}

PyObject *call_kernel(PyObject *self, PyObject *const *arguments, size_t count_and_flag,
                      PyObject *keywords) {
  HANDLE_TH_ERRORS
  auto &kernel = *reinterpret_cast<CompiledKernel *>(self)->kernel;
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(count_and_flag));
  TORCH_CHECK_TYPE(count == kernel.kinds.size() && keywords == nullptr, kernel.name, ": expected ",
                   kernel.kinds.size(), " arguments, got ", count);
  RECORD_FUNCTION(kernel.name.c_str(), c10::ArrayRef<const c10::IValue>{});
  Arguments taken(kernel);
  for (size_t i = 0; i < count; ++i) {
    taken.take(arguments[i], kernel.kinds[i]);
  }
  report_writes(kernel, arguments);
  taken.submit_launch();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject *make_kernel(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static const char *names[] = {"address", "kinds", "name", nullptr};
  unsigned long long address = 0;
  const char *kinds = nullptr;
  const char *name = nullptr;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "Kss", const_cast<char **>(names), &address,
                                  &kinds, &name) == 0) {
    return nullptr;
  }
  const bool known = std::string_view(kinds).find_first_not_of("rwif") == std::string_view::npos;
  if (address == 0 || !known) {
    PyErr_SetString(PyExc_ValueError,
                    "openreg: CompiledKernel expects a function's address other than 0, "
                    "and kinds made of the letters r, w, i and f");
    return nullptr;
  }
  auto *self = reinterpret_cast<CompiledKernel *>(type->tp_alloc(type, 0));
  if (self != nullptr) {
    self->call = &call_kernel;
    self->kernel = &kernel_at(address, name, kinds);
  }
  return reinterpret_cast<PyObject *>(self);
}

PyObject *kernel_name(PyObject *self, void *) {
  return PyUnicode_FromString(reinterpret_cast<CompiledKernel *>(self)->kernel->name.c_str());
}

PyObject *kernel_launches(PyObject *self, void *) {
  return PyLong_FromLongLong(reinterpret_cast<CompiledKernel *>(self)->kernel->launches.load());
}

PyTypeObject *kernel_type() {
  static PyGetSetDef properties[] = {
      {"name", &kernel_name, nullptr, "the kernel's name", nullptr},
      {"launches", &kernel_launches, nullptr, "how many times it was launched", nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyTypeObject type{};
  Py_SET_REFCNT(reinterpret_cast<PyObject *>(&type), 1); // never freed
  type.tp_name = "torch_openreg._C.CompiledKernel";
  type.tp_basicsize = sizeof(CompiledKernel);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  type.tp_vectorcall_offset = offsetof(CompiledKernel, call);
  type.tp_call = &PyVectorcall_Call;
  type.tp_new = &make_kernel;
  type.tp_getset = properties;
  type.tp_doc = "A compiled C kernel. Calling the object launches the kernel.";
  if (PyType_Ready(&type) < 0) {
    throw py::error_already_set();
  }
  return &type;
}

// ---- memory -------------------------------------------------------------------------------------

c10::SmallVector<int64_t, 5> numbers_of(PyObject *tuple) {
  TORCH_CHECK_TYPE(PyTuple_CheckExact(tuple), "expected a tuple");
  c10::SmallVector<int64_t, 5> numbers;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    numbers.push_back(THPUtils_unpackLong(PyTuple_GET_ITEM(tuple, i)));
  }
  return numbers;
}

PyObject *empty_strided(PyObject *, PyObject *const *arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 4 && THPDtype_Check(arguments[2]),
                   "empty_strided() expects sizes, strides, a dtype and a device index");
  const auto dtype = reinterpret_cast<THPDtype *>(arguments[2])->scalar_type;
  const auto index = static_cast<c10::DeviceIndex>(THPUtils_unpackLong(arguments[3]));
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return THPVariable_Wrap(
      at::empty_strided(numbers_of(arguments[0]), numbers_of(arguments[1]),
                        at::TensorOptions(dtype).device(c10::Device(kDeviceType, index))));
  END_HANDLE_TH_ERRORS
}

PyMethodDef empty_strided_method = {
    "empty_strided", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(&empty_strided)),
    METH_FASTCALL, "empty_strided(sizes, strides, dtype, index)"};

} // namespace

void define_compile(py::module &module) {
  module.attr("CompiledKernel") =
      py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(kernel_type()));
  module.attr("empty_strided") =
      py::reinterpret_steal<py::object>(PyCFunction_New(&empty_strided_method, nullptr));
  module.def("compiled_launches", [] { return all_launches.load(); });
  // Tracers ask with fake tensors.
  module.def("takes_flash_attention", [](const at::Tensor &query, const at::Tensor &key,
                                         const at::Tensor &value,
                                         const std::optional<at::Tensor> &bias, double dropout,
                                         bool is_causal) {
    return !flash_refuses({query, key, value, bias, dropout, is_causal, /*shares_heads=*/true});
  });
  module.def("can_use_attention", [](at::SDPBackend kernel, const at::Tensor &query,
                                     const at::Tensor &key, const at::Tensor &value,
                                     const std::optional<at::Tensor> &mask, double dropout,
                                     bool is_causal, bool shares_heads, bool warns) {
    torch::PyWarningHandler warnings;
    return can_use(kernel, {query, key, value, mask, dropout, is_causal, shares_heads}, warns);
  });
}

} // namespace openreg
