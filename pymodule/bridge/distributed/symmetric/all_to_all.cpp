// All-to-all operators of torch.ops.symm_mem that read from device tensors how many rows go where,
// so the host waits for nothing. In PyTorch NVSHMEM provides them.
//
// A rank's input has a split, a number of rows, for each rank and expert: ordered by ranks and then
// experts, or the other way round. The output has the opposite order. A rank reads its splits from
// the inputs of all ranks.

#include <cstring>

#include "core/registration.h"
#include "distributed/symmetric/launch.h"

namespace openreg {

namespace {

template <class Value> Value *view_of(const at::Tensor &tensor) {
  return static_cast<Value *>(openreg_kernel_view(tensor.data_ptr()));
}

struct Exchange {
  int64_t rank, ranks, experts;
  bool ranks_first;                 // order of the input
  bool has_offsets;                 // the input gives offsets; otherwise splits follow each other
  int64_t align;                    // of each expert's rows in the output; 0: none
  std::vector<const char *> inputs; // by rank
  std::vector<const int64_t *> in_splits; // by rank; offsets follow if has_offsets
  char *out;
  int64_t *out_splits, *out_offsets;
  size_t row_bytes;
  int64_t input_rows, output_rows;

  openreg_status operator()() const;

private:
  int64_t majors() const { return ranks_first ? experts : ranks; } // outer order of the output
  int64_t minors() const { return ranks_first ? ranks : experts; }
  int64_t index_in(int64_t peer, int64_t expert) const {
    return ranks_first ? peer * experts + expert : expert * ranks + peer;
  }
  int64_t offset_in(const int64_t *splits, int64_t index) const;
  int64_t round_up(int64_t rows) const;
};

int64_t Exchange::offset_in(const int64_t *splits, int64_t index) const {
  if (has_offsets) {
    return splits[ranks * experts + index];
  }
  int64_t offset = 0;
  for (int64_t before = 0; before < index; ++before) {
    offset += splits[before];
  }
  return offset;
}

// Pads an empty expert to one alignment unit, because kernels cannot handle an empty one.
int64_t Exchange::round_up(int64_t rows) const {
  return align == 0 ? rows : std::max((rows + align - 1) / align * align, align);
}

openreg_status Exchange::operator()() const {
  int64_t begin = 0;
  for (int64_t major = 0; major < majors(); ++major) {
    auto end = begin;
    for (int64_t minor = 0; minor < minors(); ++minor) {
      const auto peer = ranks_first ? minor : major, expert = ranks_first ? major : minor;
      const auto *const splits = in_splits[static_cast<size_t>(peer)];
      const auto index = index_in(rank, expert);
      const auto rows = splits[index], from = offset_in(splits, index);
      if (rows < 0 || from < 0 || from > input_rows - rows || end > output_rows - rows) {
        return openreg_fail(OPENREG_INVALID_ARGUMENT,
                            "openreg: symmetric memory: rank %d sends %lld rows from row %lld of "
                            "%lld to row %lld of %lld",
                            static_cast<int>(peer), static_cast<long long>(rows),
                            static_cast<long long>(from), static_cast<long long>(input_rows),
                            static_cast<long long>(end), static_cast<long long>(output_rows));
      }
      std::memcpy(out + static_cast<size_t>(end) * row_bytes,
                  inputs[static_cast<size_t>(peer)] + static_cast<size_t>(from) * row_bytes,
                  static_cast<size_t>(rows) * row_bytes);
      out_splits[major * minors() + minor] = rows;
      out_offsets[major * minors() + minor] = end;
      end += rows;
    }
    begin += round_up(end - begin);
  }
  return OPENREG_OK;
}

void require_tensors(const char *name, const at::Tensor &input, const at::Tensor &out,
                     const at::Tensor &in_splits, const at::Tensor &out_splits) {
  for (const auto &tensor : {input, out, in_splits, out_splits}) {
    TORCH_CHECK(tensor.is_contiguous(), name,
                ": input, out, splits and offsets must be contiguous");
    TORCH_CHECK(tensor.device() == input.device(), name,
                ": all tensor arguments must be on the same device");
  }
  TORCH_CHECK(input.dim() > 0 && out.dim() > 0 && input.scalar_type() == out.scalar_type() &&
                  input.stride(0) == out.stride(0),
              name, ": input and out must have the same dtype and same stride at dim 0");
  TORCH_CHECK(in_splits.scalar_type() == at::kLong && out_splits.scalar_type() == at::kLong, name,
              ": splits and offsets must be int64");
}

void exchange(const char *name, const at::Tensor &input, const at::Tensor &out,
              const at::Tensor &in_splits, const at::Tensor &out_splits, const std::string &group,
              bool ranks_first, bool has_offsets, int64_t align) {
  require_tensors(name, input, out, in_splits, out_splits);
  const auto location = require_location(name, input, group);
  require_location(name, out, group);
  const auto splits = require_location(name, in_splits, group);
  require_location(name, out_splits, group);
  const auto &peers = *location.peers;
  const auto count = in_splits.size(-1);
  TORCH_CHECK(in_splits.dim() == (has_offsets ? 2 : 1) &&
                  in_splits.numel() == (has_offsets ? 2 : 1) * count && out_splits.dim() == 2 &&
                  out_splits.size(0) == 2 && out_splits.size(1) == count && count % peers.size == 0,
              name,
              ": splits and offsets must be 2 rows, or 1 without offsets, each a multiple of "
              "world_size: got ",
              in_splits.sizes(), " and ", out_splits.sizes(), " for ", peers.size, " ranks");
  Exchange work{.rank = peers.rank,
                .ranks = peers.size,
                .experts = count / peers.size,
                .ranks_first = ranks_first,
                .has_offsets = has_offsets,
                .align = align,
                .inputs = {},
                .in_splits = {},
                .out = view_of<char>(out),
                .out_splits = view_of<int64_t>(out_splits),
                .out_offsets = view_of<int64_t>(out_splits) + count,
                .row_bytes = static_cast<size_t>(input.stride(0)) * input.element_size(),
                .input_rows = input.size(0),
                .output_rows = out.size(0)};
  for (const auto *view : peers.views_at(location.offset)) {
    work.inputs.push_back(view);
  }
  for (const auto *view : splits.peers->views_at(splits.offset)) {
    work.in_splits.push_back(reinterpret_cast<const int64_t *>(view));
  }
  queue_between_barriers(peers, std::move(work));
}

void all_to_all_vdev(at::Tensor &input, at::Tensor &out, at::Tensor &in_splits,
                     at::Tensor &out_splits, std::string group) {
  exchange("all_to_all_vdev", input, out, in_splits, out_splits, group, /*ranks_first=*/true,
           /*has_offsets=*/false, /*align=*/0);
}

void all_to_all_vdev_2d(at::Tensor &input, at::Tensor &out, at::Tensor &in_splits,
                        at::Tensor &out_splits, std::string group, std::optional<int64_t> align) {
  TORCH_CHECK(align.value_or(1) > 0, "major_align must be positive");
  exchange("all_to_all_vdev_2d", input, out, in_splits, out_splits, group, /*ranks_first=*/true,
           /*has_offsets=*/false, align.value_or(1));
}

void all_to_all_vdev_2d_offset(at::Tensor &input, at::Tensor &out, at::Tensor &in_splits,
                               at::Tensor &out_splits, std::string group) {
  exchange("all_to_all_vdev_2d_offset", input, out, in_splits, out_splits, group,
           /*ranks_first=*/false, /*has_offsets=*/true, /*align=*/0);
}

} // namespace

OPENREG_LIBRARY_IMPL(symm_mem, dense, library) {
  library.impl("all_to_all_vdev", &all_to_all_vdev);
  library.impl("all_to_all_vdev_2d", &all_to_all_vdev_2d);
  library.impl("all_to_all_vdev_2d_offset", &all_to_all_vdev_2d_offset);
}

} // namespace openreg
