#include "distributed/arguments.h"

#include "compat/collective_arguments.h"

namespace openreg {

namespace {

void check_dense(const at::Tensor &tensor) {
  TORCH_CHECK_VALUE(is_on_device(tensor) && tensor.layout() == c10::kStrided, "Tensors must be ",
                    platform_name(), " and dense");
}

const char *name_of(c10d::ReduceOp::RedOpType type) {
  static constexpr const char *kNames[] = {"SUM",  "AVG", "PRODUCT", "MIN",        "MAX",
                                           "BAND", "BOR", "BXOR",    "PREMUL_SUM", "UNUSED"};
  return kNames[type];
}

openreg_reduction reduction_of(c10d::ReduceOp::RedOpType type) {
  switch (type) {
  case c10d::ReduceOp::SUM:
    return OPENREG_REDUCE_SUM;
  case c10d::ReduceOp::AVG:
    return OPENREG_REDUCE_AVG;
  case c10d::ReduceOp::PRODUCT:
    return OPENREG_REDUCE_PRODUCT;
  case c10d::ReduceOp::MIN:
    return OPENREG_REDUCE_MIN;
  case c10d::ReduceOp::MAX:
    return OPENREG_REDUCE_MAX;
  case c10d::ReduceOp::PREMUL_SUM:
    return OPENREG_REDUCE_PREMUL_SUM;
  case c10d::ReduceOp::BAND:
    return OPENREG_REDUCE_BAND;
  case c10d::ReduceOp::BOR:
    return OPENREG_REDUCE_BOR;
  case c10d::ReduceOp::BXOR:
    return OPENREG_REDUCE_BXOR;
  default:
    TORCH_CHECK_VALUE(false, "Unhandled ReduceOp");
  }
}

bool is_bitwise(c10d::ReduceOp::RedOpType type) {
  return type == c10d::ReduceOp::BAND || type == c10d::ReduceOp::BOR ||
         type == c10d::ReduceOp::BXOR;
}

// BYTES for types that the C layer does not have.
openreg_dtype dtype_of(at::ScalarType type) {
  switch (type) {
  case at::kBool:
    return OPENREG_DTYPE_BOOL;
  case at::kByte:
    return OPENREG_DTYPE_UINT8;
  case at::kChar:
    return OPENREG_DTYPE_INT8;
  case at::kUInt16:
    return OPENREG_DTYPE_UINT16;
  case at::kShort:
    return OPENREG_DTYPE_INT16;
  case at::kUInt32:
    return OPENREG_DTYPE_UINT32;
  case at::kInt:
    return OPENREG_DTYPE_INT32;
  case at::kUInt64:
    return OPENREG_DTYPE_UINT64;
  case at::kLong:
    return OPENREG_DTYPE_INT64;
  case at::kHalf:
    return OPENREG_DTYPE_FLOAT16;
  case at::kBFloat16:
    return OPENREG_DTYPE_BFLOAT16;
  case at::kFloat8_e4m3fn:
    return OPENREG_DTYPE_FLOAT8_E4M3;
  case at::kFloat8_e5m2:
    return OPENREG_DTYPE_FLOAT8_E5M2;
  case at::kFloat:
    return OPENREG_DTYPE_FLOAT32;
  case at::kDouble:
    return OPENREG_DTYPE_FLOAT64;
  case at::kComplexHalf:
    return OPENREG_DTYPE_COMPLEX32;
  case at::kComplexFloat:
    return OPENREG_DTYPE_COMPLEX64;
  case at::kComplexDouble:
    return OPENREG_DTYPE_COMPLEX128;
  default:
    return c10::isFloat8Type(type) ? OPENREG_DTYPE_FLOAT8 : OPENREG_DTYPE_BYTES;
  }
}

// Whether NCCL has this data type.
bool nccl_supports(openreg_dtype dtype, bool complex_as_real) {
  switch (dtype) {
  case OPENREG_DTYPE_UINT16:
  case OPENREG_DTYPE_INT16:
  case OPENREG_DTYPE_UINT32:
  case OPENREG_DTYPE_UINT64:
  case OPENREG_DTYPE_BYTES:
    return false;
  case OPENREG_DTYPE_COMPLEX32:
  case OPENREG_DTYPE_COMPLEX64:
  case OPENREG_DTYPE_COMPLEX128:
    return complex_as_real;
  default:
    return true;
  }
}

// The factor is a number, or a tensor that is converted to the device and dtype of `tensor`.
void set_factor(CollectiveArguments &collective, const at::Tensor &tensor,
                const c10d::ReduceOp &reduction, Tensors &kept) {
  const auto *const factor = dynamic_cast<PreMulSumSupplement *>(reduction.supplement_.get());
  TORCH_CHECK_VALUE(factor != nullptr, "ReduceOp.PREMUL_SUM has no factor; create it with "
                                       "torch.distributed._make_nccl_premul_sum");
  if (!factor->tensor_factor.defined()) {
    collective.call.factor = factor->double_factor;
    return;
  }
  kept.push_back(factor->tensor_factor.to(tensor.options()));
  collective.call.factor_address = kept.back().const_data_ptr();
}

} // namespace

// ---- checks -------------------------------------------------------------------------------------

std::string multi_device_error() {
  return std::string("Expecting one tensor only but got multiple. You are probably using multiple "
                     "devices under one thread. The support for such usage has been deprecated. "
                     "For details, please refer to "
                     "https://pytorch.org/docs/stable/distributed.html"
                     "#multi-gpu-collective-functions. ProcessGroup") +
         backend_title() + " continues supporting multi-process and multi-thread modes.";
}

const at::Tensor &single_tensor(const Tensors &tensors) {
  TORCH_CHECK(tensors.size() == 1, multi_device_error());
  return tensors.front();
}

const Tensors &single_list(const TensorLists &lists) {
  TORCH_CHECK(lists.size() == 1, multi_device_error());
  return lists.front();
}

void check_tensor(const at::Tensor &tensor, bool is_message) {
  check_dense(tensor);
  if (tensor.is_contiguous(tensor.suggest_memory_format())) {
    return;
  }
  TORCH_CHECK_VALUE(is_message, "Tensors must be contiguous");
  TORCH_CHECK_VALUE(tensor.is_non_overlapping_and_dense(),
                    "Tensors for P2P must be non-overlapping and dense");
  TORCH_WARN_ONCE("Detected non-contiguous tensor in P2P operations. It is user responsibility to "
                  "guarantee that source and destination tensors have the same contiguity "
                  "format.");
}

void check_same_device(const Tensors &tensors) {
  TORCH_CHECK_VALUE(!tensors.empty(), "Tensor list must be nonempty");
  for (const auto &tensor : tensors) {
    check_dense(tensor);
    TORCH_CHECK_TYPE(tensor.scalar_type() == tensors[0].scalar_type(),
                     "Tensors must have identical type");
    TORCH_CHECK_VALUE(tensor.is_non_overlapping_and_dense(),
                      "Tensors must be non-overlapping and dense");
    TORCH_CHECK_VALUE(tensor.device() == tensors[0].device(),
                      "Expected list of tensors on the same device");
  }
}

void check_list(const Tensors &list, const at::Tensor &like, int size) {
  TORCH_CHECK_VALUE(list.size() == static_cast<size_t>(size), "Expected a list of ", size,
                    " tensors, one for each rank, but got ", list.size());
  for (const auto &tensor : list) {
    check_dense(tensor);
    TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(),
                     "Tensors must have identical type");
    TORCH_CHECK(tensor.device() == like.device(), "Expecting all tensors on the same device");
  }
}

