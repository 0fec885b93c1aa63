// Which of several equal elements CUDA's kernels choose.
//
// PyTorch does not define it, and its CPU kernels choose others. But programs see it: in the
// indices of argsort() and topk(), and in the gradients that go to the chosen elements. CUDA's
// kernels are deterministic here, except for median().

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/kernels.h"

namespace openreg {

namespace {

// Rows of at most this many elements are sorted by a bitonic network, which is not stable.
constexpr int64_t kNetwork = 32;
// Rows of more elements have their mode computed by another kernel.
constexpr int64_t kFusedMode = 2048;
// A few rows of this many elements are sorted to find their largest elements.
constexpr int64_t kSortedRow = 100000, kSortedRows = 10;

constexpr int64_t kElementsPerThread = 32768;

using Indices = std::vector<int64_t>;

// Whether x comes before y. NaN is larger than all numbers.
template <class T> bool is_before(T x, T y, bool descending) {
  const bool x_is_nan = x != x, y_is_nan = y != y;
  return descending ? (x_is_nan && !y_is_nan) || x > y : (y_is_nan && !x_is_nan) || x < y;
}

template <class T> bool are_equal(T x, T y) {
  return x == y || (x != x && y != y);
}

// Sorts indices of a row of elements by CUDA's network for 32 elements. Places that are not used
// come last.
template <class T> void sort_by_network(const T *row, Indices &indices, bool descending) {
  struct Place {
    int64_t index;
    bool is_used;
  };
  Place places[kNetwork] = {};
  for (size_t i = 0; i < indices.size(); ++i) {
    places[i] = {indices[i], true};
  }
  const auto pass = [&](int64_t stride, int64_t size) {
    for (int64_t thread = 0; thread < kNetwork / 2; ++thread) {
      auto &first = places[2 * thread - (thread & (stride - 1))];
      auto &second = (&first)[stride];
      const bool is_flipped = (thread & (size / 2)) != 0;
      const bool is_ordered =
          !second.is_used ||
          (first.is_used && is_before(row[first.index], row[second.index], descending));
      if (is_ordered == is_flipped) {
        std::swap(first, second);
      }
    }
  };
  for (int64_t size = 2; size < kNetwork; size *= 2) {
    for (int64_t stride = size / 2; stride > 0; stride /= 2) {
      pass(stride, size);
    }
  }
  for (int64_t stride = kNetwork / 2; stride > 0; stride /= 2) {
    pass(stride, 0);
  }
  for (size_t i = 0; i < indices.size(); ++i) {
    indices[i] = places[i].index;
  }
}

template <class T> void sort_indices(const T *row, Indices &indices, bool descending) {
  if (std::ssize(indices) <= kNetwork) {
    sort_by_network(row, indices, descending);
    return;
  }
  std::ranges::stable_sort(
      indices, [&](int64_t i, int64_t j) { return is_before(row[i], row[j], descending); });
}

// Calls `choose(row, values, chosen)` for each row of `dim`, on several threads. `values` are those
// of PyTorch's kernel. It appends the indices of the elements to choose, or none if PyTorch's
// choice is CUDA's. Writes the chosen elements and their indices to the results.
template <class T, class Choose>
void choose_in_rows(const at::Tensor &self, int64_t dim, const at::Tensor &values,
                    const at::Tensor &indices, const Choose &choose) {
  const auto rows = self.movedim(dim, -1).contiguous();
  const auto length = rows.size(-1);
  auto chosen_values = values.movedim(dim, -1).contiguous();
  auto chosen_indices = indices.movedim(dim, -1).contiguous();
  const auto count = chosen_values.size(-1);
  const auto *elements = rows.const_data_ptr<T>();
  auto *value = chosen_values.mutable_data_ptr<T>();
  auto *index = chosen_indices.mutable_data_ptr<int64_t>();
  at::parallel_for(0, rows.numel() / length, std::max<int64_t>(kElementsPerThread / length, 1),
                   [&](int64_t begin, int64_t end) {
                     Indices chosen;
                     for (int64_t i = begin; i < end; ++i) {
                       const T *row = elements + i * length;
                       chosen.clear();
                       choose(row, value + i * count, chosen);
                       for (size_t j = 0; j < chosen.size(); ++j) {
                         const auto to = i * count + static_cast<int64_t>(j);
                         index[to] = chosen[j];
                         value[to] = row[chosen[j]];
                       }
                     }
                   });
  if (!chosen_values.is_alias_of(values)) {
    values.movedim(dim, -1).copy_(chosen_values);
  }
  if (!chosen_indices.is_alias_of(indices)) {
    indices.movedim(dim, -1).copy_(chosen_indices);
  }
}

// The last in order of k values.
template <class T> T last_of(const T *values, int64_t k, bool largest) {
  return *std::max_element(values, values + k, [&](T x, T y) { return is_before(x, y, largest); });
}

// Appends the indices of the elements before `last`, and then as many equal to it as are missing,
// both as they are in the row. They are at most k, also if another stream, which should have
// waited, writes to the row meanwhile.
template <class T>
void gather_largest(const T *row, int64_t length, T last, bool largest, int64_t k,
                    Indices &chosen) {
  Indices equal;
  for (int64_t i = 0; i < length; ++i) {
    if (is_before(last, row[i], largest)) [[likely]] {
      continue;
    }
    (are_equal(row[i], last) ? equal : chosen).push_back(i);
  }
  equal.resize(
      static_cast<size_t>(std::clamp<int64_t>(k - std::ssize(chosen), 0, std::ssize(equal))));
  chosen.insert(chosen.end(), equal.begin(), equal.end());
  chosen.resize(static_cast<size_t>(std::min(k, std::ssize(chosen))));
}

// The arguments of one call, by name.
class Call {
public:
  Call(const c10::OperatorHandle &op, const torch::jit::Stack &stack)
      : op_(op), first_(stack.size() - op.schema().arguments().size()),
        self_(stack[first_].toTensor()) {
    // The argument, also if a result is written to its memory.
    const auto is_overwritten = [this](const c10::IValue &each) {
      return each.isTensor() && each.toTensor().is_alias_of(self_);
    };
    if (std::any_of(stack.begin() + static_cast<std::ptrdiff_t>(first_) + 1, stack.end(),
                    is_overwritten)) {
      self_ = self_.clone();
    }
  }

