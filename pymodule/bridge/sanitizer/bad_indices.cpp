#include "sanitizer/bad_indices.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launch/boxed_operator.h"
#include "sanitizer/descriptions.h"
#include "tensor/device_tensor.h"

namespace openreg {

namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// What an operator's indices select.
enum class Indexes {
  kDim,     // (self, dim, index): of that dimension
  kRows,    // (weight, indices): of the first dimension
  kAll,     // (self, index): of all elements
  kEach,    // (self, indices): of one dimension for each index, in order
  kClasses, // (self, target, ..., ignore_index): of the second dimension, or the only one
};

struct IndexKind {
  Indexes indexes;
  bool allows_negative; // negative indices count from the end
};

const IndexKind *index_kind_of(std::string_view name) {
  static const auto &kinds = *new std::unordered_map<std::string_view, IndexKind>{
      {"aten::index_select", {Indexes::kDim, false}},
      {"aten::gather", {Indexes::kDim, false}},
      {"aten::scatter", {Indexes::kDim, false}},
      {"aten::scatter_", {Indexes::kDim, false}},
      {"aten::scatter_add", {Indexes::kDim, false}},
      {"aten::scatter_add_", {Indexes::kDim, false}},
      {"aten::scatter_reduce", {Indexes::kDim, false}},
      {"aten::scatter_reduce_", {Indexes::kDim, false}},
      {"aten::index_add", {Indexes::kDim, false}},
      {"aten::index_add_", {Indexes::kDim, false}},
      {"aten::index_copy", {Indexes::kDim, false}},
      {"aten::index_copy_", {Indexes::kDim, false}},
      {"aten::index_reduce", {Indexes::kDim, false}},
      {"aten::index_reduce_", {Indexes::kDim, false}},
      {"aten::index_fill_", {Indexes::kDim, true}},
      {"aten::embedding", {Indexes::kRows, false}},
      {"aten::_embedding_bag", {Indexes::kRows, false}},
      {"aten::_embedding_bag_forward_only", {Indexes::kRows, false}},
      {"aten::embedding_renorm_", {Indexes::kRows, false}},
      {"aten::take", {Indexes::kAll, true}},
      {"aten::put_", {Indexes::kAll, true}},
      {"aten::index", {Indexes::kEach, true}},
      {"aten::index_put_", {Indexes::kEach, true}},
      {"aten::_index_put_impl_", {Indexes::kEach, true}},
      {"aten::nll_loss_forward", {Indexes::kClasses, false}},
      {"aten::nll_loss2d_forward", {Indexes::kClasses, false}},
  };
  const auto found = kinds.find(name);
  return found == kinds.end() ? nullptr : &found->second;
}

struct BadIndex {
  size_t argument;
  at::Tensor tensor;
  uint64_t address; // the device view, for a tensor on a device
};

struct Range {
  int64_t size;
  bool allows_negative;
  std::optional<int64_t> ignored{};

  bool has(int64_t index) const {
    return (index < size && index >= (allows_negative ? -size : 0)) ||
           (ignored.has_value() && index == *ignored);
  }
};

// Returns the address of an element, by its index in row-major order.
uint64_t address_of(const at::Tensor &tensor, int64_t index) {
  auto offset = tensor.storage_offset();
  for (int64_t dim = tensor.dim(); dim-- > 0; index /= tensor.size(dim)) {
    offset += index % tensor.size(dim) * tensor.stride(dim);
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

std::optional<BadIndex> find_by_schema(const IndexKind &kind, const c10::FunctionSchema &schema,
                                       Arguments arguments) {
  if (arguments.size() < 2 || !arguments[0].isTensor() || !arguments[0].toTensor().defined()) {
    return std::nullopt;
  }
  const auto &self = arguments[0].toTensor();
  switch (kind.indexes) {
  case Indexes::kDim:
    if (arguments.size() > 2 && arguments[1].isInt() && arguments[2].isTensor()) {
      const auto dim = arguments[1].toInt();
      const auto dims = std::max<int64_t>(self.dim(), 1);
      if (dim >= -dims && dim < dims) {
        const auto size = self.dim() == 0 ? 1 : self.size(dim);
        return find(2, arguments[2].toTensor(), {size, kind.allows_negative});
      }
    }
    return std::nullopt;
  case Indexes::kEach:
    return arguments[1].isList() ? find_in_each(self, arguments[1]) : std::nullopt;
  default:
    break;
  }
  if (!arguments[1].isTensor() || self.dim() == 0) {
    return std::nullopt;
  }
  Range range{kind.indexes == Indexes::kAll ? self.numel() : self.size(0), kind.allows_negative};
  if (kind.indexes == Indexes::kClasses) {
    const auto ignored = schema.argumentIndexWithName("ignore_index");
    range.size = self.size(self.dim() > 1 ? 1 : 0);
    if (ignored.has_value() && arguments[static_cast<size_t>(*ignored)].isInt()) {
      range.ignored = arguments[static_cast<size_t>(*ignored)].toInt();
    }
  }
  return find(1, arguments[1].toTensor(), range);
}

class IndexCheck final : public Observer::LaunchObserver {
public:
  IndexCheck(SanitizerSession &session, StreamKey stream, uint64_t index,
             const c10::OperatorHandle &op, Arguments arguments)
      : session_(session), stream_(stream), call_site_(index), op_(op),
        arguments_(arguments.vec()) {}

  void fail() override {
    const ObserverPause pause;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto *kind = index_kind_of(public_name(op_));
    try {
      if (const auto bad = find_by_schema(*kind, op_.schema(), arguments_)) {
        report(*bad);
      }
    } catch (const std::exception &) { // the kernel's own error is reported, and no index caused it
    }
  }

private:
  void report(const BadIndex &bad) const {
    openreg_sanitizer_finding finding{};
    finding.kind = OPENREG_SANITIZER_OUT_OF_BOUNDS;
    finding.second = {.call_site = call_site_,
                      .tag =
                          describe(public_name(op_).c_str(), op_.schema().overload_name().c_str(),
                                   static_cast<int>(bad.argument), bad.tensor),
                      .thread = SanitizerSession::tag_of(stream_),
                      .thread_kind = OPENREG_SANITIZER_STREAM,
                      .mode = OPENREG_SANITIZER_READ,
                      .begin = bad.address,
                      .end = bad.address + bad.tensor.itemsize(),
                      .block = {}};
    if (openreg_sanitizer_block_at(session_.sanitizer(), bad.address, &finding.second.block)) {
      finding.bytes = {finding.second.begin, finding.second.end};
    }
    openreg_sanitizer_report(session_.sanitizer(), &finding);
  }

  SanitizerSession &session_;
  StreamKey stream_;
  uint64_t call_site_;
  c10::OperatorHandle op_;
  std::vector<c10::IValue> arguments_;
};

} // namespace

bool takes_indices(std::string_view name) {
  return index_kind_of(name) != nullptr;
}

std::unique_ptr<Observer::LaunchObserver> watch_indices(SanitizerSession &session, StreamKey stream,
                                                        uint64_t index,
                                                        const c10::OperatorHandle &op,
                                                        Arguments arguments) {
  return std::make_unique<IndexCheck>(session, stream, index, op, arguments);
}

} // namespace openreg
