// Operators on lists of tensors, which optimizers call.
//
// PyTorch's generic kernel loops over the list, and each step of the loop is a launch. Where CUDA
// has one kernel for the list, a loop over a short list is one launch here: it holds the stream, so
// that its steps are part of it. The steps of a longer list, or on a busy stream, are launches of
// their own, because each may be queued. As on CUDA, profiles do not show the steps as operators.

#include <ATen/Operators.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "compat/native_functions.h"
#include "compat/native_kernels.h"
#include "core/registration.h"
#include "launch/policy.h"
#include "launch/typed.h"
#include "profiler/list_note.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace ops = at::_ops;

namespace {

// ---- which lists have one kernel on CUDA --------------------------------------------------------

// What CUDA's kernel for lists needs besides equal shapes, layouts and dtypes.
struct ListRule {
  bool takes_integers; // else CUDA loops over integers
  bool takes_complex;
  bool is_norm;          // its number is the norm's order
  bool promotes_numbers; // a number that changes the dtype needs a loop
  bool copies;           // the two lists may differ in dtype
  size_t factors;        // so many lists, from the second on, may hold tensors without dimensions
};

// `name` without "aten::_foreach_" and without the underscore of the in-place form.
constexpr ListRule rule_of(std::string_view name, std::string_view overload) {
  const auto is_one_of = [name](auto... names) { return ((name == names) || ...); };
  const bool is_norm = is_one_of("norm", "powsum");
  return {.takes_integers =
              is_one_of("add", "sub", "mul", "neg", "abs", "zero", "copy", "clone", "max") ||
              overload == "ScalarAndTensor",
          .takes_complex = !is_norm && name != "abs",
          .is_norm = is_norm,
          .promotes_numbers = !is_norm && overload != "ScalarAndTensor",
          .copies = name == "copy",
          .factors = name == "addcmul"   ? size_t{2}
                     : name == "addcdiv" ? size_t{1}
                                         : size_t{0}};
}

constexpr std::string_view list_operator(std::string_view name) {
  name.remove_prefix(std::string_view("aten::_foreach_").size());
  return name.ends_with('_') ? name.substr(0, name.size() - 1) : name;
}

// Collects the arguments of a call, and decides.
class ListArguments {
public:
  void add(at::TensorList tensors) { lists_.push_back(tensors); }
  void add(const at::Scalar &number) { numbers_.push_back(number); }
  void add(at::ArrayRef<at::Scalar> numbers) { numbers_.append(numbers.begin(), numbers.end()); }
  void add(const at::Tensor &number) { number_ = number; }
  template <class Other> void add(const Other &) {}

  bool have_one_kernel(const ListRule &rule) const {
    if (lists_[0].empty() || !have_equal_lengths() || elements() == 0) {
      return false;
    }
    const at::Tensor &first = lists_[0][0];
    if (first.device().type() != kDeviceType) {
      return false; // only the number is on a device
    }
    const auto dtype = first.scalar_type();
    if ((at::isIntegralType(dtype, /*includeBool=*/true) && !rule.takes_integers) ||
        (at::isComplexType(dtype) && !rule.takes_complex) ||
        (rule.is_norm && !has_kernel_for_order(numbers_[0]))) {
      return false;
    }
    if (number_.defined() && number_.dim() == 0 && number_.scalar_type() != dtype &&
        !number_.is_cpu()) {
      return false;
    }
    if (rule.copies) {
      return native::check_fast_path_restrictions(lists_, {}, false, true);
    }
    const at::ArrayRef<at::Scalar> numbers(numbers_.data(),
                                           rule.promotes_numbers ? numbers_.size() : 0);
    return native::can_use_fast_route(lists_without_numbers(rule.factors), numbers);
  }

  int64_t elements() const {
    int64_t sum = 0;
    for (const auto &list : lists_) {
      for (const at::Tensor &tensor : list) {
        sum += tensor.numel();
      }
    }
    return sum;
  }

  c10::DeviceIndex device() const { return lists_[0][0].device().index(); }

private:
  using Lists = c10::SmallVector<at::TensorList, 3>;

  bool have_equal_lengths() const {
    const auto length = lists_[0].size();
    return (numbers_.size() <= 1 || numbers_.size() == length) &&
           std::ranges::all_of(lists_, [=](const auto &list) { return list.size() == length; });
  }

  static bool has_kernel_for_order(const at::Scalar &order) {
    const auto p = order.isComplex() ? -1 : order.toDouble();
    return p == 0 || p == 1 || p == 2 || p == std::numeric_limits<double>::infinity();
  }

