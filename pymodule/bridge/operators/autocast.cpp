// Autocast: a typed kernel for every operator that has a cast policy.
//
// PyTorch's lists for CUDA give each operator its policy. They are macros that name the C++ types,
// too. Three rows that PyTorch writes by hand are written by hand here as well.
//
// A call that needs no cast goes on with the same arguments and dispatch keys. This is the common
// case within a network and must be cheap. Otherwise the arguments are cast by PyTorch's functions,
// which cache parameters, and the call is dispatched again.

#include "operators/autocast.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/List.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "core/status.h"
#include "launch/typed.h"

namespace openreg {

namespace {

const c10::DispatchKeySet kBelowAutocast(c10::DispatchKeySet::FULL_AFTER, kDeviceKeys.autocast);

// ---- what each policy does to arguments ---------------------------------------------------------

bool is_eligible(const at::Tensor &tensor) {
  return at::autocast::is_eligible(tensor, kDeviceType);
}

template <class T> bool needs_cast(at::ScalarType dtype, const T &argument) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return argument.scalar_type() != dtype && is_eligible(argument);
  } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
    return argument.has_value() && needs_cast(dtype, *argument);
  } else if constexpr (std::is_same_v<T, at::TensorList>) {
    return std::ranges::any_of(argument, [&](const auto &each) { return needs_cast(dtype, each); });
  } else {
    static_assert(!std::is_same_v<T, at::ITensorListRef>, "no operator with a policy takes one");
    return false;
  }
}

template <class... Args> bool any_needs_cast(at::ScalarType dtype, const Args &...args) {
  return (needs_cast(dtype, args) || ...);
}

std::optional<at::ScalarType> float32_unless_given(const std::optional<at::ScalarType> &dtype) {
  return dtype.has_value() ? dtype : at::kFloat;
}

template <class T> const T &float32_unless_given(const T &argument) { // not a dtype: passed through
  return argument;
}

template <class... Args> const at::Tensor &first_of(const at::Tensor &first, const Args &...) {
  return first;
}

// ---- the kernels --------------------------------------------------------------------------------

// The kernel of `Op` under a policy. It calls `Called`: `Op` itself, or its replacement.
template <CastPolicy policy, class Op, class Called, class Schema> struct AutocastKernel;

template <CastPolicy policy, class Op, class Called, class Result, class... Args>
struct AutocastKernel<policy, Op, Called, Result(Args...)> {
  static Result call(c10::DispatchKeySet keys, Args... args) {
    // Operators that this one calls are not cast either.
    const c10::impl::ExcludeDispatchKeyGuard below_autocast{
        c10::DispatchKeySet(kDeviceKeys.autocast)};
    keys = keys & kBelowAutocast;
    if constexpr (policy == CastPolicy::kLowerPrecision) {
      return call_in(at::autocast::get_autocast_dtype(kDeviceType), keys, args...);
    } else if constexpr (policy == CastPolicy::kFloat32) {
      return call_in(at::kFloat, keys, args...);
    } else if constexpr (policy == CastPolicy::kPromote) {
      const auto lower = at::autocast::get_autocast_dtype(kDeviceType);
      if (!any_needs_cast(lower, args...) || !any_needs_cast(at::kFloat, args...)) {
        return Called::redispatch(keys, args...);
      }
      auto widest = lower;
      ((widest = at::autocast::prioritize(widest, args, kDeviceType)), ...);
      return call_in(widest, keys, args...);
    } else if constexpr (policy == CastPolicy::kFloat32SetDtype) {
      if (needs_cast(at::kFloat, first_of(args...))) { // float32 gives float32 anyway
        return Called::redispatch(keys, float32_unless_given(args)...);
      }
      return Called::redispatch(keys, args...);
    } else if constexpr (policy == CastPolicy::kFloat32AppendDtype) {
      const auto &first = first_of(args...);
      return Called::redispatch(keys, args...,
                                is_eligible(first) ? at::kFloat : first.scalar_type());
    } else {
      static_assert(policy == CastPolicy::kBanned);
      // CUDA's autocast kernel, which is part of every PyTorch, raises the error.
      return Called::redispatch(c10::DispatchKeySet(c10::DispatchKey::AutocastCUDA), args...);
    }
  }

private:
  static Result call_in(at::ScalarType dtype, c10::DispatchKeySet keys, const Args &...args) {
    if (any_needs_cast(dtype, args...)) {
      return Called::call(at::autocast::cached_cast(dtype, args, kDeviceType)...);
    }
    return Called::redispatch(keys, args...);
  }
};