  const at::Tensor &self() const { return self_; }
  size_t place(const std::string &name) const {
    return first_ + static_cast<size_t>(*op_.schema().argumentIndexWithName(name));
  }
  int64_t dim(const torch::jit::Stack &stack) const {
    return at::maybe_wrap_dim(stack[place("dim")].toInt(), self_.dim());
  }

private:
  const c10::OperatorHandle &op_;
  size_t first_;
  at::Tensor self_;
};

struct Results {
  explicit Results(const torch::jit::Stack &stack)
      : values(torch::jit::peek(stack, 0, 2).toTensor()),
        indices(torch::jit::peek(stack, 1, 2).toTensor()) {}
  at::Tensor values, indices;
};

// The rows of a dimension; a scalar has one row of one element.
int64_t row_length(const at::Tensor &self, int64_t dim) {
  return self.dim() == 0 ? 1 : self.size(dim);
}

// A result without its dimension, if the operator has removed it.
at::Tensor with_dimension(const at::Tensor &result, const at::Tensor &self, int64_t dim) {
  return result.dim() == self.dim() ? result : result.unsqueeze(dim);
}

// Replaces the index of a chosen element in each row by that of the first equal one.
template <class T> void choose_equal(const at::Tensor &self, int64_t dim, const Results &results) {
  choose_in_rows<T>(self, dim, with_dimension(results.values, self, dim),
                    with_dimension(results.indices, self, dim),
                    [&, length = self.size(dim)](const T *row, const T *value, Indices &chosen) {
                      int64_t i = 0;
                      while (!are_equal(row[i], *value) && i < length - 1) {
                        ++i;
                      }
                      chosen.push_back(i);
                    });
}

uint32_t reverse_bits(uint32_t number, int bits) {
  uint32_t reversed = 0;
  for (int i = 0; i < bits; ++i) {
    reversed = reversed << 1 | (number >> i & 1);
  }
  return reversed;
}

// Where CUDA's reduction puts a place of a row: of equal candidates, that of the smallest rank
// wins. Each thread has two places. A thread combines its result with that of the thread 16, 8, 4,
// 2 and then 1 places further, and so do the results of groups of 32 threads.
uint32_t rank_in_reduction(int64_t place) {
  const auto thread = static_cast<uint32_t>(place / 2);
  return reverse_bits(thread / 32, 5) << 6 | reverse_bits(thread % 32, 5) << 1 |
         static_cast<uint32_t>(place % 2);
}

// Returns the value that CUDA chooses among the most frequent values of a row without NaN. It sorts
// the row, and compares the last places of the values.
template <class T> T most_frequent(const T *row, int64_t length) {
  const auto sorted = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(length));
  std::copy_n(row, length, sorted.get());
  std::sort(sorted.get(), sorted.get() + length);
  int64_t most = 1, best = 0; // if all values are different, it is the first
  for (int64_t begin = 0, end = 0; begin < length; begin = end) {
    while (end < length && sorted[end] == sorted[begin]) {
      ++end;
    }
    const auto last = end - 1, count = end - begin;
    if (count > most ||
        (count == most && most > 1 && rank_in_reduction(last) < rank_in_reduction(best))) {
      most = count;
      best = last;
    }
  }
  return sorted[best];
}

template <class T> void choose_mode(const at::Tensor &self, int64_t dim, const Results &results) {
  choose_in_rows<T>(self, dim, with_dimension(results.values, self, dim),
                    with_dimension(results.indices, self, dim),
                    [length = self.size(dim)](const T *row, const T *, Indices &chosen) {
                      const T mode = most_frequent(row, length);
                      int64_t i = length - 1;
                      while (row[i] != mode && i > 0) {
                        --i;
                      }
                      chosen.push_back(i);
                    });
}

template <class Function> void for_dtype(const at::Tensor &self, const Function &function) {
  AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, self.scalar_type(),
                             "equal_elements", [&] { function(scalar_t{}); });
}

} // namespace

