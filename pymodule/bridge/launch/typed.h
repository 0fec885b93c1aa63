// Typed launches: launches of operators that are known at compile time.
//
// `typed<at::_ops::add_Tensor>` is the device kernel of aten::add.Tensor: it has the same
// signature, boxes nothing and looks nothing up. It serves the operators that programs call most.
// It does what a boxed launch does (substitution.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/boxing/impl/boxing.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "compat/kernel_names.h"
#include "launch/boxed_operator.h"
#include "launch/by_dtype.h"
#include "launch/argument_devices.h"
#include "launch/hidden_operators.h"
#include "launch/kernel_registry.h"
#include "launch/memory_plan.h"
#include "launch/substitution.h"
#include "memory/allocation/lazy_clone.h"
#include "tensor/known_values.h"

namespace openreg {

// ---- arguments ----------------------------------------------------------------------------------

template <class T> struct TypedArgument { // not a tensor: passed through
  static void check(ArgumentDevices &devices, const T &) { devices.skip(); }
  template <class U> static U &&twin(U &&value) { return std::forward<U>(value); }
};

template <> struct TypedArgument<at::Scalar> {
  static void check(ArgumentDevices &devices, const at::Scalar &scalar) {
    devices.check_scalar(scalar.isComplex());
  }
  template <class U> static U &&twin(U &&value) { return std::forward<U>(value); }
};

// Returns the twin of a device tensor, and any other tensor itself. Kernels take tensors that they
// write to as Tensor&, the rest as const Tensor&.
inline at::Tensor &twin_or_self(const at::Tensor &tensor) {
  const bool on_device = tensor.unsafeGetTensorImpl()->key_set().has_backend(kDeviceKeys.component);
  return const_cast<at::Tensor &>(on_device ? twin_of(tensor) : tensor);
}

template <> struct TypedArgument<at::Tensor> {
  static void check(ArgumentDevices &devices, const at::Tensor &tensor) { devices.check(tensor); }
  static at::Tensor &twin(const at::Tensor &tensor) { return twin_or_self(tensor); }
};

template <> struct TypedArgument<std::optional<at::Tensor>> {
  static void check(ArgumentDevices &devices, const std::optional<at::Tensor> &tensor) {
    if (tensor.has_value()) {
      devices.check(*tensor);
    } else {
      devices.skip();
    }
  }
  static std::optional<at::Tensor> twin(const std::optional<at::Tensor> &tensor) {
    return tensor.has_value() ? std::optional(twin_or_self(*tensor)) : std::nullopt;
  }
};

// The twins of a list, convertible to the type that the operator takes.
template <class List> class TwinList {
public:
  explicit TwinList(const List &tensors) {
    twins_.reserve(tensors.size());
    for (const at::Tensor &tensor : tensors) {
      twins_.push_back(twin_or_self(tensor));
    }
  }
  operator List() const { return List(at::TensorList(twins_)); }

private:
  std::vector<at::Tensor> twins_;
};

template <class List> struct TypedListArgument {
  static void check(ArgumentDevices &devices, const List &tensors) {
    ArgumentDevices::List list(devices);
    for (const at::Tensor &tensor : tensors) {
      list.check(tensor);
    }
  }
  static TwinList<List> twin(const List &tensors) { return TwinList<List>(tensors); }
};

template <> struct TypedArgument<at::ITensorListRef> : TypedListArgument<at::ITensorListRef> {};

template <> struct TypedArgument<at::TensorList> : TypedListArgument<at::TensorList> {};

// Indices: on the host or on the device, some of them undefined.
template <> struct TypedArgument<c10::List<std::optional<at::Tensor>>> {
  using List = c10::List<std::optional<at::Tensor>>;
  static void check(ArgumentDevices &devices, const List &tensors) {
    ArgumentDevices::List list(devices);
    for (const std::optional<at::Tensor> &tensor : tensors) {
      if (tensor.has_value()) {
        list.check(*tensor);
      }
    }
  }
  static List twin(const List &tensors) {
    List twins;
    twins.reserve(tensors.size());
    for (const std::optional<at::Tensor> &tensor : tensors) {
      twins.push_back(TypedArgument<std::optional<at::Tensor>>::twin(tensor));
    }
    return twins;
  }
};

template <class T> using Typed = TypedArgument<std::remove_cv_t<std::remove_reference_t<T>>>;

// ---- results ------------------------------------------------------------------------------------

// Appends a device tensor argument. A result may be an alias of one.
template <class T> void collect(std::vector<const at::Tensor *> &to, const T &value) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    if (value.defined() && value.device().type() == kDeviceType) {
      to.push_back(&value);
    }
  }
}

