#include "launch/output_plan.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "launch/launch_device.h"
#include "tensor/composite.h"

namespace openreg {

namespace {

// Programs whose shapes never repeat would fill the memory with forecasts. Of one operator there
// are at most twice as many, some 600 bytes each.
constexpr size_t kForecastsOfAGeneration = 1024;

template <class T> void append(Forecasts::Key &key, const T &value) {
  static_assert(std::is_trivially_copyable_v<T>);
  key.append(reinterpret_cast<const char *>(&value), sizeof value);
}

void append_all(Forecasts::Key &key, c10::IntArrayRef values) {
  append(key, static_cast<uint32_t>(values.size()));
  key.append(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(int64_t));
}

using Tensors = c10::SmallVector<const c10::TensorImpl *, 8>;

// Which tensors share memory, and how far apart they begin in it, decides whether a kernel refuses
// to write to them.
void append_sharing(Forecasts::Key &key, const c10::TensorImpl &tensor, Tensors &before) {
  const auto *const found = std::ranges::find_if(before, [&](const auto *other) {
    return other->unsafe_storage().unsafeGetStorageImpl() ==
           tensor.unsafe_storage().unsafeGetStorageImpl();
  });
  append(key, found - before.begin());
  if (found != before.end()) {
    append(key, tensor.storage_offset() - (*found)->storage_offset());
  }
  before.push_back(&tensor);
}

bool append_tensor(Forecasts::Key &key, const at::Tensor &tensor, Tensors &before) {
  if (!tensor.defined()) {
    append(key, 'u');
    return true;
  }
  const auto *impl = tensor.unsafeGetTensorImpl();
  if (!impl->has_storage() || impl->layout() != c10::kStrided) {
    return false;
  }
  append(key, impl->is_wrapped_number() ? 'w' : 't');
  append(key, tensor.scalar_type());
  append(key, impl->key_set().raw_repr()); // lazy marks, inference
  append_all(key, impl->sizes());
  append_all(key, impl->strides());
  append_sharing(key, *impl, before);
  return true;
}

bool append_value(Forecasts::Key &key, const c10::IValue &value, Tensors &before) {
  if (value.isTensor()) {
    return append_tensor(key, value.toTensor(), before);
  }
  if (value.isNone()) {
    append(key, 'n');
  } else if (value.isInt()) {
    append(key, 'i');
    append(key, value.toInt());
  } else if (value.isDouble()) {
    append(key, 'd');
    append(key, value.toDouble());
  } else if (value.isBool()) {
    append(key, value.toBool() ? 'y' : 'x');
  } else if (value.isComplexDouble()) {
    append(key, 'c');
    append(key, value.toComplexDouble());
  } else if (value.isString()) {
    append(key, 's');
    append(key, value.toStringRef().size());
    key.append(value.toStringRef());
  } else if (value.isDevice()) {
    append(key, 'v');
  } else if (value.isList()) {
    const auto list = value.toListRef();
    append(key, 'l');
    append(key, list.size());
    return std::ranges::all_of(list,
                               [&](const auto &each) { return append_value(key, each, before); });
  } else {
    return false;
  }
  return true;
}

// Where kernels draw lines between numbers that they take and numbers that they refuse, or compute
// with in another way.
char kind_of(double number) {
  if (std::isnan(number) || std::isinf(number)) {
    return std::isnan(number) ? 'N' : number > 0 ? 'I' : 'J';
  }
  if (number == 0 || number == 1 || number == 2) {
    return static_cast<char>('0' + static_cast<int>(number));
  }
  return number < 0 ? '-' : number < 1 ? '<' : '>';
}

bool append_number(Forecasts::Key &key, const c10::IValue &value, Tensors &before) {
  if (value.isDouble()) {
    append(key, 'D');
    append(key, kind_of(value.toDouble()));
  } else if (value.isInt()) {
    append(key, 'I');
    append(key, kind_of(static_cast<double>(value.toInt())));
  } else {
    return append_value(key, value, before);
  }
  return true;
}

// ---- learning -----------------------------------------------------------------------------------

// False when the next result cannot be made before the kernel has run.
bool expect_result(const at::Tensor &result, c10::ArrayRef<Exchanged> exchanged,
                   const Allocations &allocations, ExpectedTensor &expected) {
  if (!result.defined()) {
    return true;
  }
  const auto *impl = result.unsafeGetTensorImpl();
  for (size_t i = 0; i < exchanged.size(); ++i) {
    if (exchanged[i].twin.unsafeGetTensorImpl() == impl) {
      expected.kind = ExpectedTensor::Kind::kArgument;
      expected.argument = i;
      return true;
    }
  }
  if (is_composite(result) || result.is_conj() || result.is_neg() || result._is_zerotensor() ||
      result.storage_offset() != 0) {
    return false;
  }
  expected.dtype = result.scalar_type();
  expected.sizes = result.sizes();
  expected.strides = result.strides();
  if (result.storage().nbytes() == 0 && result.storage().data() == nullptr) {
    expected.kind = ExpectedTensor::Kind::kEmpty;
    return true;
  }
  if (!is_fresh(result)) {
    return false;
  }
  // Memory that the kernel freed may have been allocated again: the last one at the address counts.
  const auto &list = allocations.list;
  const auto found = std::ranges::find(list.rbegin(), list.rend(), result.storage().data(),
                                       &Allocation::kernel_address);
  if (found == list.rend() || found->bytes != result.storage().nbytes()) {
    return false;
  }
  expected.kind = ExpectedTensor::Kind::kFresh;
  // Libraries that allocate raw memory keep some of it: the order of allocations is not the same
  // again, and what is reserved might be kept.
  const auto of_its_size = std::ranges::count(list, found->bytes, &Allocation::bytes);
  if (!allocations.has_raw) {
    expected.allocation = {WhichAllocation::Kind::kNth,
                           static_cast<size_t>(list.rend() - found - 1)};
  } else if (of_its_size == 1) {
    expected.allocation = {WhichAllocation::Kind::kFirstOfItsSize};
  }
  expected.bytes = found->bytes;
  return true;
}

// A kernel that allocates more often has its temporary memory on the host when it is queued.
constexpr size_t kMostAllocations = 64;

void expect_temporaries(const Allocations &allocations, Forecast &forecast) {
  const auto &list = allocations.list;
  if (allocations.has_raw || list.size() > kMostAllocations) {
    return;
  }
  for (size_t n = 0; n < list.size(); ++n) {
    if (list[n].is_freed) {
      forecast.temporaries.push_back({{WhichAllocation::Kind::kNth, n}, list[n].bytes});
    }
  }
}

bool is_unchanged(const Exchanged &each) {
  return !each.written || (each.tensor.sizes() == each.twin.sizes() &&
                           each.tensor.strides() == each.twin.strides() &&
                           each.tensor.is_conj() == each.twin.is_conj() &&
                           each.tensor.is_neg() == each.twin.is_neg() &&
                           !is_redirected(each.twin.storage().data_ptr()));
}

// Results that share memory with each other need more than each one's forecast.
bool all_differ(const std::vector<ExpectedReturn> &returns) {
  std::vector<size_t> allocations;
  for (const auto &each : returns) {
    for (const auto &tensor : each.tensors) {
      if (tensor.kind == ExpectedTensor::Kind::kFresh &&
          tensor.allocation.kind == WhichAllocation::Kind::kNth) {
        allocations.push_back(tensor.allocation.n);
      }
    }
  }
  std::ranges::sort(allocations);
  return std::ranges::adjacent_find(allocations) == allocations.end();
}

} // namespace

bool Forecasts::matters_by_value(const c10::Argument &argument) {
  auto type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  return type->kind() != c10::TypeKind::NumberType && type->kind() != c10::TypeKind::FloatType;
}

bool Forecasts::make_key(const torch::jit::Stack &stack, const std::vector<bool> &by_value,
                         Key &key) {
  key.reserve(64 * by_value.size());
  Tensors before;
  append(key, c10::get_default_dtype_as_scalartype());
  append(key, at::globalContext().deterministicAlgorithms());
  append(key, c10::GradMode::is_enabled()); // some kernels keep what a backward will need
  auto value = stack.end() - static_cast<std::ptrdiff_t>(by_value.size());
  return std::ranges::all_of(by_value, [&](bool whole) {
    const auto &each = *value++;
    return whole ? append_value(key, each, before) : append_number(key, each, before);
  });
}

std::shared_ptr<Forecast> Forecasts::find(const Key &key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = young_.find(key); found != young_.end()) {
    return found->second;
  }
  const auto found = old_.find(key);
  if (found == old_.end()) {
    return nullptr;
  }
  auto forecast = found->second;
  add_locked(key, forecast);
  return forecast;
}

