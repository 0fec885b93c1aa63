// The typed door: a launch whose operator is known at compile time.
//
// `typed<at::_ops::add_Tensor>` is the PrivateUse1 kernel of aten::add.Tensor: same signature, no
// boxing, nothing looked up. Used for the operators that programs call most; what it does is what
// boxed.cpp does, and launch.h says.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/IListRef.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "launch.h"

namespace openreg {

// ---- what each kind of argument becomes ---------------------------------------------------------

template <class T> struct TypedArgument { // not a tensor: passed on
  static void see(LaunchDevice &, const T &) {}
  template <class U> static U &&twin(U &&value) { return std::forward<U>(value); }
};

// The twin of a tensor on a device; any other tensor itself. Kernels take what they write to as
// Tensor&, the rest as const.
inline at::Tensor &twin_or_self(const at::Tensor &tensor) {
  const bool on_device =
      tensor.unsafeGetTensorImpl()->key_set().has_backend(c10::BackendComponent::PrivateUse1Bit);
  return const_cast<at::Tensor &>(on_device ? twin_of(tensor) : tensor);
}

template <> struct TypedArgument<at::Tensor> {
  static void see(LaunchDevice &device, const at::Tensor &tensor) { device.see(tensor); }
  static at::Tensor &twin(const at::Tensor &tensor) { return twin_or_self(tensor); }
};

template <> struct TypedArgument<std::optional<at::Tensor>> {
  static void see(LaunchDevice &device, const std::optional<at::Tensor> &tensor) {
    if (tensor.has_value()) {
      device.see(*tensor);
    }
  }
  static std::optional<at::Tensor> twin(const std::optional<at::Tensor> &tensor) {
    return tensor.has_value() ? std::optional(twin_or_self(*tensor)) : std::nullopt;
  }
};

// Twins of a list, convertible to what the operator takes.
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
  static void see(LaunchDevice &device, const List &tensors) {
    for (const at::Tensor &tensor : tensors) {
      device.see(tensor);
    }
  }
  static TwinList<List> twin(const List &tensors) { return TwinList<List>(tensors); }
};

template <> struct TypedArgument<at::ITensorListRef> : TypedListArgument<at::ITensorListRef> {};

template <> struct TypedArgument<at::TensorList> : TypedListArgument<at::TensorList> {};

template <class T> using Typed = TypedArgument<std::remove_cv_t<std::remove_reference_t<T>>>;

// ---- what each kind of result becomes -----------------------------------------------------------

// The launch's plain tensor arguments, in order: where shared results are looked for.
template <class T> void collect(std::vector<const at::Tensor *> &to, const T &value) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    if (value.defined() && value.device().type() == kDeviceType) {
      to.push_back(&value);
    }
  }
}

template <class... Args>
at::Tensor give_back(c10::DeviceIndex device, at::Tensor &&result, const Args &...args) {
  if (is_fresh(result)) [[likely]] {
    return hand_over(std::move(result));
  }
  std::vector<const at::Tensor *> arguments;
  (collect(arguments, args), ...);
  return return_shared(std::move(result), arguments, device);
}

template <class Result, class... Args>
Result give_back(c10::DeviceIndex, Result &&result, const Args &...) {
  return std::move(result); // not a tensor
}

template <class... Results, class... Args>
std::tuple<Results...> give_back(c10::DeviceIndex device, std::tuple<Results...> &&results,
                                 const Args &...args) {
  return std::apply(
      [&](auto &&...each) {
        return std::tuple<Results...>{give_back(device, std::move(each), args...)...};
      },
      std::move(results));
}

// ---- the door -----------------------------------------------------------------------------------

template <class Op, class Schema> struct TypedLaunch;

template <class Op, class Result, class... Args> struct TypedLaunch<Op, Result(Args...)> {
  static Result call(Args... args) {
    LaunchDevice where(Op::name, Op::overload_name);
    (Typed<Args>::see(where, args), ...);
    if constexpr (std::is_same_v<Result, at::Tensor &>) {
      at::Tensor &written = written_argument(args...);
      where.see_written(written);
      const auto device = where.index();
      const at::Tensor &twin = twin_or_self(written); // before the kernel changes its sizes
      {
        Redirection redirection(device);
        Op::redispatch(kCpuKernel, Typed<Args>::twin(std::forward<Args>(args))...);
      }
      write_back(written, twin);
      return written;
    } else {
      const auto device = where.index();
      Redirection redirection(device);
      return give_back(device,
                       Op::redispatch(kCpuKernel, Typed<Args>::twin(std::forward<Args>(args))...),
                       args...);
    }
  }

private:
  // An operator that returns Tensor& writes to its one argument of that type: self or out.
  template <class First, class... Rest>
  static at::Tensor &written_argument(First &first, Rest &...rest) {
    if constexpr (std::is_same_v<First, at::Tensor>) {
      return first;
    } else {
      return written_argument(rest...);
    }
  }
};

// A view: the CPU kernel makes a view of the twin, which becomes the twin of a view of the tensor.
template <class Op, class Schema> struct TypedView;

template <class Op, class... Args> struct TypedView<Op, at::Tensor(const at::Tensor &, Args...)> {
  static at::Tensor call(const at::Tensor &self, Args... args) {
    return share_storage(
        self, Op::redispatch(kCpuKernel, twin_or_self(self), std::forward<Args>(args)...));
  }
};

// ---- registration -------------------------------------------------------------------------------

template <class Op> constexpr auto *typed = &TypedLaunch<Op, typename Op::schema>::call;

template <class Op> constexpr auto *typed_view = &TypedView<Op, typename Op::schema>::call;

// The operator's name in its library: "add.Tensor".
template <class Op> std::string local_name() {
  const std::string name(Op::name), overload(Op::overload_name);
  return name.substr(name.find("::") + 2) + (overload.empty() ? "" : "." + overload);
}

template <class... Ops> void register_typed(torch::Library &library) {
  (library.impl(local_name<Ops>().c_str(), typed<Ops>), ...);
}

template <class... Ops> void register_views(torch::Library &library) {
  (library.impl(local_name<Ops>().c_str(), typed_view<Ops>), ...);
}

} // namespace openreg