void check_rank(const char *what, int64_t rank, int size) {
  TORCH_CHECK_VALUE(rank >= 0 && rank < size, "ProcessGroup", backend_title(), "::", what,
                    ": invalid rank: ", rank);
}

// ---- parts --------------------------------------------------------------------------------------

openreg_dtype dtype_of(const at::Tensor &tensor, bool complex_as_real) {
  const auto dtype = dtype_of(tensor.scalar_type());
  TORCH_CHECK_TYPE(
      !in_cuda_mode() || nccl_supports(dtype, complex_as_real),
      "Input tensor data type is not supported for NCCL process group: ", tensor.scalar_type());
  return dtype;
}

namespace {

size_t count_of(const at::Tensor &tensor) {
  const auto is_bytes = dtype_of(tensor.scalar_type()) == OPENREG_DTYPE_BYTES;
  return is_bytes ? tensor.nbytes() : static_cast<size_t>(tensor.numel());
}

} // namespace

openreg_comm_buffer input_buffer(const at::Tensor &tensor) {
  return {const_cast<void *>(tensor.const_data_ptr()), count_of(tensor)};
}

openreg_comm_buffer output_buffer(const at::Tensor &tensor) {
  return {tensor.mutable_data_ptr(), count_of(tensor)};
}

Buffers split_rows(openreg_comm_buffer all, const at::Tensor &tensor,
                   const std::vector<int64_t> &rows, int size) {
  if (rows.empty()) {
    return {all};
  }
  const auto row_count = static_cast<size_t>(tensor.size(0));
  const auto elements = row_count == 0 ? 0 : all.count / row_count; // of a row
  const auto bytes = row_count == 0 ? 0 : tensor.nbytes() / row_count;
  Buffers buffers;
  auto *address = static_cast<char *>(all.address);
  for (int rank = 0; rank < size; ++rank) {
    const auto count = static_cast<size_t>(rows[rank]);
    buffers.push_back({address, count * elements});
    address += count * bytes;
  }
  return buffers;
}

