// Autocast: a typed kernel for every operator of amp's policy table.
//
// The table (amp/policy.c) decides which operator gets which policy. What it cannot hold are the
// operators' C++ types: those come from PyTorch's lists for CUDA, from which the kernels are
// instantiated. Registration takes the kernel of each row, and fails when table and lists differ in
// anything, so that a PyTorch with other policies cannot go unnoticed.
//
// A call that needs no cast goes on with the arguments and dispatch keys that it came with: this is
// the common case inside a network, and should cost next to nothing. Otherwise the casts are
// PyTorch's own, with its cache of parameters, and the call starts anew.

#include <ATen/autocast_mode.h>
#include <ATen/core/List.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "amp/amp.h"
#include "operators/autocast.h"
#include "core/status.h"
#include "launch/typed.h"

namespace openreg {

namespace {

constexpr c10::DispatchKey kAutocastKey = c10::DispatchKey::AutocastPrivateUse1;
constexpr c10::DispatchKeySet kBelowAutocast(c10::DispatchKeySet::FULL_AFTER, kAutocastKey);

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

template <class T> const T &float32_unless_given(const T &argument) { // not a dtype: passed on
  return argument;
}

template <class... Args> const at::Tensor &first_of(const at::Tensor &first, const Args &...) {
  return first;
}

// ---- the kernels --------------------------------------------------------------------------------

// The kernel of `Op` under a policy. It calls `Called`: `Op` itself, or its replacement.
template <openreg_amp_policy policy, class Op, class Called, class Schema> struct AutocastKernel;

template <openreg_amp_policy policy, class Op, class Called, class Result, class... Args>
struct AutocastKernel<policy, Op, Called, Result(Args...)> {
  static Result call(c10::DispatchKeySet keys, Args... args) {
    // Operators that this one consists of are not cast either.
    const c10::impl::ExcludeDispatchKeyGuard below_autocast{c10::DispatchKeySet(kAutocastKey)};
    keys = keys & kBelowAutocast;
    if constexpr (policy == OPENREG_AMP_LOWER_PRECISION) {
      return call_in(at::autocast::get_autocast_dtype(kDeviceType), keys, args...);
    } else if constexpr (policy == OPENREG_AMP_FLOAT32) {
      return call_in(at::kFloat, keys, args...);
    } else if constexpr (policy == OPENREG_AMP_PROMOTE) {
      const auto lower = at::autocast::get_autocast_dtype(kDeviceType);
      if (!any_needs_cast(lower, args...) || !any_needs_cast(at::kFloat, args...)) {
        return Called::redispatch(keys, args...);
      }
      auto widest = lower;
      ((widest = at::autocast::prioritize(widest, args, kDeviceType)), ...);
      return call_in(widest, keys, args...);
    } else if constexpr (policy == OPENREG_AMP_FLOAT32_SET_DTYPE) {
      if (needs_cast(at::kFloat, first_of(args...))) { // float32 gives float32 anyway
        return Called::redispatch(keys, float32_unless_given(args)...);
      }
      return Called::redispatch(keys, args...);
    } else if constexpr (policy == OPENREG_AMP_FLOAT32_APPEND_DTYPE) {
      const auto &first = first_of(args...);
      return Called::redispatch(keys, args...,
                                is_eligible(first) ? at::kFloat : first.scalar_type());
    } else {
      static_assert(policy == OPENREG_AMP_BANNED);
      // CUDA's kernel, which every PyTorch has, raises the sentence.
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

struct Candidate {
  openreg_amp_policy policy;
  std::string replacement; // overload, or nothing
  void (*add_to)(torch::Library &library);
};

using Candidates = std::unordered_map<std::string, Candidate>; // by name in the library

template <openreg_amp_policy policy, class Op, class Called = Op>
void add_candidate(Candidates &candidates) {
  candidates.emplace(
      local_name<Op>(),
      Candidate{policy, std::is_same_v<Op, Called> ? "" : Called::overload_name,
                [](torch::Library &library) {
                  library.impl(local_name<Op>().c_str(),
                               &AutocastKernel<policy, Op, Called, typename Op::schema>::call);
                }});
}

Candidates list_candidates() {
  Candidates candidates;
// clang-format off
#define TYPE_OF(name, ...) at::_ops::name##__VA_OPT__(_##__VA_ARGS__)
#define ADD(policy, ...) add_candidate<policy, TYPE_OF(__VA_ARGS__)>(candidates);
#define ADD_LOWER_PRECISION(...) ADD(OPENREG_AMP_LOWER_PRECISION, __VA_ARGS__)
#define ADD_FLOAT32(...) ADD(OPENREG_AMP_FLOAT32, __VA_ARGS__)
#define ADD_FLOAT32_SET_DTYPE(...) ADD(OPENREG_AMP_FLOAT32_SET_DTYPE, __VA_ARGS__)
#define ADD_PROMOTE(...) ADD(OPENREG_AMP_PROMOTE, __VA_ARGS__)
  AT_FORALL_LOWER_PRECISION_FP(ADD_LOWER_PRECISION)
  AT_FORALL_FP32(ADD_FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(ADD_FLOAT32_SET_DTYPE)
  AT_FORALL_PROMOTE(ADD_PROMOTE)
#undef ADD_PROMOTE
#undef ADD_FLOAT32_SET_DTYPE
#undef ADD_FLOAT32
#undef ADD_LOWER_PRECISION
#undef ADD
#undef TYPE_OF
  // clang-format on
  add_candidate<OPENREG_AMP_FLOAT32_APPEND_DTYPE, at::_ops::norm_Scalar,
                at::_ops::norm_ScalarOpt_dtype>(candidates);
  add_candidate<OPENREG_AMP_FLOAT32_APPEND_DTYPE, at::_ops::norm_ScalarOpt_dim,
                at::_ops::norm_ScalarOpt_dim_dtype>(candidates);
  add_candidate<OPENREG_AMP_BANNED, at::_ops::binary_cross_entropy>(candidates);
  return candidates;
}

} // namespace

void register_autocast_kernels() {
  // Both are for good: taking a fallback back at exit visits every operator that there is.
  auto *others = new torch::Library(torch::Library::IMPL, "_", kAutocastKey, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFallthrough());
  auto *library =
      new torch::Library(torch::Library::IMPL, "aten", kAutocastKey, __FILE__, __LINE__);
  auto candidates = list_candidates();
  size_t count = 0;
  const auto *table = openreg_amp_table(&count);
  for (const auto *row = table; row != table + count; ++row) {
    auto name =
        std::string(row->operator_name) + (*row->overload != '\0' ? "." : "") + row->overload;
    const auto candidate = candidates.extract(name);
    TORCH_CHECK(candidate && candidate.mapped().policy == row->policy &&
                    candidate.mapped().replacement ==
                        (row->replacement != nullptr ? row->replacement : ""),
                "openreg: the autocast table says ", openreg_amp_policy_name(row->policy), " of ",
                name, ", PyTorch's lists for CUDA do not");
    candidate.mapped().add_to(*library);
  }
  TORCH_CHECK(candidates.empty(), "openreg: the autocast table lacks ", candidates.begin()->first,
              ", which is in PyTorch's lists for CUDA");
}

} // namespace openreg
