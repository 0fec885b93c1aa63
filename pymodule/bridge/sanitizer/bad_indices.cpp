#include "sanitizer/bad_indices.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sanitizer/descriptions.h"
#include "tensor/device_tensor.h"

namespace openreg {

namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// Of what indices are.
enum class Of {
  kDim,     // (self, dim, index): of that dimension
  kRows,    // (weight, indices): of the first dimension
  kAll,     // (self, index): of all elements
  kEach,    // (self, indices): each of the list of one dimension, after the other
  kClasses, // (self, target, ..., ignore_index): of the second dimension, or the only one
};

struct Kind {
  Of of;
  bool is_from_end; // negative ones count from there
};

const Kind *kind_of(std::string_view name) {
  static const auto &kinds = *new std::unordered_map<std::string_view, Kind>{
      {"aten::index_select", {Of::kDim, false}},
      {"aten::gather", {Of::kDim, false}},
      {"aten::scatter", {Of::kDim, false}},
      {"aten::scatter_", {Of::kDim, false}},
      {"aten::scatter_add", {Of::kDim, false}},
      {"aten::scatter_add_", {Of::kDim, false}},
      {"aten::scatter_reduce", {Of::kDim, false}},
      {"aten::scatter_reduce_", {Of::kDim, false}},
      {"aten::index_add", {Of::kDim, false}},
      {"aten::index_add_", {Of::kDim, false}},
      {"aten::index_copy", {Of::kDim, false}},
      {"aten::index_copy_", {Of::kDim, false}},
      {"aten::index_reduce", {Of::kDim, false}},
      {"aten::index_reduce_", {Of::kDim, false}},
      {"aten::index_fill_", {Of::kDim, true}},
      {"aten::embedding", {Of::kRows, false}},
      {"aten::_embedding_bag", {Of::kRows, false}},
      {"aten::_embedding_bag_forward_only", {Of::kRows, false}},
      {"aten::embedding_renorm_", {Of::kRows, false}},
      {"aten::take", {Of::kAll, true}},
      {"aten::put_", {Of::kAll, true}},
      {"aten::index", {Of::kEach, true}},
      {"aten::index_put_", {Of::kEach, true}},
      {"aten::_index_put_impl_", {Of::kEach, true}},
      {"aten::nll_loss_forward", {Of::kClasses, false}},
      {"aten::nll_loss2d_forward", {Of::kClasses, false}},
  };
  const auto found = kinds.find(name);
  return found == kinds.end() ? nullptr : &found->second;
}

struct BadIndex {
  size_t argument;
  at::Tensor tensor;
  uint64_t address; // as a device's, if it is one
};

struct Range {
  int64_t size;
  bool is_from_end;
  std::optional<int64_t> ignored{};

  bool has(int64_t index) const {
    return (index < size && index >= (is_from_end ? -size : 0)) ||
           (ignored.has_value() && index == *ignored);
  }
};

// Of an element, by its place among all.
uint64_t address_of(const at::Tensor &tensor, int64_t place) {
  auto offset = tensor.storage_offset();
  for (int64_t dim = tensor.dim(); dim-- > 0; place /= tensor.size(dim)) {
    offset += place % tensor.size(dim) * tensor.stride(dim);
  }
  const auto base = reinterpret_cast<uint64_t>(openreg_device_view(tensor.storage().data()));
  return base + static_cast<uint64_t>(offset) * tensor.itemsize();
}

bool is_index(const at::Tensor &tensor) {
  return tensor.defined() && c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false) &&
         tensor.layout() == c10::kStrided;
}

std::optional<BadIndex> find(size_t argument, const at::Tensor &tensor, const Range &range) {
  if (!is_index(tensor) || tensor.numel() == 0) {
    return std::nullopt;
  }
  const auto twin = tensor.is_cpu() ? tensor : twin_of(tensor);
  const auto numbers = twin.to(at::kLong).contiguous();
  const auto *const first = numbers.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    if (!range.has(first[i])) {
      return BadIndex{argument, tensor, address_of(twin, i)};
    }
  }
  return std::nullopt;
}