// ---- reductions ---------------------------------------------------------------------------------

// NCCL reduces two formats of 8 bits, on GPUs that have arithmetic for them.
void check_float8(const at::Tensor &tensor, openreg_dtype dtype) {
  TORCH_CHECK(dtype != OPENREG_DTYPE_FLOAT8, "Unsupported Float8 type for ", backend_title(),
              " reduction");
  if (dtype == OPENREG_DTYPE_FLOAT8_E4M3 || dtype == OPENREG_DTYPE_FLOAT8_E5M2) {
    openreg_device_properties properties;
    check(openreg_device_get_properties(tensor.device().index(), &properties));
    TORCH_CHECK_WITH(DistBackendError, properties.profile.major >= 9, backend_title(),
                     " error: invalid argument. FP8 reduction support begins with sm90 capable "
                     "devices; ",
                     tensor.device(), " has sm", properties.profile.major, properties.profile.minor,
                     ".");
  }
}

void set_reduction(CollectiveArguments &collective, const char *name, const at::Tensor &tensor,
                   const c10d::ReduceOp &reduction, bool complex_as_real, Tensors &kept) {
  const auto type = reduction.op_;
  const auto dtype = dtype_of(tensor.scalar_type());
  check_float8(tensor, dtype);
  TORCH_CHECK(!tensor.is_complex() || c10d::isComplexViewAsRealAllowed(reduction), name,
              " does not support ", name_of(type), " on complex tensors");
  TORCH_CHECK_VALUE(!in_cuda_mode() || !is_bitwise(type), "Cannot use ReduceOp.", name_of(type),
                    " with NCCL");
  TORCH_CHECK_TYPE(type != c10d::ReduceOp::AVG || dtype != OPENREG_DTYPE_BOOL,
                   "Cannot use ReduceOp.AVG with boolean inputs");
  collective.call.dtype = dtype_of(tensor, complex_as_real);
  collective.call.reduction = reduction_of(type);
  TORCH_CHECK_TYPE(type != c10d::ReduceOp::PREMUL_SUM ||
                       openreg_reduction_is_defined(OPENREG_REDUCE_PREMUL_SUM, dtype),
                   "PreMulSum Data type must be half, float, bfloat16 or double");
  TORCH_CHECK_TYPE(openreg_reduction_is_defined(collective.call.reduction, dtype),
                   "Cannot use ReduceOp.", name_of(type), " with ", tensor.scalar_type(),
                   " inputs");
  if (type == c10d::ReduceOp::PREMUL_SUM) {
    set_factor(collective, tensor, reduction, kept);
  }
}

} // namespace openreg
