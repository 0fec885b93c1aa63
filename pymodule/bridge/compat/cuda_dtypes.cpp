#include "compat/cuda_dtypes.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <bit>

namespace openreg {

namespace {

constexpr Dtypes kHalfs{at::kHalf, at::kBFloat16};
constexpr Dtypes kComplexHalfs{at::kComplexHalf};
constexpr Dtypes kComplex{at::kComplexFloat, at::kComplexDouble};
constexpr Dtypes kBools{at::kBool};
constexpr Dtypes kBytes{at::kByte};
constexpr Dtypes kHalf{at::kHalf};
constexpr Dtypes kBFloats{at::kBFloat16};
constexpr Dtypes kIntegers{at::kByte, at::kChar, at::kShort, at::kInt, at::kLong};
constexpr Dtypes kFourier{at::kHalf, at::kComplexHalf};
constexpr Dtypes kFloat8s{at::kFloat8_e5m2, at::kFloat8_e4m3fn, at::kFloat8_e5m2fnuz,
                          at::kFloat8_e4m3fnuz, at::kFloat8_e8m0fnu};
// PyTorch calls them barebones types. On CUDA mostly kernels that only move elements support them.
constexpr Dtypes kUnsigned{at::kUInt16, at::kUInt32, at::kUInt64};

// Since 2.14 CUDA transforms bfloat16, into complex64, and has a kernel of angle for 16 bits.
constexpr bool kIsSince214 = TORCH_VERSION_MINOR >= 14;
constexpr auto kFourierOfReals = kIsSince214 ? Dtypes{at::kBFloat16} : Dtypes{};
constexpr auto kHalfsWithoutAngle = kIsSince214 ? Dtypes{} : kHalfs;

// Before 2.13 the CPU has no trace in 16 bits.
constexpr auto kHalfsWithoutTrace = TORCH_VERSION_MINOR < 13 ? kHalfs : Dtypes{};

// ---- Fourier transforms in float16 --------------------------------------------------------------

using Sizes = c10::SmallVector<int64_t, 4>;

// Returns the sizes of one transform, in the order of its dimensions.
Sizes signal_sizes(const at::Tensor &self, c10::ArrayRef<int64_t> dimensions) {
  Sizes sizes;
  for (const auto dimension : dimensions) {
    sizes.push_back(self.size(dimension));
  }
  return sizes;
}

void check_sizes(c10::IntArrayRef sizes) {
  const bool are_powers = std::ranges::all_of(
      sizes, [](int64_t size) { return std::has_single_bit(static_cast<uint64_t>(size)); });
  TORCH_CHECK(are_powers,
              "cuFFT only supports dimensions whose sizes are powers of two when computing in half "
              "precision, but got a signal size of",
              sizes);
}

// _fft_c2c, _fft_r2c: the transform is as large as the argument.
void check_signal(Arguments arguments) {
  check_sizes(signal_sizes(arguments[0].toTensor(), arguments[1].toIntVector()));
}

// _fft_c2r: the last dimension is as large as the result's.
void check_result(Arguments arguments) {
  auto sizes = signal_sizes(arguments[0].toTensor(), arguments[1].toIntVector());
  sizes.back() = arguments[3].toInt();
  check_sizes(sizes);
}

// ---- what is computed in another dtype ----------------------------------------------------------

// scatter with a tensor of values and no reduction.
bool copies_elements(Arguments arguments) {
  return arguments[3].isTensor() && (arguments.size() == 4 || !arguments[4].isString());
}

// Sorted by name. A row also applies to the operator's in-place form.
constexpr std::array kWidened = {
    WidenedRow{"aten::_adaptive_avg_pool3d", kHalfs},
    WidenedRow{"aten::_fft_c2c", kFourier, ComputedIn::kWider, &check_signal},
    WidenedRow{"aten::_fft_c2r", kFourier, ComputedIn::kWider, &check_result},
    WidenedRow{"aten::_fft_r2c", kFourier, ComputedIn::kWider, &check_signal},
    WidenedRow{"aten::_fft_r2c", kFourierOfReals},
    WidenedRow{"aten::_upsample_bicubic2d_aa", kHalfs},
    WidenedRow{"aten::_upsample_bicubic2d_aa_backward", kHalfs},
    WidenedRow{"aten::_upsample_bilinear2d_aa", kHalfs},
    WidenedRow{"aten::_upsample_bilinear2d_aa_backward", kHalfs},
    WidenedRow{"aten::acos", kComplexHalfs},
    WidenedRow{"aten::acosh", kComplexHalfs},
    WidenedRow{"aten::addbmm", kHalf},
    WidenedRow{"aten::addmm", kHalf},
    WidenedRow{"aten::addmv", kHalf},
    WidenedRow{"aten::angle", kComplexHalfs},
    WidenedRow{"aten::asin", kComplexHalfs},
    WidenedRow{"aten::asinh", kComplexHalfs},
    WidenedRow{"aten::atan", kComplexHalfs},
    WidenedRow{"aten::atanh", kComplexHalfs},
    WidenedRow{"aten::avg_pool2d_backward", kHalfs},
    WidenedRow{"aten::avg_pool3d", kHalfs},
    WidenedRow{"aten::avg_pool3d_backward", kHalfs},
    WidenedRow{"aten::baddbmm", kHalf},
    WidenedRow{"aten::bmm", kHalf},
    WidenedRow{"aten::col2im", kHalfs},
    WidenedRow{"aten::convolution", kHalf},
    WidenedRow{"aten::convolution_backward", kHalf},
    WidenedRow{"aten::cos", kComplexHalfs},
    WidenedRow{"aten::cosh", kComplexHalfs},
    WidenedRow{"aten::count_nonzero", kFloat8s},
    WidenedRow{"aten::count_nonzero", kUnsigned, ComputedIn::kIntegers},
    WidenedRow{"aten::div", kComplexHalfs},
    WidenedRow{"aten::equal", kComplexHalfs},
    WidenedRow{"aten::erf", kBFloats},
    WidenedRow{"aten::exp", kComplexHalfs},
    WidenedRow{"aten::eye", kComplexHalfs},
    WidenedRow{"aten::eye", kUnsigned, ComputedIn::kSigned},
    WidenedRow{"aten::flip", kComplexHalfs | kFloat8s},
    WidenedRow{"aten::flip", kUnsigned, ComputedIn::kSigned},
    WidenedRow{"aten::gather", kComplexHalfs | kFloat8s},
    WidenedRow{"aten::gather", kUnsigned, ComputedIn::kSigned},
    WidenedRow{"aten::grid_sampler_2d", kHalfs},
    WidenedRow{"aten::grid_sampler_2d_backward", kHalfs},
    WidenedRow{"aten::grid_sampler_3d", kHalfs},
    WidenedRow{"aten::grid_sampler_3d_backward", kHalfs},
    WidenedRow{"aten::index_select", kUnsigned, ComputedIn::kSigned},
    WidenedRow{"aten::isin", kComplexHalfs | kFloat8s},
    WidenedRow{"aten::isin", kUnsigned, ComputedIn::kSigned},
    WidenedRow{"aten::ldexp", kComplexHalfs},
    WidenedRow{"aten::lerp", kComplexHalfs},
    WidenedRow{"aten::log", kComplexHalfs},
    WidenedRow{"aten::logaddexp", kComplexHalfs},
    WidenedRow{"aten::logit", kHalfs},
    WidenedRow{"aten::logsumexp", kComplexHalfs},
    WidenedRow{"aten::median", kBools, ComputedIn::kBytes},
    WidenedRow{"aten::mm", kHalf},
    WidenedRow{"aten::multi_margin_loss", kHalfs},
    WidenedRow{"aten::multi_margin_loss_backward", kHalfs},
    WidenedRow{"aten::multilabel_margin_loss_backward", kHalfs},
    WidenedRow{"aten::multilabel_margin_loss_forward", kHalfs},
    WidenedRow{"aten::mv", kHalf},
    WidenedRow{"aten::nanmedian", kBools, ComputedIn::kBytes},
    WidenedRow{"aten::pow", kComplexHalfs},
    WidenedRow{"aten::prod", kHalfs | kComplexHalfs},
    WidenedRow{"aten::rsqrt", kComplexHalfs},
    WidenedRow{"aten::scatter", kComplexHalfs},
    WidenedRow{"aten::scatter", kFloat8s, ComputedIn::kWider, nullptr, &copies_elements},
    WidenedRow{"aten::scatter", kUnsigned, ComputedIn::kSigned, nullptr, &copies_elements},
    WidenedRow{"aten::sigmoid", kComplexHalfs},
    WidenedRow{"aten::sigmoid_backward", kComplexHalfs},
    WidenedRow{"aten::sin", kComplexHalfs},
    WidenedRow{"aten::sinh", kComplexHalfs},
    WidenedRow{"aten::sparse_sampled_addmm", kHalfs | kComplexHalfs},
    WidenedRow{"aten::special_entr", kHalfs},
    WidenedRow{"aten::special_i0e", kHalfs},
    WidenedRow{"aten::sqrt", kComplexHalfs},
    WidenedRow{"aten::sum", kComplexHalfs},
    WidenedRow{"aten::tan", kComplexHalfs},
    WidenedRow{"aten::tanh", kComplexHalfs},
    WidenedRow{"aten::tanh_backward", kComplexHalfs},
    WidenedRow{"aten::trace", kBools, ComputedIn::kIntegers},
    WidenedRow{"aten::trace", kComplexHalfs | kHalfsWithoutTrace},
    WidenedRow{"aten::upsample_bicubic2d", kHalfs},
    WidenedRow{"aten::upsample_bilinear2d", kHalfs},
    WidenedRow{"aten::upsample_linear1d", kHalfs},
    WidenedRow{"aten::upsample_trilinear3d", kHalfs},
};

static_assert(std::ranges::is_sorted(kWidened, {}, &WidenedRow::name));

// ---- the same for sparse tensors ----------------------------------------------------------------

// The operands of a binary operator.
bool are_sparse(Arguments arguments) {
  return arguments[0].toTensor().is_sparse() && arguments[1].isTensor() &&
         arguments[1].toTensor().is_sparse();
}

bool are_sparse_csr(Arguments arguments) {
  return arguments[0].toTensor().is_sparse_csr() && arguments[1].isTensor() &&
         arguments[1].toTensor().is_sparse_csr();
}

constexpr std::array kWidenedCoo = {
    WidenedRow{"aten::_sparse_sparse_matmul", kHalfs},
    WidenedRow{"aten::_to_dense", kComplexHalfs},
    WidenedRow{"aten::add", kComplexHalfs},
    WidenedRow{"aten::add", kHalfs, ComputedIn::kWider, nullptr, &are_sparse},
    WidenedRow{"aten::mul", kBools, ComputedIn::kBytes, nullptr, &are_sparse},
    WidenedRow{"aten::sub", kHalfs, ComputedIn::kWider, nullptr, &are_sparse},
};

constexpr std::array kWidenedCsr = {
    WidenedRow{"aten::addmm", kHalfs},
    WidenedRow{"aten::mm", kHalfs},
    WidenedRow{"aten::mul", kBools, ComputedIn::kBytes, nullptr, &are_sparse_csr},
};

static_assert(std::ranges::is_sorted(kWidenedCoo, {}, &WidenedRow::name));
static_assert(std::ranges::is_sorted(kWidenedCsr, {}, &WidenedRow::name));

// ---- what CUDA lacks ----------------------------------------------------------------------------

std::string_view reduction(Arguments arguments) { // scatter_reduce
  return arguments[4].toStringRef();
}

bool reduces_by_product(Arguments arguments) {
  return reduction(arguments) == "prod";
}

bool multiplies(Arguments arguments) { // scatter with a reduction
  return arguments.size() == 5 && arguments[4].isString() &&
         arguments[4].toStringRef() == "multiply";
}

bool multiplies_by_tensor(Arguments arguments) {
  return multiplies(arguments) && arguments[3].isTensor();
}

bool multiplies_by_number(Arguments arguments) {
  return multiplies(arguments) && !arguments[3].isTensor();
}

bool averages(Arguments arguments) {
  return reduction(arguments) == "mean";
}

bool orders(Arguments arguments) {
  return reduction(arguments) == "amin" || reduction(arguments) == "amax";
}

// CUDA compares the dtypes of the arguments first.
bool have_one_dtype(Arguments arguments) {
  const auto dtype = arguments[0].toTensor().dtype();
  return std::ranges::all_of(arguments, [&](const c10::IValue &each) {
    return !each.isTensor() || each.toTensor().dtype() == dtype;
  });
}

constexpr auto kWhole = kIntegers | kBools;
constexpr auto kNotOfMatrices = kWhole | kComplexHalfs | kFloat8s;
constexpr auto kScatterReduce = "cuda_scatter_gather_base_kernel_func";

// Sorted by name, as above. operators/convolution.cpp checks convolutions, and operators/dtypes.cpp
// histograms.
constexpr std::array kRefused = {
    RefusedRow{"aten::_upsample_bicubic2d_aa", kBytes, "upsample_bilinear2d_out_frame"},
    RefusedRow{"aten::_upsample_bilinear2d_aa", kBytes, "upsample_bilinear2d_out_frame"},
    RefusedRow{"aten::addbmm", kNotOfMatrices, "addmm_cuda", &have_one_dtype},
    RefusedRow{"aten::addcmul", kComplexHalfs, "addcmul_cuda"},
    RefusedRow{"aten::addmm", kNotOfMatrices, "addmm_cuda", &have_one_dtype},
    RefusedRow{"aten::addmv", kNotOfMatrices, "addmv_impl_cuda", &have_one_dtype},
    RefusedRow{"aten::angle", kHalfsWithoutAngle, "angle_cuda"},
    RefusedRow{"aten::avg_pool2d", kWhole, "avg_pool2d_out_cuda_frame"},
    RefusedRow{"aten::avg_pool3d", kWhole, "avg_pool3d_out_cuda"},
    RefusedRow{"aten::baddbmm", kNotOfMatrices, "baddbmm_cuda", &have_one_dtype},
    RefusedRow{"aten::bitwise_and", kUnsigned, "bitwise_and_cuda"},
    RefusedRow{"aten::bitwise_or", kUnsigned, "bitwise_or_cuda"},
    RefusedRow{"aten::bitwise_xor", kUnsigned, "bitwise_xor_cuda"},
    RefusedRow{"aten::bmm", kNotOfMatrices, "baddbmm_cuda", &have_one_dtype},
    RefusedRow{"aten::dot", kNotOfMatrices, "dot", &have_one_dtype},
    RefusedRow{"aten::igamma", kHalfs, "igamma_cuda"},
    RefusedRow{"aten::igammac", kHalfs, "igammac_cuda"},
    RefusedRow{"aten::max_pool2d_with_indices", kWhole, "max_pool2d_with_indices_out_cuda_frame"},
    RefusedRow{"aten::max_pool3d_with_indices", kWhole, "max_pool3d_with_indices_out_frame"},
    RefusedRow{"aten::mm", kNotOfMatrices, "addmm_cuda", &have_one_dtype},
    RefusedRow{"aten::mul", kFloat8s | kUnsigned, "mul_cuda"},
    RefusedRow{"aten::mv", kNotOfMatrices, "addmv_impl_cuda", &have_one_dtype},
    RefusedRow{"aten::native_dropout_backward", kWhole | kComplexHalfs | kComplex, "masked_scale"},
    RefusedRow{"aten::roll", kFloat8s | kUnsigned, "roll_cuda"},
    RefusedRow{"aten::scatter", kBools | kComplex | kComplexHalfs, kScatterReduce,
               &multiplies_by_tensor},
    RefusedRow{"aten::scatter", kBools | kComplex | kComplexHalfs,
               "cuda_scatter_fill_base_kernel_reduce_multiply", &multiplies_by_number},
    RefusedRow{"aten::scatter_reduce", kBools | kComplex | kComplexHalfs, kScatterReduce,
               &reduces_by_product},
    RefusedRow{"aten::scatter_reduce", kComplex | kComplexHalfs, kScatterReduce, &averages},
    RefusedRow{"aten::scatter_reduce", kBools, kScatterReduce, &orders},
    RefusedRow{"aten::sort", kUnsigned, "sort"},
    RefusedRow{"aten::upsample_bicubic2d", kBytes, "upsample_bicubic2d_out_frame"},
    RefusedRow{"aten::upsample_bilinear2d", kBytes, "upsample_bilinear2d_out_frame"},
    RefusedRow{"aten::vdot", kNotOfMatrices, "dot", &have_one_dtype},
};

static_assert(std::ranges::is_sorted(kRefused, {}, &RefusedRow::name));

template <class Table> auto rows_of(const Table &table, std::string_view name) {
  const bool in_place = name.ends_with('_') && !name.ends_with("__");
  const auto found = std::ranges::equal_range(
      table, in_place ? name.substr(0, name.size() - 1) : name, {}, &Table::value_type::name);
  return std::span(found);
}

} // namespace

std::span<const WidenedRow> widened_rows(std::string_view name, c10::DispatchKey kernel_key) {
  std::span<const WidenedRow> rows;
  if (kernel_key == c10::DispatchKey::SparseCPU) {
    rows = rows_of(kWidenedCoo, name);
  } else if (kernel_key == c10::DispatchKey::SparseCsrCPU) {
    rows = rows_of(kWidenedCsr, name);
  }
  return rows.empty() ? rows_of(kWidened, name) : rows;
}

std::span<const RefusedRow> refused_rows(std::string_view name) {
  return rows_of(kRefused, name);
}

void append_dtype_rows(std::vector<std::string_view> &names) {
  for (const auto &row : kWidened) {
    names.push_back(row.name);
  }
  for (const auto &row : kWidenedCoo) {
    names.push_back(row.name);
  }
  for (const auto &row : kWidenedCsr) {
    names.push_back(row.name);
  }
  for (const auto &row : kRefused) {
    names.push_back(row.name);
  }
}

} // namespace openreg