template <class... Args>
at::Tensor return_result(c10::DeviceIndex device, at::Tensor &&result, const Args &...args) {
  if (is_fresh(result)) [[likely]] {
    return adopt_result(std::move(result), last_launch);
  }
  std::vector<const at::Tensor *> arguments;
  (collect(arguments, args), ...);
  return return_alias(std::move(result), arguments, device);
}

template <class Result, class... Args>
Result return_result(c10::DeviceIndex, Result &&result, const Args &...) {
  return std::move(result); // not a tensor
}

template <class... Results, class... Args>
std::tuple<Results...> return_result(c10::DeviceIndex device, std::tuple<Results...> &&results,
                                     const Args &...args) {
  return std::apply(
      [&](auto &&...each) {
        return std::tuple<Results...>{return_result(device, std::move(each), args...)...};
      },
      std::move(results));
}

// ---- the launch ---------------------------------------------------------------------------------

// The arguments that a kernel writes to (Tensor&) and their twins.
template <size_t kCount> class Written {
public:
  void add(const at::Tensor &tensor, const at::Tensor &twin) {
    tensors_[count_] = const_cast<at::Tensor *>(&tensor);
    twins_[count_++] = &twin;
  }
  void write_back() const {
    for (size_t i = 0; i < kCount; ++i) {
      openreg::write_back(*tensors_[i], *twins_[i]);
    }
  }
  at::Tensor &operator[](size_t i) const { return *tensors_[i]; }

private:
  std::array<at::Tensor *, kCount> tensors_;
  std::array<const at::Tensor *, kCount> twins_;
  size_t count_ = 0;
};

// Whether `Op` runs PyTorch's CPU kernel, which a worker can run as well. A type with a member
// kRunsItself must run on the calling thread.
template <class Op> constexpr bool has_cpu_kernel = !requires {
  Op::kRunsItself;
};

// The number of tensors that an operator returns.
template <class Result> constexpr size_t count_results = std::is_same_v<Result, at::Tensor> ? 1 : 0;
template <class... Results>
constexpr size_t count_results<std::tuple<Results...>> = (count_results<Results> + ... + 0);

template <class Arg> constexpr bool is_written = std::is_same_v<Arg, at::Tensor &>;

template <class Op, class Schema> struct TypedLaunch;

