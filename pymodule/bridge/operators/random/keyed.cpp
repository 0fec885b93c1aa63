// Random numbers that depend on a key alone (torch.func._random). A key is a pair of uint64 numbers
// in a tensor on the device: a seed and an offset.

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "core/registration.h"
#include "memory/allocation/memory.h"
#include "operators/random/random.h"

namespace openreg {

namespace {

// ---- keys derived from keys ---------------------------------------------------------------------

void check_keys(const at::Tensor &key, const char *name) {
  TORCH_CHECK(key.dim() >= 1 && key.size(-1) == 2, name,
              ": key must have shape (*batch, 2), got shape ", key.sizes());
  TORCH_CHECK(key.scalar_type() == at::kUInt64, name, ": key must have dtype uint64, got ",
              key.scalar_type());
}

// Writes the keys first..first + count - 1 of each key of `from` to `to`: all first ones, then all
// second ones, and so on.
void derive_keys(const at::Tensor &from, const at::Tensor &to, uint64_t first, int64_t count) {
  if (from.numel() == 0) {
    return;
  }
  const auto contiguous = from.contiguous();
  if (skip_kernel({contiguous}, {to})) {
    return;
  }
  const auto *keys = static_cast<const openreg_key *>(kernel_address(contiguous.const_data_ptr()));
  auto *derived = static_cast<openreg_key *>(kernel_address(to.mutable_data_ptr()));
  const auto n = from.numel() / 2;
  draw_on_stream(from.device().index(), static_cast<uint64_t>(n * count), [=] {
    for (int64_t i = 0; i < n * count; ++i) {
      derived[i] = openreg_key_derive(keys[i % n], first + static_cast<uint64_t>(i / n));
    }
  });
}

at::Tensor key_split(const at::Tensor &key, int64_t count) {
  check_keys(key, "_philox_key_split");
  TORCH_CHECK(count > 0, "_philox_key_split: num_splits must be positive, got ", count);
  c10::SmallVector<int64_t, 5> sizes(key.sizes());
  sizes.insert(sizes.begin(), count);
  auto derived = at::empty(sizes, key.options());
  derive_keys(key, derived, 0, count);
  return derived;
}

at::Tensor key_fold_in(const at::Tensor &key, int64_t data) {
  check_keys(key, "_philox_key_fold_in");
  auto derived = at::empty_like(key, at::MemoryFormat::Contiguous);
  derive_keys(key, derived, static_cast<uint64_t>(data), 1);
  return derived;
}

// ---- tensors filled from keys -------------------------------------------------------------------

// Keys and where they are: one for each block of `elements` elements, in the order of the blocks.
// They are read where they lie, with any strides, as on CUDA.
struct Keys {
  const uint64_t *first;
  int64_t elements;
  int64_t offset_stride; // from a key's seed to its offset
  c10::SmallVector<int64_t, 5> sizes;
  c10::SmallVector<int64_t, 5> strides; // 0 where a key serves several blocks

