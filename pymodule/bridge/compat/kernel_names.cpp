#include "compat/kernel_names.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "core/device_type.h"

namespace openreg {

namespace {

struct Name {
  std::string_view cpu, cuda;
};

// From the errors that an H100 reported for the operator database (tools/record_cuda_errors.py).
// Where kernels of one operator have several names on CUDA, this is the most frequent one.
constexpr std::array<Name, 80> kNames = {{
    {"GeluKernelImpl", "GeluCUDAKernelImpl"},
    {"_segment_reduce_cpu", "segment_reduce_cuda"},
    {"adaptive_avg_pool2d", "adaptive_avg_pool2d_cuda"},
    {"adaptive_max_pool2d", "adaptive_max_pool2d_cuda"},
    {"add_stub", "ufunc_add_CUDA"},
    {"addcmul_cpu_out", "addcmul_cuda"},
    {"addmm_impl_cpu_", "addmm_cuda"},
    {"aminmax_cpu", "aminmax_all_cuda"},
    {"avg_pool2d", "avg_pool2d_out_cuda_frame"},
    {"avg_pool3d_out_frame", "avg_pool3d_out_cuda"},
    {"baddbmm", "baddbmm_cuda"},
    {"baddbmm_with_gemm", "baddbmm_cuda"},
    {"batch_norm", "batch_norm_stats_cuda"},
    {"binary_cross_entropy", "binary_cross_entropy_out_cuda"},
    {"bmm", "baddbmm_cuda"},
    {"cdist", "cdist_cuda"},
    {"cholesky_cpu", "cholesky_cusolver"},
    {"clamp_min_scalar_cpu", "clamp_scalar_cuda"},
    {"compute_index_ranges_weights", "upsample_bilinear2d_out_frame"},
    {"compute_indices_weights_cubic", "upsample_bicubic2d_out_frame"},
    {"compute_indices_weights_linear", "upsample_linear1d_out_frame"},
    {"compute_indices_weights_nearest", "upsample_nearest1d_out_frame"},
    {"cross", "cross_cuda"},
    {"cumprod_out_cpu", "cumprod_cuda"},
    {"cumsum_out_cpu", "cumsum_cuda"},
    {"digamma", "digamma_cuda"},
    {"div_cpu_reduced_float", "div_true_cuda"},
    {"exp2", "exp2_cuda"},
    {"fractional_max_pool2d_out_frame", "fractional_max_pool2d_out_cuda_frame"},
    {"ge_cpu", "compare_cuda"},
    {"grid_sampler3d_cpu", "grid_sampler_3d_cuda"},
    {"grid_sampler_2d_cpu_kernel_impl", "grid_sampler_2d_cuda"},
    {"gt_cpu", "compare_cuda"},
    {"histogram_cpu", "histc"},
    {"index_add_", "index_add"},
    {"index_func_", "index_reduce"},
    {"ldl_factor_kernel_cpu", "ldl_factor_looped_cusolver"},
    {"le_cpu", "compare_cuda"},
    {"lerp_kernel_scalar", "lerp_cuda"},
    {"linalg_svd_cpu", "svd_cuda_gesvdjBatched"},
    {"log_sigmoid_cpu", "log_sigmoid_forward_cuda"},
    {"log_softmax_lastdim_kernel_impl", "host_softmax"},
    {"logcumsumexp_out_cpu", "logcumsumexp_cuda"},
    {"lt_cpu", "compare_cuda"},
    {"lu_cpu", "lu_factor_magma_batched"},
    {"masked_fill", "masked_fill_"},
    {"masked_scatter", "masked_scatter_"},
    {"masked_select", "index_cuda"},
    {"max_all", "max_all_cuda"},
    {"max_pool2d", "max_pool2d_with_indices_out_cuda_frame"},
    {"max_pool3d", "max_pool3d_with_indices_out_frame"},
    {"maximum_cpu", "max_elementwise_cuda"},
    {"median_out", "median_out_impl"},
    {"min_all", "min_all_cuda"},
    {"minimum_cpu", "min_elementwise_cuda"},
    {"mode_cpu", "cuda_mode"},
    {"multi_margin_loss_cpu_kernel", "multi_margin_loss_cuda"},
    {"multilabel_margin_loss_forward_out_frame", "multilabel_margin_loss_forward_kernel"},
    {"nan_to_num", "nan_to_num_cuda"},
    {"nll_loss_out_frame", "nll_loss_forward_no_reduce_cuda_kernel"},
    {"nonzero_count_cpu", "nonzero_cuda"},
    {"pow", "pow_cuda"},
    {"prod_out_cpu", "prod_cuda"},
    {"reflection_pad1d", "reflection_pad1d_out"},
    {"replication_pad1d", "replication_pad1d_cuda"},
    {"replication_pad2d", "replication_pad2d_cuda"},
    {"scatter_gather_tensor_cpu", "cuda_scatter_gather_base_kernel_func"},
    {"scatter_gather_tensor_cpu_reduce_amax", "cuda_scatter_gather_base_kernel_func"},
    {"scatter_gather_tensor_cpu_reduce_amin", "cuda_scatter_gather_base_kernel_func"},
    {"scatter_gather_tensor_cpu_reduce_mean", "cuda_scatter_gather_base_kernel_func"},
    {"softmax_kernel_impl", "host_softmax"},
    {"softmax_lastdim_kernel_impl", "host_softmax"},
    {"sorting_kernel_method_name", "sort"},
    {"take_put_cpu", "put_cuda"},
    {"topk_cpu", "topk_out_cuda"},
    {"trace", "sum_cuda"},
    {"trigamma", "trigamma_cuda"},
    {"tril", "triu_tril_cuda_template"},
    {"triu", "triu_tril_cuda_template"},
    {"upsample_bilinear2d_channels_last", "upsample_bilinear2d_out_frame"},
}};

// What follows in other names.
constexpr std::array<Name, 3> kEnds = {{
    {"_cpu_reduced_float", "_cuda"},
    {"_vml_cpu", "_cuda"},
    {"_cpu", "_cuda"},
}};

constexpr std::string_view kNotImplemented = "\" not implemented for '";

} // namespace

std::string kernel_name_of_mode(std::string name) {
  if (!in_cuda_mode()) {
    for (const std::string_view cuda : {"cuda", "CUDA"}) {
      if (const auto at = name.find(cuda); at != std::string::npos) {
        name.replace(at, cuda.size(), "openreg");
      }
    }
  }
  return name;
}

std::string cuda_kernel_name(std::string_view cpu_name) {
  const auto *const row =
      std::ranges::find_if(kNames, [&](const Name &each) { return each.cpu == cpu_name; });
  if (row != kNames.end()) {
    return kernel_name_of_mode(std::string(row->cuda));
  }
  for (const auto &[end, cuda] : kEnds) {
    if (cpu_name.ends_with(end)) {
      const auto stem = cpu_name.substr(0, cpu_name.size() - end.size());
      return kernel_name_of_mode(std::string(stem).append(cuda));
    }
  }
  return std::string(cpu_name);
}

void rethrow_with_cuda_names() {
  try {
    throw;
  } catch (const c10::NotImplementedError &error) {
    const std::string text = error.what_without_backtrace();
    const auto end = text.find(kNotImplemented);
    if (end == std::string::npos || text.front() != '"') {
      throw;
    }
    const auto name = cuda_kernel_name(std::string_view(text).substr(1, end - 1));
    TORCH_CHECK_NOT_IMPLEMENTED(false, '"', name, text.substr(end));
  }
}

} // namespace openreg
