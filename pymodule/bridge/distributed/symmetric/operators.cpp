// The operators of torch.ops.symm_mem that CUDA's symmetric memory has, with their arguments,
// checks and error messages. Each is work on the current stream: all ranks meet in a barrier on
// channel 0, read and write each other's buffers, and meet again. Sums are in rank order, in
// float32, and rounded once.

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <atomic>
#include <cstring>
#include <limits>

#include "collectives/collectives.h"
#include "core/registration.h"
#include "distributed/symmetric/launch.h"

namespace openreg {

namespace {

using Views = std::vector<char *>;

void require_sum(const char *name, const std::string &reduction) {
  TORCH_CHECK(reduction == "sum", name, ": only sum is supported for now.");
}

// Requires the alignment that CUDA's kernels need, which read and write words.
void require_alignment(const char *name, const at::Tensor &tensor) {
  const auto least = std::max<int64_t>(4, tensor.element_size());
  const auto begin = tensor.storage_offset() * tensor.element_size();
  TORCH_CHECK(begin % least == 0, name, "<", tensor.scalar_type(),
              ">: input ptr + offset must be at least ", least, "-byte aligned.");
  TORCH_CHECK(tensor.nbytes() % static_cast<size_t>(least) == 0, name, "<", tensor.scalar_type(),
              ">: input size must be at least ", least, "-byte aligned.");
}

openreg_dtype dtype_of(const char *name, const at::Tensor &tensor) {
  if (tensor.scalar_type() == at::kFloat) {
    return OPENREG_DTYPE_FLOAT32;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.scalar_type() == at::kBFloat16, '"', name,
                              "\" not implemented for '", toString(tensor.scalar_type()), "'");
  return OPENREG_DTYPE_BFLOAT16;
}

void require_world_size(int size) {
  TORCH_CHECK(size == 2 || size == 4 || size == 8, "Not implemented for world_size=", size);
}

Views behind(Views views, size_t bytes) {
  for (auto &view : views) {
    view += bytes;
  }
  return views;
}

void sum(const Views &sources, const Views &destinations, openreg_dtype dtype, size_t count) {
  if (count == 0) {
    return;
  }
  const std::vector<const void *> from(sources.begin(), sources.end());
  const std::vector<void *> to(destinations.begin(), destinations.end());
  const openreg_reduction_job job{.reduction = OPENREG_REDUCE_SUM,
                                  .dtype = dtype,
                                  .source_count = static_cast<int>(from.size()),
                                  .destination_count = static_cast<int>(to.size()),
                                  .sources = from.data(),
                                  .destinations = to.data(),
                                  .factors = nullptr,
                                  .divisor = 0,
                                  .count = count};
  openreg_reduce(&job, nullptr, nullptr);
}

char *view_of(const at::Tensor &tensor) {
  return static_cast<char *>(openreg_kernel_view(tensor.data_ptr()));
}

// ---- reductions of all --------------------------------------------------------------------------

// Checks the shapes. `local`, if defined, is copied to the input first.
void require_shapes(const char *name, const at::Tensor &input, const at::Tensor &local,
                    const at::Tensor &out) {
  const auto &shape = local.defined() ? local : input;
  TORCH_CHECK(input.is_contiguous(), name, ": input must be contiguous.");
  TORCH_CHECK(out.is_contiguous(), name, ": output must be contiguous.");
  TORCH_CHECK(out.sizes() == shape.sizes(), name,
              ": input/output size mismatch, input.sizes(): ", shape.sizes(),
              ", output.sizes(): ", out.sizes());
  TORCH_CHECK(out.scalar_type() == input.scalar_type() &&
                  shape.scalar_type() == input.scalar_type(),
              name, ": expected tensors of one dtype, but got ", input.scalar_type(), ", ",
              shape.scalar_type(), " and ", out.scalar_type());
  if (local.defined()) {
    TORCH_CHECK(local.is_contiguous(), name, ": local input must be contiguous.");
    TORCH_CHECK(local.numel() <= input.numel(), name,
                ": local input size must be smaller than symm buffer size.");
  }
}

at::Tensor one_shot(const at::Tensor &input, const at::Tensor &local, const std::string &reduction,
                    const std::string &group, const at::Tensor &out) {
  constexpr auto kName = "one_shot_all_reduce";
  require_shapes(kName, input, local, out);
  require_sum(kName, reduction);
  if (input.numel() == 0) {
    return out;
  }
  const auto location = require_location(kName, input, group);
  require_alignment(kName, input);
  if (local.defined()) {
    require_alignment(kName, local);
  }
  const auto dtype = dtype_of(kName, input);
  const auto sources = location.peers->views_at(location.offset);
  auto *const own = sources[static_cast<size_t>(location.peers->rank)];
  const auto *const copied = local.defined() ? view_of(local) : nullptr;
  const auto count = static_cast<size_t>(out.numel());
  queue_between_barriers(
      *location.peers,
      [=] {
        if (copied != nullptr) {
          std::memcpy(own, copied, count * openreg_dtype_bytes(dtype));
        }
      },
      [=, to = Views{view_of(out)}] { sum(sources, to, dtype, count); });
  return out;
}

at::Tensor one_shot_all_reduce_out(const at::Tensor &input, std::string reduction,
                                   std::string group, at::Tensor out) {
  return one_shot(input, {}, reduction, group, out);
}

at::Tensor one_shot_all_reduce(const at::Tensor &input, std::string reduction, std::string group) {
  return one_shot(input, {}, reduction, group, at::empty_like(input));
}

at::Tensor one_shot_all_reduce_copy_out(const at::Tensor &buffer, const at::Tensor &input,
                                        std::string reduction, std::string group, at::Tensor out) {
  return one_shot(buffer, input, reduction, group, out);
}

at::Tensor one_shot_all_reduce_copy(const at::Tensor &buffer, const at::Tensor &input,
                                    std::string reduction, std::string group) {
  return one_shot(buffer, input, reduction, group, at::empty_like(input));
}

// Each rank sums one chunk and writes the result to all ranks.
at::Tensor two_shot_all_reduce_(at::Tensor input, std::string reduction, std::string group) {
  constexpr auto kName = "two_shot_all_reduce";
  TORCH_CHECK(input.is_contiguous(), kName, ": input must be contiguous.");
  require_sum(kName, reduction);
  const auto location = require_location(kName, input, group);
  require_alignment(kName, input);
  const auto dtype = dtype_of(kName, input);
  const auto bytes = openreg_dtype_bytes(dtype);
  const auto all = static_cast<size_t>(input.numel());
  const auto size = static_cast<size_t>(location.peers->size);
  const auto part = (all + size - 1) / size;
  const auto first = std::min(all, part * static_cast<size_t>(location.peers->rank));
  const auto count = std::min(part, all - first);
  queue_between_barriers(*location.peers,
                         [=, views = location.peers->views_at(location.offset + first * bytes)] {
                           sum(views, views, dtype, count);
                         });
  return input;
}

// CUDA's operator also leaves parts of the sum in the input; that is not documented, and not done
// here.
at::Tensor two_shot_all_reduce_out(at::Tensor input, std::string reduction, std::string group,
                                   at::Tensor out) {
  constexpr auto kName = "two_shot_all_reduce";
  require_shapes(kName, input, {}, out);
  require_sum(kName, reduction);
  const auto location = require_location(kName, input, group);
  require_alignment(kName, input);
  require_alignment(kName, out);
  const auto dtype = dtype_of(kName, input);
  require_world_size(location.peers->size);
  queue_between_barriers(
      *location.peers,
      [=, from = location.peers->views_at(location.offset), to = Views{view_of(out)},
       count = static_cast<size_t>(input.numel())] { sum(from, to, dtype, count); });
  return out;
}

// ---- reductions of parts ------------------------------------------------------------------------

void require_parts(const at::Tensor &input, const at::Tensor &out, bool splits_last, int size) {
  if (!splits_last) {
    TORCH_CHECK(input.dim() == 1, "reduce_scatter expected 1D input");
    TORCH_CHECK(out.dim() == 1, "reduce_scatter expected 1D output");
  } else {
    TORCH_CHECK(input.dim() == out.dim() && input.dim() > 0,
                "reduce_scatter expected input and output to have the same dimensions");
    TORCH_CHECK(input.sizes().slice(0, static_cast<size_t>(input.dim() - 1)) ==
                    out.sizes().slice(0, static_cast<size_t>(out.dim() - 1)),
                "reduce_scatter expected input and output to have same sizes except in the last "
                "dimension");
  }
  TORCH_CHECK(input.size(-1) % size == 0,
              "reduce_scatter expected last dimension to be divisible by world_size, last "
              "dimension ",
              input.size(-1), " world size ", size);
  TORCH_CHECK(
      out.size(-1) == input.size(-1) / size,
      "reduce_scatter expected output last dim size to be input last dim size / world_size");
}

// Reduces this rank's chunk of the last dimension.
at::Tensor reduce_scatter_out(at::Tensor input, std::string group, bool splits_last,
                              at::Tensor out) {
  constexpr auto kName = "reduce_scatter";
  TORCH_CHECK(input.is_contiguous(), kName, ": input must be contiguous.");
  TORCH_CHECK(out.is_contiguous(), kName, ": output must be contiguous.");
  const auto location = require_location(kName, input, group);
  require_alignment(kName, input);
  require_parts(input, out, splits_last, location.peers->size);
  TORCH_CHECK(input.scalar_type() == out.scalar_type(), kName,
              ": expected an output of the input's dtype");
  const auto dtype = dtype_of("two_shot_all_reduce", input);
  require_world_size(location.peers->size);
  const auto part = static_cast<size_t>(out.size(-1));
  const auto width = static_cast<size_t>(input.size(-1));
  const auto rows = part == 0 ? 0 : static_cast<size_t>(out.numel()) / part;
  const auto own = part * static_cast<size_t>(location.peers->rank);
  queue_between_barriers(
      *location.peers, [=, from = location.peers->views_at(location.offset), to = view_of(out)] {
        const auto bytes = openreg_dtype_bytes(dtype);
        for (size_t row = 0; row < rows; ++row) {
          sum(behind(from, (row * width + own) * bytes), {to + row * part * bytes}, dtype, part);
        }
      });
  return out;
}

// ---- multicast, which is not supported ----------------------------------------------------------

at::Tensor refuse_multicast(const char *name, const at::Tensor &tensor, const std::string &group,
                            const char *message) {
  require_location(name, tensor, group);
  TORCH_CHECK(false, name, ": ", message);
}

at::Tensor multimem_all_reduce_(const at::Tensor &input, std::string, std::string group) {
  return refuse_multicast("multimem_all_reduce_", input, group, "multicast support is required.");
}
at::Tensor multimem_one_shot_all_reduce(const at::Tensor &input, std::string, std::string group) {
  return refuse_multicast("multimem_one_shot_all_reduce", input, group,
                          "requires multicast support.");
}
at::Tensor multimem_one_shot_all_reduce_out(const at::Tensor &input, std::string, std::string group,
                                            at::Tensor) {
  return refuse_multicast("multimem_one_shot_all_reduce", input, group,
                          "requires multicast support.");
}
at::Tensor multimem_one_shot_reduce_out(const at::Tensor &input, std::string, int64_t,
                                        std::string group, at::Tensor) {
  return refuse_multicast("multimem_one_shot_reduce", input, group, "requires multicast support.");
}
at::Tensor multimem_all_gather_out(const at::Tensor &, std::string group, at::Tensor out) {
  return refuse_multicast("multimem_all_gather_out", out, group,
                          "output must have multicast support.");
}

// ---- words --------------------------------------------------------------------------------------

at::Tensor write_words(const char *name, const at::Tensor &input, int64_t offset, int64_t value,
                       int64_t count) {
  TORCH_CHECK(input.dim() == 1 && input.is_contiguous() && input.scalar_type() == at::kUInt32,
              "symm_mem::", name, ": input must be a flat, contiguous uint32 tensor.");
  TORCH_CHECK(offset >= 0, "symm_mem::", name, ": offset must be greater than or equal to 0 (got ",
              offset, ")");
  TORCH_CHECK(count > 0, "symm_mem::", name, ": count must be a positive integer (got ", count,
              ")");
  TORCH_CHECK(value >= 0 && value <= std::numeric_limits<uint32_t>::max(), "symm_mem::", name,
              ": val must be in the range of [0, 4294967295] (uint32_t).");
  TORCH_CHECK(offset <= input.numel() - count, "symm_mem::", name, ": offset + count (",
              offset + count, ") exceeded the numel of the input (", input.numel(), ")");
  auto *const words = reinterpret_cast<uint32_t *>(view_of(input)) + offset;
  run_on_stream(input.device().index(), [=] {
    for (int64_t word = 0; word < count; ++word) {
      std::atomic_ref(words[word]).store(static_cast<uint32_t>(value));
    }
  });
  return input;
}

// PyTorch calls these two from C++, with references.
at::Tensor memset32_(at::Tensor &input, int64_t offset, int64_t value, int64_t count) {
  return write_words("memset32_", input, offset, value, count);
}

at::Tensor stream_write_value32_(at::Tensor &input, int64_t offset, int64_t value) {
  return write_words("stream_write_value32_", input, offset, value, 1);
}

// A CPU tensor over the same memory.
at::Tensor host_view(const at::Tensor &tensor) {
  return at::from_blob(view_of(tensor), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

// Computes a @ b after all signals have arrived. Other streams set a signal to 1 when they have
// written a chunk of `a`. All of this is one launch: with two, the host could wait for the second
// one and never send the signals.
at::Tensor async_input_mm(at::Tensor a, at::Tensor b, at::Tensor signals, int64_t pivot) {
  TORCH_CHECK(signals.is_contiguous() && signals.scalar_type() == at::kUInt32,
              "async_input_mm: `a_chunk_signals` must be a contiguous uint32 tensor.");
  const auto count = signals.numel();
  TORCH_CHECK(pivot >= 0 && pivot < count, "async_input_mm: `a_chunk_pivot` must be in [0, ", count,
              "), got ", pivot);
  auto *const words = static_cast<uint32_t *>(signals.data_ptr());
  SignalSequence waits;
  for (int64_t chunk = 0; chunk < count; ++chunk) {
    waits.emplace_back(words + chunk, 1, 1,
                       c10::str("chunk ", chunk, " of the matrix has not arrived"));
  }
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0) &&
                  a.scalar_type() == b.scalar_type(),
              "async_input_mm: expected two matrices of one dtype that can be multiplied, got ",
              a.sizes(), " and ", b.sizes());
  auto out = at::empty({a.size(0), b.size(1)}, a.options());
  const WithoutGil no_gil;
  queue_on_stream(a.device().index(), [waits = std::move(waits), left = host_view(a),
                                       right = host_view(b), to = host_view(out)]() mutable {
    const auto status = wait_for(waits);
    if (status == OPENREG_OK) {
      const at::AutoDispatchBelowAutograd below;
      at::mm_out(to, left, right);
    }
    return status;
  });
  return out;
}

} // namespace

OPENREG_LIBRARY_IMPL(symm_mem, dense, library) {
  library.impl("one_shot_all_reduce", &one_shot_all_reduce);
  library.impl("one_shot_all_reduce_out", &one_shot_all_reduce_out);
  library.impl("one_shot_all_reduce_copy", &one_shot_all_reduce_copy);
  library.impl("one_shot_all_reduce_copy_out", &one_shot_all_reduce_copy_out);
  library.impl("two_shot_all_reduce_", &two_shot_all_reduce_);
  library.impl("two_shot_all_reduce_out", &two_shot_all_reduce_out);
  library.impl("reduce_scatter_out", &reduce_scatter_out);
  library.impl("multimem_all_reduce_", &multimem_all_reduce_);
  library.impl("multimem_one_shot_all_reduce", &multimem_one_shot_all_reduce);
  library.impl("multimem_one_shot_all_reduce_out", &multimem_one_shot_all_reduce_out);
  library.impl("multimem_one_shot_reduce_out", &multimem_one_shot_reduce_out);
  library.impl("multimem_all_gather_out", &multimem_all_gather_out);
  library.impl("memset32_", &memset32_);
  library.impl("stream_write_value32_", &stream_write_value32_);
  library.impl("_async_input_mm", &async_input_mm);
}

} // namespace openreg