std::optional<BadIndex> find_in_each(const at::Tensor &self, const c10::IValue &indices) {
  int64_t dim = 0;
  for (const auto &value : indices.toListRef()) {
    const auto index = value.isTensor() ? value.toTensor() : at::Tensor();
    const bool is_mask =
        index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
    if (!is_mask && dim < self.dim()) {
      if (auto bad = find(1, index, {self.size(dim), true})) {
        return bad;
      }
    }
    dim += is_mask ? index.dim() : 1;
  }
  return std::nullopt;
}

std::optional<BadIndex> find_by_schema(const Kind &kind, const c10::FunctionSchema &schema,
                                       Arguments arguments) {
  if (arguments.size() < 2 || !arguments[0].isTensor() || !arguments[0].toTensor().defined()) {
    return std::nullopt;
  }
  const auto &self = arguments[0].toTensor();
  switch (kind.of) {
  case Of::kDim:
    if (arguments.size() > 2 && arguments[1].isInt() && arguments[2].isTensor()) {
      const auto dim = arguments[1].toInt();
      const auto dims = std::max<int64_t>(self.dim(), 1);
      if (dim >= -dims && dim < dims) {
        const auto size = self.dim() == 0 ? 1 : self.size(dim);
        return find(2, arguments[2].toTensor(), {size, kind.is_from_end});
      }
    }
    return std::nullopt;
  case Of::kEach:
    return arguments[1].isList() ? find_in_each(self, arguments[1]) : std::nullopt;
  default:
    break;
  }
  if (!arguments[1].isTensor() || self.dim() == 0) {
    return std::nullopt;
  }
  Range range{kind.of == Of::kAll ? self.numel() : self.size(0), kind.is_from_end};
  if (kind.of == Of::kClasses) {
    const auto ignored = schema.argumentIndexWithName("ignore_index");
    range.size = self.size(self.dim() > 1 ? 1 : 0);
    if (ignored.has_value() && arguments[static_cast<size_t>(*ignored)].isInt()) {
      range.ignored = arguments[static_cast<size_t>(*ignored)].toInt();
    }
  }
  return find(1, arguments[1].toTensor(), range);
}

class WatchedIndices final : public Watcher::Queued {
public:
  WatchedIndices(ToldOrder &order, Queue queue, uint64_t place, const c10::OperatorHandle &op,
                 Arguments arguments)
      : order_(order), queue_(queue), place_(place), op_(op), arguments_(arguments.vec()) {}

  void fail() override {
    const Unwatched unwatched;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto *kind = kind_of(op_.schema().name());
    try {
      if (const auto bad = find_by_schema(*kind, op_.schema(), arguments_)) {
        report(*bad);
      }
    } catch (const std::exception &) { // the kernel's error is told, and it is no index's
    }
  }

private:
  void report(const BadIndex &bad) const {
    openreg_sanitizer_finding finding{};
    finding.kind = OPENREG_SANITIZER_OUT_OF_BOUNDS;
    finding.second = {.site = place_,
                      .tag = describe(op_.schema().name().c_str(),
                                      op_.schema().overload_name().c_str(),
                                      static_cast<int>(bad.argument), bad.tensor),
                      .actor = ToldOrder::tag_of(queue_),
                      .actor_kind = OPENREG_SANITIZER_STREAM,
                      .mode = OPENREG_SANITIZER_READ,
                      .begin = bad.address,
                      .end = bad.address + bad.tensor.itemsize(),
                      .block = {}};
    if (openreg_sanitizer_block_at(order_.layer(), bad.address, &finding.second.block)) {
      finding.bytes = {finding.second.begin, finding.second.end};
    }
    openreg_sanitizer_report(order_.layer(), &finding);
  }

  ToldOrder &order_;
  Queue queue_;
  uint64_t place_;
  c10::OperatorHandle op_;
  std::vector<c10::IValue> arguments_;
};

} // namespace

bool takes_indices(std::string_view name) {
  return kind_of(name) != nullptr;
}

std::unique_ptr<Watcher::Queued> watch_indices(ToldOrder &order, Queue queue, uint64_t place,
                                               const c10::OperatorHandle &op, Arguments arguments) {
  return std::make_unique<WatchedIndices>(order, queue, place, op, arguments);
}

} // namespace openreg
