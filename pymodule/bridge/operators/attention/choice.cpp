#include "core/dtypes.h"
#include "operators/attention/choice.h"

#include <ATen/Context.h>
#include <ATen/NestedTensorImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <utility>

#include "compat/attention.h"
#include "compat/dispatch_stub.h"
#include "core/device_type.h"
#include "core/registration.h"
#include "core/status.h"
#include "device/device.h"
#include "operators/composed.h"

namespace openreg {

namespace {

using at::Tensor;
using Refusal = std::optional<std::string>;

template <class... Parts> Refusal because(const Parts &...parts) {
  return c10::str(parts...);
}

// The compute capability of a GPU: 90 for 9.0.
int architecture_of(const Tensor &tensor) {
  openreg_device_properties properties;
  check(openreg_device_get_properties(tensor.device().index(), &properties));
  return 10 * properties.profile.major + properties.profile.minor;
}

bool requires_gradients(const AttentionCall &call) {
  return at::GradMode::is_enabled() &&
         (call.query.requires_grad() || call.key.requires_grad() || call.value.requires_grad());
}

// ---- rules of both kernels ----------------------------------------------------------------------

// The forms of tensors that the kernels take. Of jagged ones PyTorch's Python code checks the rest.
enum class Form { kDense, kNested, kJagged, kOther };

Form form_of(const Tensor &tensor) {
  const auto layout = tensor.layout();
  return layout == c10::kStrided  ? (tensor.is_nested() ? Form::kNested : Form::kDense)
         : layout == c10::kJagged ? Form::kJagged
                                  : Form::kOther;
}

// A tensor with one sequence or one head has it for all others.
bool fits(int64_t one, int64_t other, bool may_expand) {
  return one == other || (may_expand && (one == 1 || other == 1));
}

Tensor lengths_of(const Tensor &nested) {
  return at::native::get_nested_tensor_impl(nested)->get_nested_sizes().select(1, 1);
}

// Each sequence of a nested tensor has heads, elements and a head size. Only elements may differ.
Refusal nested_refuse(const AttentionCall &call) {
  const bool may_expand = !requires_gradients(call);
  for (const auto *tensor : {&call.query, &call.key, &call.value}) {
    const auto *nested = at::native::get_nested_tensor_impl(*tensor);
    const auto lengths = lengths_of(*tensor);
    if (!nested->opt_size(1).has_value() || !nested->opt_size(3).has_value()) {
      return because("the sequences have different numbers of heads or head sizes");
    }
    if (lengths.numel() == 0 || lengths.eq(0).any().item<bool>()) {
      return because("a sequence is empty");
    }
  }
  const std::array<std::pair<const Tensor *, const Tensor *>, 3> pairs{
      {{&call.query, &call.key}, {&call.query, &call.value}, {&call.key, &call.value}}};
  for (const auto &[one, other] : pairs) {
    if (!fits(one->size(0), other->size(0), may_expand) ||
        !fits(one->size(1), other->size(1), may_expand)) {
      return because("query, key and value have different batch sizes or numbers of heads");
    }
  }
  return lengths_of(call.key).eq(lengths_of(call.value)).all().item<bool>()
             ? std::nullopt
             : because("key and value have different lengths");
}

Refusal shapes_refuse(const AttentionCall &call) {
  const auto &[query, key, value, mask, dropout, is_causal, shares_heads] = call;
  if (query.device().type() != kDeviceType) {
    return because("query is on ", query.device());
  }
  const auto form = form_of(query);
  if (form == Form::kOther || form != form_of(key) || form != form_of(value)) {
    return because("a tensor is sparse, or only some are nested");
  }
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4) {
    return because("query, key and value have ", query.dim(), ", ", key.dim(), " and ", value.dim(),
                   " dimensions instead of 4");
  }
  if (query.scalar_type() != key.scalar_type() || query.scalar_type() != value.scalar_type()) {
    return because("query, key and value have different dtypes");
  }
  if (form != Form::kDense) {
    return form == Form::kNested ? nested_refuse(call) : std::nullopt;
  }
  if (query.sym_numel() == 0 || key.sym_numel() == 0 || value.sym_numel() == 0) {
    return because("a tensor is empty");
  }
  if (query.sym_size(0) != key.sym_size(0) || query.sym_size(0) != value.sym_size(0)) {
    return because("query, key and value have different batch sizes");
  }
  return std::nullopt;
}

Refusal heads_refuse(const AttentionCall &call, bool supports_shared_heads) {
  if (form_of(call.query) != Form::kDense) {
    return std::nullopt;
  }
  const auto queries = call.query.sym_size(1), keys = call.key.sym_size(1);
  if (keys != call.value.sym_size(1)) {
    return because("key and value have ", keys, " and ", call.value.sym_size(1), " heads");
  }
  if (queries == keys) {
    return std::nullopt;
  }
  if (!call.shares_heads || !supports_shared_heads || queries % keys != 0) {
    return because("the query has ", queries, " heads and the key ", keys);
  }
  return std::nullopt;
}

bool has_dense_rows(const Tensor &tensor, bool ignores_single_columns) {
  return tensor.sym_stride(-1) == 1 || (ignores_single_columns && tensor.sym_size(-1) == 1);
}

Refusal rows_refuse(const AttentionCall &call, bool ignores_single_columns) {
  if (form_of(call.query) != Form::kDense) {
    return std::nullopt;
  }
  if (!has_dense_rows(call.query, ignores_single_columns) ||
      !has_dense_rows(call.key, ignores_single_columns) ||
      !has_dense_rows(call.value, ignores_single_columns)) {
    return because("the elements of a head are not contiguous");
  }
  return std::nullopt;
}

// ---- flash --------------------------------------------------------------------------------------

Refusal flash_heads_refuse(const AttentionCall &call, int architecture) {
  const auto size = call.query.sym_size(3);
  if (size != call.key.sym_size(3) || size != call.value.sym_size(3) || size > 256) {
    return because("query, key and value must have one head size of at most 256, got ", size, ", ",
                   call.key.sym_size(3), " and ", call.value.sym_size(3));
  }
  const bool is_small_gpu = (architecture >= 86 && architecture <= 89) || architecture >= 120;
  if (is_small_gpu && requires_gradients(call) && size > 192 &&
      !(call.dropout == 0 && size > 224)) {
    return because("gradients with head size ", size,
                   " are not supported on GPUs of compute "
                   "capability ",
                   architecture / 10, ".", architecture % 10);
  }
  return std::nullopt;
}

// ---- memory-efficient ---------------------------------------------------------------------------

// Head sizes must be multiples of it, in elements.
int64_t head_alignment(const AttentionCall &call, int architecture) {
  const bool half = is_half(call.query.scalar_type());
  if (architecture >= 80) {
    return half ? 8 : 4;
  }
  return half && architecture >= 70 ? 8 : 1;
}

Refusal efficient_heads_refuse(const AttentionCall &call, int architecture) {
  const auto size = call.query.sym_size(3), of_value = call.value.sym_size(3);
  const auto alignment = head_alignment(call, architecture);
  if (size != call.key.sym_size(3) || size % alignment != 0 || of_value % alignment != 0) {
    return because("head sizes must be multiples of ", alignment, ", got ", size, ", ",
                   call.key.sym_size(3), " and ", of_value);
  }
  return std::nullopt;
}

// ---- the choice ---------------------------------------------------------------------------------

[[noreturn]] void raise_no_kernel(const AttentionCall &call) {
  can_use(at::SDPBackend::flash_attention, call, /*warns=*/true);
  can_use(at::SDPBackend::efficient_attention, call, /*warns=*/true);
  TORCH_CHECK(false, "No available kernel. Aborting execution.");
}

// ---- PyTorch's question -------------------------------------------------------------------------

// A derivative in forward mode exists for math only.
bool has_forward_gradient(const Tensor &tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

// Tracers use subclasses such as fake tensors. vmap can loop over an operator only if all its
// results are tensors.
bool is_transformed(const Tensor &query) {
  return query.key_set().has(c10::DispatchKey::Python) ||
         c10::impl::tls_local_dispatch_key_set().included_.has(
             c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

// In openreg mode PyTorch calls the overrideable operator, which backends implement, for both fused
// kernels (backend_operator.cpp). Tracers and vmap do not support it: they get the flash operator
// of the CPU, or math.
at::SDPBackend for_backend(at::SDPBackend on_cuda, const AttentionCall &call) {
  if (on_cuda == at::SDPBackend::math || form_of(call.query) != Form::kDense) {
    return at::SDPBackend::math;
  }
  if (!is_transformed(call.query)) {
    return at::SDPBackend::overrideable;
  }
  const bool is_on_cpu = call.dropout == 0 && !shapes_refuse(call) && !rows_refuse(call, false) &&
                         !heads_refuse(call, false) &&
                         call.query.sym_size(3) == call.value.sym_size(3) &&
                         !(is_given(call.mask) && call.mask->requires_grad());
  return is_on_cpu ? at::SDPBackend::flash_attention : at::SDPBackend::math;
}

int64_t choose_attention(const Tensor &query, const Tensor &key, const Tensor &value,
                         const std::optional<Tensor> &mask, double dropout, bool is_causal,
                         std::optional<double> /*scale*/, bool enable_gqa) {
  if (has_forward_gradient(query) || has_forward_gradient(key) || has_forward_gradient(value) ||
      (is_given(mask) && has_forward_gradient(*mask))) {
    return static_cast<int64_t>(at::SDPBackend::math);
  }
  const AttentionCall call{query, key, value, mask, dropout, is_causal, enable_gqa};
  const auto on_cuda = choose_on_cuda(call);
  return static_cast<int64_t>(in_cuda_mode() ? on_cuda : for_backend(on_cuda, call));
}

} // namespace

Refusal flash_refuses(const AttentionCall &call) {
  if (auto refusal = shapes_refuse(call)) {
    return refusal;
  }
  const auto architecture = architecture_of(call.query);
  if (architecture < 80) {
    return because("it needs compute capability 8.0");
  }
  if (is_given(call.mask)) {
    return because("it supports no mask");
  }
  if (!is_half(call.query.scalar_type())) {
    return because("it supports float16 and bfloat16, not ", call.query.scalar_type());
  }
  if (call.is_causal && form_of(call.query) == Form::kDense &&
      call.query.sym_size(2) != call.key.sym_size(2)) {
    return because("is_causal needs as many queries as keys, got ", call.query.sym_size(2), " and ",
                   call.key.sym_size(2));
  }
  auto refusal = flash_heads_refuse(call, architecture);
  refusal = refusal ? refusal : heads_refuse(call, /*supports_shared_heads=*/true);
  return refusal ? refusal : rows_refuse(call, /*ignores_single_columns=*/true);
}

Refusal efficient_refuses(const AttentionCall &call) {
  if (auto refusal = shapes_refuse(call)) {
    return refusal;
  }
  const auto architecture = architecture_of(call.query);
  const auto dtype = call.query.scalar_type();
  if (dtype != at::kFloat && dtype != at::kHalf &&
      !(dtype == at::kBFloat16 && architecture >= 80)) {
    return because("it does not support ", dtype, " on this GPU");
  }
  if (is_given(call.mask) && call.mask->sym_stride(-1) != 1) {
    return because("the elements of a row of the mask are not contiguous");
  }
  if (form_of(call.query) == Form::kNested && requires_gradients(call)) {
    return because("it has no gradients of nested tensors");
  }
  auto refusal = efficient_heads_refuse(call, architecture);
  refusal = refusal ? refusal : heads_refuse(call, kEfficientSharesHeads);
  return refusal ? refusal : rows_refuse(call, /*ignores_single_columns=*/false);
}

bool can_use(at::SDPBackend kernel, const AttentionCall &call, bool warns) {
  const bool is_flash = kernel == at::SDPBackend::flash_attention;
  const auto &context = at::globalContext();
  const bool is_enabled =
      is_flash ? context.userEnabledFlashSDP() : context.userEnabledMemEfficientSDP();
  auto refusal = because("the program has disabled it");
  if (is_enabled) {
    refusal = is_flash ? flash_refuses(call) : efficient_refuses(call);
  }
  if (refusal && warns) {
    TORCH_WARN("openreg: ", is_flash ? "flash" : "memory-efficient",
               " attention is not used: ", *refusal, ".");
  }
  return !refusal;
}

at::SDPBackend choose_on_cuda(const AttentionCall &call) {
  auto &context = at::globalContext();
  const bool has_other =
      context.userEnabledCuDNNSDP() || (!in_cuda_mode() && context.userEnabledOverrideableSDP());
  const bool has_only_other = has_other && !context.userEnabledFlashSDP() &&
                              !context.userEnabledMemEfficientSDP() &&
                              !context.userEnabledMathSDP();
  const bool flash = context.userEnabledFlashSDP() || has_only_other;
  const bool efficient = context.userEnabledMemEfficientSDP() || has_only_other;
  for (const auto backend : context.sDPPriorityOrder()) {
    if ((backend == at::SDPBackend::flash_attention && flash && !flash_refuses(call)) ||
        (backend == at::SDPBackend::efficient_attention && efficient && !efficient_refuses(call)) ||
        (backend == at::SDPBackend::math && context.userEnabledMathSDP())) {
      return backend;
    }
  }
  raise_no_kernel(call);
}

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  set_device_kernel(at::native::_fused_sdp_choice_stub, &choose_attention);
  library.impl("_fused_sdp_choice", &choose_attention);
}

} // namespace openreg