  // Without the first of the lists after the first one, up to `factors`, that holds only tensors
  // without dimensions, of the device and dtype of the first list.
  Lists lists_without_numbers(size_t factors) const {
    auto lists = lists_;
    const at::Tensor &first = lists_[0][0];
    for (size_t i = 1; i <= factors && i < lists.size(); ++i) {
      const bool are_numbers = std::ranges::all_of(lists[i], [&](const at::Tensor &tensor) {
        return tensor.dim() == 0 && tensor.scalar_type() == first.scalar_type() &&
               tensor.device() == first.device();
      });
      if (are_numbers) {
        lists.erase(lists.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
    }
    return lists;
  }

  Lists lists_;
  c10::SmallVector<at::Scalar, 4> numbers_;
  at::Tensor number_;
};

// ---- the launch ---------------------------------------------------------------------------------

template <class Op, class Schema> struct ListLaunch;

template <class Op, class Result, class... Args> struct ListLaunch<Op, Result(Args...)> {
  static Result call(Args... args) {
    static constexpr auto kRule = rule_of(list_operator(Op::name), Op::overload_name);
    ListArguments arguments;
    (arguments.add(args), ...);
    if (!arguments.have_one_kernel(kRule)) {
      return Op::redispatch(kCpuKernel, args...); // PyTorch's loop
    }
    const ListNote note;
    const HiddenOperators hidden;
    std::optional<InlineGuard> guard;
    if (!is_long(arguments.elements())) {
      last_launch = Op::name;
      guard.emplace(arguments.device(), InlineGuard::kIfIdle);
    }
    return Op::redispatch(kCpuKernel, args...);
  }
};

template <class... Ops> void register_lists(torch::Library &library) {
  (register_one<Ops>(library, &ListLaunch<Ops, typename Ops::schema>::call), ...);
}

// ---- one tensor for the list --------------------------------------------------------------------

// For _foreach_add only: similar operators accept a scalar tensor on the host.
void check_addend(at::TensorList tensors, const at::Tensor &addend, const at::Scalar &alpha,
                  const char *sentence) {
  native::check_foreach_api_restrictions(tensors);
  const bool fused = native::can_use_fast_route({tensors}, alpha) &&
                     tensors[0].scalar_type() == addend.scalar_type();
  TORCH_CHECK(!fused || addend.dim() != 0 || tensors[0].device() == addend.device(), sentence,
              tensors[0].device(), " but is on ", addend.device());
}

std::vector<at::Tensor> foreach_add(at::TensorList tensors, const at::Tensor &addend,
                                    const at::Scalar &alpha) {
  check_addend(tensors, addend, alpha, "scalar tensor expected to be on ");
  using Op = ops::_foreach_add_Tensor;
  return ListLaunch<Op, Op::schema>::call(tensors, addend, alpha);
}

void foreach_add_(at::TensorList tensors, const at::Tensor &addend, const at::Scalar &alpha) {
  check_addend(tensors, addend, alpha, "scalar tensor is expected to be on ");
  using Op = ops::_foreach_add__Tensor;
  ListLaunch<Op, Op::schema>::call(tensors, addend, alpha);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("_foreach_add.Tensor", &foreach_add);
  library.impl("_foreach_add_.Tensor", &foreach_add_);
  // arithmetic
  register_lists<ops::_foreach_add_List, ops::_foreach_add_Scalar, ops::_foreach_add_ScalarList,
                 ops::_foreach_add__List, ops::_foreach_add__Scalar, ops::_foreach_add__ScalarList,
                 ops::_foreach_addcdiv_Scalar, ops::_foreach_addcdiv_ScalarList,
                 ops::_foreach_addcdiv_Tensor, ops::_foreach_addcdiv__Scalar,
                 ops::_foreach_addcdiv__ScalarList, ops::_foreach_addcdiv__Tensor,
                 ops::_foreach_addcmul_Scalar, ops::_foreach_addcmul_ScalarList,
                 ops::_foreach_addcmul_Tensor, ops::_foreach_addcmul__Scalar,
                 ops::_foreach_addcmul__ScalarList, ops::_foreach_addcmul__Tensor,
                 ops::_foreach_div_List, ops::_foreach_div_Scalar, ops::_foreach_div_ScalarList,
                 ops::_foreach_div_Tensor, ops::_foreach_div__List, ops::_foreach_div__Scalar,
                 ops::_foreach_div__ScalarList, ops::_foreach_div__Tensor, ops::_foreach_lerp_List,
                 ops::_foreach_lerp_Scalar, ops::_foreach_lerp_ScalarList, ops::_foreach_lerp__List,
                 ops::_foreach_lerp__Scalar, ops::_foreach_lerp__ScalarList, ops::_foreach_mul_List,
                 ops::_foreach_mul_Scalar, ops::_foreach_mul_ScalarList, ops::_foreach_mul_Tensor,
                 ops::_foreach_mul__List, ops::_foreach_mul__Scalar, ops::_foreach_mul__ScalarList,
                 ops::_foreach_mul__Tensor, ops::_foreach_pow_List, ops::_foreach_pow_Scalar,
                 ops::_foreach_pow_ScalarAndTensor, ops::_foreach_pow_ScalarList,
                 ops::_foreach_pow__List, ops::_foreach_pow__Scalar, ops::_foreach_pow__ScalarList,
                 ops::_foreach_sub_List, ops::_foreach_sub_Scalar, ops::_foreach_sub_ScalarList,
                 ops::_foreach_sub__List, ops::_foreach_sub__Scalar, ops::_foreach_sub__ScalarList>(
      library);
  // limits
  register_lists<ops::_foreach_clamp_max_List, ops::_foreach_clamp_max_Scalar,
                 ops::_foreach_clamp_max_ScalarList, ops::_foreach_clamp_max__List,
                 ops::_foreach_clamp_max__Scalar, ops::_foreach_clamp_max__ScalarList,
                 ops::_foreach_clamp_min_List, ops::_foreach_clamp_min_Scalar,
                 ops::_foreach_clamp_min_ScalarList, ops::_foreach_clamp_min__List,
                 ops::_foreach_clamp_min__Scalar, ops::_foreach_clamp_min__ScalarList,
                 ops::_foreach_maximum_List, ops::_foreach_maximum_Scalar,
                 ops::_foreach_maximum_ScalarList, ops::_foreach_maximum__List,
                 ops::_foreach_maximum__Scalar, ops::_foreach_maximum__ScalarList,
                 ops::_foreach_minimum_List, ops::_foreach_minimum_Scalar,
                 ops::_foreach_minimum_ScalarList, ops::_foreach_minimum__List,
                 ops::_foreach_minimum__Scalar, ops::_foreach_minimum__ScalarList>(library);
  // reductions, copies
  register_lists<ops::_foreach_copy_, ops::_foreach_max, ops::_foreach_clone,
                 ops::_foreach_norm_Scalar, ops::_foreach_powsum_Scalar, ops::_foreach_zero_>(
      library);
  // functions of one tensor
  register_lists<
      ops::_foreach_abs, ops::_foreach_abs_, ops::_foreach_acos, ops::_foreach_acos_,
      ops::_foreach_asin, ops::_foreach_asin_, ops::_foreach_atan, ops::_foreach_atan_,
      ops::_foreach_ceil, ops::_foreach_ceil_, ops::_foreach_cos, ops::_foreach_cos_,
      ops::_foreach_cosh, ops::_foreach_cosh_, ops::_foreach_erf, ops::_foreach_erf_,
      ops::_foreach_erfc, ops::_foreach_erfc_, ops::_foreach_exp, ops::_foreach_exp_,
      ops::_foreach_expm1, ops::_foreach_expm1_, ops::_foreach_floor, ops::_foreach_floor_,
      ops::_foreach_frac, ops::_foreach_frac_, ops::_foreach_lgamma, ops::_foreach_lgamma_,
      ops::_foreach_log, ops::_foreach_log10, ops::_foreach_log10_, ops::_foreach_log1p,
      ops::_foreach_log1p_, ops::_foreach_log2, ops::_foreach_log2_, ops::_foreach_log_,
      ops::_foreach_neg, ops::_foreach_neg_, ops::_foreach_reciprocal, ops::_foreach_reciprocal_,
      ops::_foreach_round, ops::_foreach_round_, ops::_foreach_rsqrt, ops::_foreach_rsqrt_,
      ops::_foreach_sigmoid, ops::_foreach_sigmoid_, ops::_foreach_sign, ops::_foreach_sign_,
      ops::_foreach_sin, ops::_foreach_sin_, ops::_foreach_sinh, ops::_foreach_sinh_,
      ops::_foreach_sqrt, ops::_foreach_sqrt_, ops::_foreach_tan, ops::_foreach_tan_,
      ops::_foreach_tanh, ops::_foreach_tanh_, ops::_foreach_trunc, ops::_foreach_trunc_>(library);
}

} // namespace openreg