// ---- registration -------------------------------------------------------------------------------

struct CastKernel {
  AutocastRow row;
  void (*add_to)(torch::Library &library);
};

template <CastPolicy policy, class Op, class Called = Op> CastKernel cast_kernel() {
  const std::string name(Op::name);
  return {{name.substr(name.find("::") + 2), Op::overload_name, policy,
           std::is_same_v<Op, Called> ? std::nullopt : std::optional(Called::overload_name)},
          [](torch::Library &library) {
            library.impl(local_name<Op>().c_str(),
                         &AutocastKernel<policy, Op, Called, typename Op::schema>::call);
          }};
}

const std::vector<CastKernel> &cast_kernels() {
  static const auto *kernels = new std::vector<CastKernel>{
// clang-format off
#define TYPE_OF(name, ...) at::_ops::name##__VA_OPT__(_##__VA_ARGS__)
#define LOWER_PRECISION(...) cast_kernel<CastPolicy::kLowerPrecision, TYPE_OF(__VA_ARGS__)>(),
#define FLOAT32(...) cast_kernel<CastPolicy::kFloat32, TYPE_OF(__VA_ARGS__)>(),
#define FLOAT32_SET_DTYPE(...) cast_kernel<CastPolicy::kFloat32SetDtype, TYPE_OF(__VA_ARGS__)>(),
#define PROMOTE(...) cast_kernel<CastPolicy::kPromote, TYPE_OF(__VA_ARGS__)>(),
      AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
      AT_FORALL_FP32(FLOAT32)
      AT_FORALL_FP32_SET_OPT_DTYPE(FLOAT32_SET_DTYPE)
      // norm has no default overload that computes in float32
      cast_kernel<CastPolicy::kFloat32AppendDtype, at::_ops::norm_Scalar,
                  at::_ops::norm_ScalarOpt_dtype>(),
      cast_kernel<CastPolicy::kFloat32AppendDtype, at::_ops::norm_ScalarOpt_dim,
                  at::_ops::norm_ScalarOpt_dim_dtype>(),
      AT_FORALL_PROMOTE(PROMOTE)
      cast_kernel<CastPolicy::kBanned, at::_ops::binary_cross_entropy>(),
#undef PROMOTE
#undef FLOAT32_SET_DTYPE
#undef FLOAT32
#undef LOWER_PRECISION
#undef TYPE_OF
      // clang-format on
  };
  return *kernels;
}

} // namespace

const char *name_of(CastPolicy policy) {
  switch (policy) {
  case CastPolicy::kLowerPrecision:
    return "lower_precision";
  case CastPolicy::kFloat32:
    return "float32";
  case CastPolicy::kFloat32SetDtype:
    return "float32_set_dtype";
  case CastPolicy::kFloat32AppendDtype:
    return "float32_append_dtype";
  case CastPolicy::kPromote:
    return "promote";
  case CastPolicy::kBanned:
    return "banned";
  }
  TORCH_INTERNAL_ASSERT(false, "not a cast policy");
}

std::vector<AutocastRow> autocast_rows() {
  std::vector<AutocastRow> rows;
  for (const auto &kernel : cast_kernels()) {
    rows.push_back(kernel.row);
  }
  return rows;
}

void register_autocast_kernels() {
  // Both libraries are leaked: unregistering a fallback at exit visits every operator.
  const auto key = kDeviceKeys.autocast;
  auto *others = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFallthrough());
  auto *library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  for (const auto &kernel : cast_kernels()) {
    kernel.add_to(*library);
  }
}

} // namespace openreg