template <class Op, class Result, class... Args> struct TypedLaunch<Op, Result(Args...)> {
  static Result call(Args... args) {
    ArgumentDevices devices(Op::name, Op::overload_name);
    (Typed<Args>::check(devices, args), ...);
    (check_written<Args>(devices, args), ...);
    const auto device = devices.index();
    auto placement = Placement::all();
    if constexpr (has_cpu_kernel<Op>) {
      const auto known = devices.placement(traits(), kResults);
      if (!known.has_value() || (has_planner() && !traits().converts_arguments) || is_dry()) {
        return launch_boxed(&BoxedOperator::run, args...);
      }
      placement = *known;
    }
    std::optional<LongLaunch> long_launch;
    if constexpr (has_cpu_kernel<Op>) {
      if (is_long(devices.elements())) {
        long_launch.emplace(boxed().cost(), devices.elements(), device);
        if (long_launch->is_queued()) {
          return launch_boxed(&BoxedOperator::queue, args...);
        }
      }
    }
    const int threads = long_launch.has_value() ? threads_inline(devices.elements()) : 0;
    InlineGuard guard(device, InlineGuard::kIfIdle);
    if (!guard.is_held()) [[unlikely]] {
      if constexpr (has_cpu_kernel<Op>) {
        if (long_launch.has_value()) {
          long_launch->set_queued();
        }
        return launch_boxed(&BoxedOperator::queue, args...);
      }
      guard.wait();
    }
    std::optional<ThreadCount> share;
    if (long_launch.has_value()) {
      share.emplace(threads);
    }
    if (has_cpu_kernel<Op> && has_planner()) [[unlikely]] {
      count_launch(device, PlanSource::kElementwise);
    }
    const HiddenOperators hidden(has_cpu_kernel<Op>);
    if constexpr (kWritten == 0) {
      try {
        const AllocatorOverride on_device(device, placement);
        return return_result(
            device, Op::redispatch(kCpuKernel, Typed<Args>::twin(std::forward<Args>(args))...),
            args...);
      } catch (...) {
        rethrow_with_cuda_names();
      }
    } else { // it returns the tensors that it writes to
      const std::tuple<decltype(Typed<Args>::twin(std::declval<Args>()))...> twins{
          Typed<Args>::twin(std::forward<Args>(args))...};
      Written<kWritten> written; // the twins before the kernel resizes them
      std::apply([&](auto &...each) { (add_written<Args>(written, args, each), ...); }, twins);
      try {
        const AllocatorOverride on_device(device, placement);
        redispatch(twins, std::index_sequence_for<Args...>());
      } catch (...) {
        written.write_back(); // a kernel may resize before it fails
        rethrow_with_cuda_names();
      }
      written.write_back();
      return return_written(written, std::make_index_sequence<kWritten>());
    }
  }

  // The same for an operator with rows for dtypes (by_dtype.h).
  static Result call_by_dtype(Args... args) {
    static const uint64_t rare = ByDtype(operator_handle(), c10::DispatchKey::CPU).bits();
    if (((dtype_bits(args) | ...) & rare) != 0) [[unlikely]] {
      return launch_boxed(&BoxedOperator::run, args...);
    }
    return call(std::forward<Args>(args)...);
  }

private:
  static constexpr size_t kWritten = (static_cast<size_t>(is_written<Args>) + ... + 0);
  static constexpr size_t kResults = kWritten > 0 ? 0 : count_results<Result>;

  static c10::OperatorHandle operator_handle() {
    return c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
  }

  static BoxedOperator &boxed() {
    static BoxedOperator op(operator_handle(), c10::DispatchKey::CPU, BoxedOperator::Rng::kUnused);
    return op;
  }

  static const KernelTraits &traits() {
    static const auto traits = kernel_traits(operator_handle());
    return traits;
  }

  // A launch that is queued or needs a plan is long enough for boxing not to matter.
  static Result launch_boxed(void (BoxedOperator::*launch)(torch::jit::Stack *), Args... args) {
    auto stack = c10::impl::boxArgs<Args...>(args...);
    (boxed().*launch)(&stack);
    return unbox(stack, args...);
  }

  static Result unbox(torch::jit::Stack &stack, const Args &...args) {
    if constexpr (kWritten == 0) {
      return c10::impl::PopResult<Result>::call(stack);
    } else {
      Written<kWritten> written;
      (add_written<Args>(written, args, args), ...);
      return return_written(written, std::make_index_sequence<kWritten>());
    }
  }

  template <class Arg, class T>
  static void check_written(ArgumentDevices &devices, const T &argument) {
    if constexpr (is_written<Arg>) {
      devices.check_written(argument);
      make_writable(argument);
    }
  }

  template <class Arg, class Each, class T, class Twin>
  static void add_written(Each &written, const T &argument, const Twin &twin) {
    if constexpr (is_written<Arg>) {
      written.add(argument, twin);
    }
  }

  template <class Twins, size_t... kPlaces>
  static void redispatch(const Twins &twins, std::index_sequence<kPlaces...>) {
    Op::redispatch(kCpuKernel,
                   static_cast<std::tuple_element_t<kPlaces, Twins>>(std::get<kPlaces>(twins))...);
  }

  template <class Each, size_t... kPlaces>
  static Result return_written(const Each &written, std::index_sequence<kPlaces...>) {
    return Result(written[kPlaces]...);
  }
};

// A view: PyTorch's CPU kernel makes a view of the twin, which becomes the twin of the tensor's
// view. It calls the kernel directly, because another dispatch costs as much as the view.
template <class... Args> using ViewKernel = at::Tensor (*)(const at::Tensor &, Args...);

template <auto kKernel> struct TypedView;

template <class... Args, ViewKernel<Args...> kKernel> struct TypedView<kKernel> {
  static at::Tensor call(const at::Tensor &self, Args... args) {
    return share_storage(self, kKernel(twin_or_self(self), std::forward<Args>(args)...));
  }
};

// ---- registration -------------------------------------------------------------------------------

template <class Op> constexpr auto *typed = &TypedLaunch<Op, typename Op::schema>::call;
template <class Op>
constexpr auto *typed_by_dtype = &TypedLaunch<Op, typename Op::schema>::call_by_dtype;

template <auto kKernel> constexpr auto *typed_view = &TypedView<kKernel>::call;

// The operator's name without its namespace: "add.Tensor".
template <class Op> std::string local_name() {
  const std::string name(Op::name), overload(Op::overload_name);
  return name.substr(name.find("::") + 2) + (overload.empty() ? "" : "." + overload);
}

template <class Op, class Kernel> void register_one(torch::Library &library, Kernel kernel) {
  library.impl(local_name<Op>().c_str(), kernel);
  record_kernel_kind({Op::name, Op::overload_name}, KernelKind::kTyped);
}

template <class Op> void register_typed_one(torch::Library &library) {
  const bool has_rows = ByDtype::is_needed({Op::name, Op::overload_name});
  register_one<Op>(library, has_rows ? typed_by_dtype<Op> : typed<Op>);
}

template <class... Ops> void register_typed(torch::Library &library) {
  (register_typed_one<Ops>(library), ...);
}

template <class Op, auto kKernel> void register_view(torch::Library &library) {
  register_one<Op>(library, typed_view<kKernel>);
}

} // namespace openreg