  openreg_key at(int64_t block) const {
    const auto *seed = first;
    for (auto dimension = sizes.size(); dimension-- > 0;) {
      seed += block % sizes[dimension] * strides[dimension];
      block /= sizes[dimension];
    }
    return {.seed = seed[0], .offset = seed[offset_stride]};
  }
};

void check_keys_of(const at::Tensor &self, const at::Tensor &key, const char *name) {
  check_floating(self, name);
  TORCH_CHECK(key.scalar_type() == at::kUInt64, name, ": key must have dtype uint64, got ",
              key.scalar_type());
  TORCH_CHECK(self.device() == key.device(), name,
              ": self and key must be on the same device, got ", self.device(), " and ",
              key.device());
  TORCH_CHECK(key.dim() >= 1 && key.size(-1) == 2, name,
              ": key must have shape (2,) or (*batch, 2), got shape ", key.sizes());
  if (key.dim() > 1) {
    TORCH_CHECK(key.dim() == self.dim() + 1, name,
                ": batched key must have ndim == output ndim + 1, got key shape ", key.sizes(),
                " with output shape ", self.sizes());
    const auto batch = key.sizes().slice(0, self.dim());
    TORCH_CHECK(at::is_expandable_to(batch, self.sizes()), name, ": key batch shape ", batch,
                " is not broadcastable with output shape ", self.sizes());
  }
}

// A key serves the elements of the last dimensions, in which there is one key.
Keys keys_of(const at::Tensor &self, const at::Tensor &key) {
  Keys keys{.first = static_cast<const uint64_t *>(kernel_address(key.const_data_ptr())),
            .elements = 1,
            .offset_stride = key.stride(-1),
            .sizes = {},
            .strides = {}};
  const auto batched = key.dim() - 1;
  auto dimensions = self.dim();
  while (dimensions > 0 && (dimensions > batched || key.size(dimensions - 1) == 1)) {
    keys.elements *= self.size(--dimensions);
  }
  for (int64_t i = 0; i < dimensions; ++i) {
    keys.sizes.push_back(self.size(i));
    keys.strides.push_back(key.size(i) == 1 ? 0 : key.stride(i));
  }
  return keys;
}

// CUDA's kernels write contiguous memory that starts at a multiple of four elements (two of
// float64). For other tensors they take memory and copy.
at::Tensor target_of(const at::Tensor &self) {
  const auto alignment = self.element_size() * (self.scalar_type() == at::kDouble ? 2 : 4);
  auto target = self.contiguous();
  const auto is_aligned =
      reinterpret_cast<uintptr_t>(target.const_data_ptr()) % static_cast<uintptr_t>(alignment) == 0;
  return is_aligned ? target : target.clone();
}

// Where a share of `n` numbers begins: at the first number of a block of words.
uint64_t first_of_share(uint64_t n, uint64_t index, uint64_t count) {
  return index == count ? n : n * index / count / 4 * 4;
}

// Fills a tensor by `draw(type, key, first, count, a, b, elements)`, a function of the generator.
template <class Draw>
at::Tensor &fill_from_keys(at::Tensor &self, const at::Tensor &key, const char *name, Draw draw,
                           double a, double b) {
  check_keys_of(self, key, name);
  if (self.numel() == 0) {
    return self;
  }
  const auto type = random_type(self, name);
  const auto target = target_of(self);
  const auto read = key.dim() == 1 ? key.contiguous() : key; // CUDA's kernel for one key copies it
  if (!skip_kernel({read}, {target})) {
    auto *elements = static_cast<char *>(kernel_address(target.mutable_data_ptr()));
    const auto bytes = static_cast<int64_t>(openreg_type_bytes(type));
    const auto n = self.numel();
    const auto keys = keys_of(self, read);
    draw_on_stream(self.device().index(), static_cast<uint64_t>(n), [=] {
      for (int64_t block = 0; block < n / keys.elements; ++block) {
        const auto of_block = static_cast<uint64_t>(keys.elements);
        auto *to = elements + block * keys.elements * bytes;
        fill_in_shares(of_block, [&, key = keys.at(block)](openreg_share share) {
          const auto first = first_of_share(of_block, share.index, share.count);
          const auto next = first_of_share(of_block, share.index + 1, share.count);
          draw(type, key, first, next - first, a, b, to + static_cast<int64_t>(first) * bytes);
        });
      }
    });
  }
  if (!target.is_same(self)) {
    self.copy_(target);
  }
  return self;
}

at::Tensor &uniform_from_keys_(at::Tensor &self, const at::Tensor &key, double from, double to) {
  return fill_from_keys(self, key, "_philox_uniform_", &openreg_keyed_uniform, from, to);
}

at::Tensor &normal_from_keys_(at::Tensor &self, const at::Tensor &key, double mean, double std) {
  return fill_from_keys(self, key, "_philox_normal_", &openreg_keyed_normal, mean, std);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("_philox_key_split", &key_split);
  library.impl("_philox_key_fold_in", &key_fold_in);
  library.impl("_philox_uniform_", &uniform_from_keys_);
  library.impl("_philox_normal_", &normal_from_keys_);
}

} // namespace openreg