void Forecasts::learn(Key key, std::shared_ptr<Forecast> forecast) {
  const std::lock_guard<std::mutex> lock(mutex_);
  add_locked(std::move(key), std::move(forecast));
}

void Forecasts::add_locked(Key key, std::shared_ptr<Forecast> forecast) {
  if (young_.size() >= kForecastsOfAGeneration) {
    old_ = std::exchange(young_, {});
  }
  young_.insert_or_assign(std::move(key), std::move(forecast));
}

std::shared_ptr<Forecast> make_forecast(const torch::jit::Stack &stack, size_t returns,
                                        c10::ArrayRef<Exchanged> exchanged,
                                        const Allocations &allocations) {
  auto forecast = std::make_shared<Forecast>();
  bool can_be_queued = std::ranges::all_of(exchanged, &is_unchanged);
  for (auto value = stack.end() - static_cast<std::ptrdiff_t>(returns); value != stack.end();
       ++value) {
    auto &expected = forecast->returns.emplace_back();
    expected.is_list = value->isTensorList();
    if (!expected.is_list && !value->isTensor()) {
      return forecast;
    }
    for (const auto &tensor :
         expected.is_list ? value->toTensorVector() : std::vector<at::Tensor>{value->toTensor()}) {
      can_be_queued &=
          expect_result(tensor, exchanged, allocations, expected.tensors.emplace_back());
    }
  }
  forecast->can_be_queued = can_be_queued && all_differ(forecast->returns);
  if (forecast->can_be_queued) {
    expect_temporaries(allocations, *forecast);
  }
  return forecast;
}

} // namespace openreg