void sort_like_cuda(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const Call call(op, *stack);
  const auto &self = call.self();
  const auto dim = call.dim(*stack);
  const bool descending = (*stack)[call.place("descending")].toBool();
  auto &stable = (*stack)[call.place("stable")];
  const bool is_stable = stable.isBool() && stable.toBool();
  stable = true;
  call_pytorch(op, stack);
  const auto length = row_length(self, dim);
  if (is_stable || length > kNetwork || length <= 1 || self.numel() == 0) {
    return;
  }
  const Results results(*stack);
  for_dtype(self, [&]<class T>(T) {
    choose_in_rows<T>(self, dim, results.values, results.indices,
                      [&](const T *row, const T *values, Indices &chosen) {
                        const auto *end = values + length;
                        if (std::adjacent_find(values, end, &are_equal<T>) == end) {
                          return;
                        }
                        chosen.resize(static_cast<size_t>(length));
                        std::iota(chosen.begin(), chosen.end(), 0);
                        sort_by_network(row, chosen, descending);
                      });
  });
}

void topk_like_cuda(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const Call call(op, *stack);
  const auto &self = call.self();
  const auto dim = call.dim(*stack);
  const auto k = (*stack)[call.place("k")].toInt();
  const bool largest = (*stack)[call.place("largest")].toBool();
  const bool sorted = (*stack)[call.place("sorted")].toBool();
  call_pytorch(op, stack);
  const auto length = row_length(self, dim);
  if (self.numel() == 0 || k == 0 || length <= 1) {
    return;
  }
  const Results results(*stack);
  const bool is_by_sort = length >= kSortedRow && self.numel() / length <= kSortedRows &&
                          self.scalar_type() != at::kBool;
  for_dtype(self, [&]<class T>(T) {
    choose_in_rows<T>(self, dim, results.values, results.indices,
                      [&](const T *row, const T *values, Indices &chosen) {
                        gather_largest(row, length, last_of(values, k, largest), largest, k,
                                       chosen);
                        if (is_by_sort) {
                          std::ranges::stable_sort(chosen, [&](int64_t i, int64_t j) {
                            return is_before(row[i], row[j], largest);
                          });
                        } else if (sorted) {
                          sort_indices(row, chosen, largest);
                        }
                      });
  });
}

void kthvalue_like_cuda(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const Call call(op, *stack);
  const auto dim = call.dim(*stack);
  call_pytorch(op, stack);
  if (call.self().numel() == 0 || call.self().dim() == 0) {
    return;
  }
  const Results results(*stack);
  for_dtype(call.self(), [&]<class T>(T) { choose_equal<T>(call.self(), dim, results); });
}

void mode_like_cuda(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const Call call(op, *stack);
  const auto &self = call.self();
  const auto dim = call.dim(*stack);
  call_pytorch(op, stack);
  // Each NaN is an element of its own. Which of them CUDA chooses is not known.
  if (self.numel() == 0 || self.dim() == 0 ||
      (self.is_floating_point() && self.isnan().any().item<bool>())) {
    return;
  }
  const Results results(*stack);
  const bool is_fused = row_length(self, dim) <= kFusedMode;
  for_dtype(self, [&]<class T>(T) {
    if (is_fused) {
      choose_mode<T>(self, dim, results);
    } else {
      choose_equal<T>(self, dim, results);
    }
  });
}

} // namespace openreg
