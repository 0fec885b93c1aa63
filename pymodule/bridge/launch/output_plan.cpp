#include "launch/output_plan.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "launch/argument_devices.h"
#include "tensor/composite.h"

namespace openreg {

namespace {

// A limit for programs whose shapes never repeat. One operator keeps at most two generations of
// plans, about 600 bytes each.
constexpr size_t kPlansPerGeneration = 1024;

template <class T> void append(OutputPlans::Key &key, const T &value) {
  static_assert(std::is_trivially_copyable_v<T>);
  key.append(reinterpret_cast<const char *>(&value), sizeof value);
}

void append_all(OutputPlans::Key &key, c10::IntArrayRef values) {
  append(key, static_cast<uint32_t>(values.size()));
  key.append(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(int64_t));
}

using Tensors = c10::SmallVector<const c10::TensorImpl *, 8>;

// Kernels refuse to write to some overlapping tensors. So the key says which tensors share memory,
// and at what distance.
void append_sharing(OutputPlans::Key &key, const c10::TensorImpl &tensor, Tensors &before) {
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

bool append_tensor(OutputPlans::Key &key, const at::Tensor &tensor, Tensors &before) {
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
  append(key, impl->key_set().raw_repr()); // conjugate and negative bits, inference mode
  append_all(key, impl->sizes());
  append_all(key, impl->strides());
  append_sharing(key, *impl, before);
  return true;
}

bool append_value(OutputPlans::Key &key, const c10::IValue &value, Tensors &before) {
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

// The class of a number. Kernels reject numbers, or choose another algorithm, at these boundaries.
char class_of(double number) {
  if (std::isnan(number) || std::isinf(number)) {
    return std::isnan(number) ? 'N' : number > 0 ? 'I' : 'J';
  }
  if (number == 0 || number == 1 || number == 2) {
    return static_cast<char>('0' + static_cast<int>(number));
  }
  return number < 0 ? '-' : number < 1 ? '<' : '>';
}

bool append_number(OutputPlans::Key &key, const c10::IValue &value, Tensors &before) {
  if (value.isDouble()) {
    append(key, 'D');
    append(key, class_of(value.toDouble()));
  } else if (value.isInt()) {
    append(key, 'I');
    append(key, class_of(static_cast<double>(value.toInt())));
  } else {
    return append_value(key, value, before);
  }
  return true;
}

// ---- learning -----------------------------------------------------------------------------------

// Returns false if such a result cannot be made before the kernel runs.
bool plan_result(const at::Tensor &result, c10::ArrayRef<Substituted> substituted,
                 const Allocations &allocations, PlannedTensor &planned) {
  if (!result.defined()) {
    return true;
  }
  const auto *impl = result.unsafeGetTensorImpl();
  for (size_t i = 0; i < substituted.size(); ++i) {
    if (substituted[i].twin.unsafeGetTensorImpl() == impl) {
      planned.kind = PlannedTensor::Kind::kArgument;
      planned.argument = i;
      return true;
    }
  }
  if (is_composite(result) || result.is_conj() || result.is_neg() || result._is_zerotensor() ||
      result.storage_offset() != 0) {
    return false;
  }
  planned.dtype = result.scalar_type();
  planned.sizes = result.sizes();
  planned.strides = result.strides();
  if (result.storage().nbytes() == 0 && result.storage().data() == nullptr) {
    planned.kind = PlannedTensor::Kind::kEmpty;
    return true;
  }
  // The kernel may have freed memory and got the same address again: the last allocation counts.
  const auto &list = allocations.list;
  const auto found = std::ranges::find(list.rbegin(), list.rend(), result.storage().data(),
                                       &Allocation::kernel_address);
  if (found == list.rend() || found->bytes != result.storage().nbytes()) {
    return false;
  }
  planned.kind = PlannedTensor::Kind::kFresh;
  // A library that allocates raw memory may cache it. Then the order of allocations changes between
  // runs, and the library could keep a reserved block.
  const auto of_same_size = std::ranges::count(list, found->bytes, &Allocation::bytes);
  if (!allocations.has_raw) {
    planned.allocation = {AllocationIndex::Kind::kNth,
                          static_cast<size_t>(list.rend() - found - 1)};
  } else if (of_same_size == 1) {
    planned.allocation = {AllocationIndex::Kind::kFirstOfItsSize};
  }
  planned.bytes = found->bytes;
  return true;
}

Placement placement_of(const OutputPlan &plan) {
  Placement placement;
  for (const auto *tensor : plan.fresh_results()) {
    const auto &[kind, n] = tensor->allocation;
    if (kind == AllocationIndex::Kind::kNth && n < Placement::kMaxNth) {
      placement.nth |= int64_t{1} << n;
    } else if (kind == AllocationIndex::Kind::kFirstOfItsSize) {
      placement.of_bytes = tensor->bytes; // of several results the last one
    }
  }
  return placement;
}

// The events of a kernel that ran. Blocks that it neither returned nor freed are left out.
std::vector<MemoryEvent> events_of(const OutputPlan &plan, const Allocations &allocations) {
  std::unordered_map<size_t, size_t> results, taken; // by allocation
  for (const auto *tensor : plan.fresh_results()) {
    if (tensor->allocation.kind != AllocationIndex::Kind::kNth) {
      return {};
    }
    results.emplace(tensor->allocation.n, results.size());
  }
  std::vector<MemoryEvent> events;
  for (const auto each : allocations.order) {
    const auto n = static_cast<size_t>(std::abs(each) - 1);
    const auto &allocation = allocations.list[n];
    if (each < 0) {
      events.push_back({MemoryEvent::Kind::kFree, taken.at(n)});
    } else if (const auto found = results.find(n); found != results.end()) {
      events.push_back({MemoryEvent::Kind::kResult, found->second});
    } else if (allocation.is_freed) {
      taken.emplace(n, taken.size());
      events.push_back({MemoryEvent::Kind::kTake, allocation.bytes});
    }
  }
  return taken.empty() ? std::vector<MemoryEvent>() : events;
}

bool is_unchanged(const Substituted &each) {
  return !each.written || (each.tensor.sizes() == each.twin.sizes() &&
                           each.tensor.strides() == each.twin.strides() &&
                           each.tensor.is_conj() == each.twin.is_conj() &&
                           each.tensor.is_neg() == each.twin.is_neg() &&
                           !is_from_override(each.twin.storage().data_ptr()));
}

std::vector<PlannedResize> resizes_of(c10::ArrayRef<Substituted> substituted) {
  std::vector<PlannedResize> resizes;
  for (size_t i = 0; i < substituted.size(); ++i) {
    const auto &[tensor, twin, written] = substituted[i];
    if (written && tensor.numel() == 0 && tensor.sizes() != twin.sizes()) {
      auto &resize = resizes.emplace_back();
      resize.argument = i;
      resize.sizes = twin.sizes();
      resize.strides = twin.strides();
    }
  }
  return resizes;
}

// Plans cannot describe results that share memory with each other.
bool have_own_memory(const std::vector<PlannedReturn> &returns) {
  std::vector<size_t> allocations;
  for (const auto &each : returns) {
    for (const auto &tensor : each.tensors) {
      if (tensor.kind == PlannedTensor::Kind::kFresh &&
          tensor.allocation.kind == AllocationIndex::Kind::kNth) {
        allocations.push_back(tensor.allocation.n);
      }
    }
  }
  std::ranges::sort(allocations);
  return std::ranges::adjacent_find(allocations) == allocations.end();
}

} // namespace

at::Tensor make_planned(const PlannedTensor &planned, openreg_block *block) {
  auto result =
      make_tensor(make_storage(block, planned.bytes), c10::scalarTypeToTypeMeta(planned.dtype));
  result.unsafeGetTensorImpl()->set_sizes_and_strides(planned.sizes, planned.strides);
  return result;
}

std::vector<const PlannedTensor *> OutputPlan::fresh_results() const {
  std::vector<const PlannedTensor *> fresh;
  for (const auto &each : returns) {
    for (const auto &tensor : each.tensors) {
      if (tensor.kind == PlannedTensor::Kind::kFresh) {
        fresh.push_back(&tensor);
      }
    }
  }
  return fresh;
}

size_t OutputPlan::result_bytes() const {
  size_t bytes = 0;
  for (const auto *each : fresh_results()) {
    bytes += each->bytes;
  }
  return bytes;
}

void OutputPlan::set_result_bytes(const std::vector<size_t> &bytes) {
  auto next = bytes.begin();
  for (auto &each : returns) {
    for (auto &tensor : each.tensors) {
      if (tensor.kind == PlannedTensor::Kind::kFresh) {
        tensor.bytes = *next++;
      }
    }
  }
}

std::vector<Block> OutputPlan::allocate(c10::DeviceIndex device) const {
  const auto fresh = fresh_results();
  std::vector<Block> results, taken;
  for (size_t i = 0; i < fresh.size(); ++i) {
    results.emplace_back(nullptr, &free_block);
  }
  for (const auto &[kind, value] : events) {
    if (kind == MemoryEvent::Kind::kResult) {
      results[value].reset(allocate_block(device, fresh[value]->bytes));
    } else if (kind == MemoryEvent::Kind::kTake) {
      taken.emplace_back(allocate_block(device, value), &free_block);
    } else {
      taken[value].reset();
    }
  }
  for (size_t i = 0; i < fresh.size(); ++i) {
    if (results[i] == nullptr) {
      results[i].reset(allocate_block(device, fresh[i]->bytes));
    }
  }
  return results;
}

bool OutputPlans::matters_by_value(const c10::Argument &argument) {
  auto type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  return type->kind() != c10::TypeKind::NumberType && type->kind() != c10::TypeKind::FloatType;
}

bool OutputPlans::make_key(const torch::jit::Stack &stack, const std::vector<bool> &by_value,
                           Key &key) {
  key.reserve(64 * by_value.size());
  Tensors before;
  append(key, c10::get_default_dtype_as_scalartype());
  append(key, at::globalContext().deterministicAlgorithms());
  append(key, at::globalContext().userEnabledCuDNN()); // memory plans of convolutions
  append(key, c10::GradMode::is_enabled()); // some kernels save what a backward will need
  auto value = stack.end() - static_cast<std::ptrdiff_t>(by_value.size());
  return std::ranges::all_of(by_value, [&](bool whole) {
    const auto &each = *value++;
    return whole ? append_value(key, each, before) : append_number(key, each, before);
  });
}

std::shared_ptr<OutputPlan> OutputPlans::find(const Key &key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = young_.find(key); found != young_.end()) {
    return found->second;
  }
  const auto found = old_.find(key);
  if (found == old_.end()) {
    return nullptr;
  }
  auto plan = found->second;
  add_locked(key, plan);
  return plan;
}

void OutputPlans::learn(Key key, std::shared_ptr<OutputPlan> plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  add_locked(std::move(key), std::move(plan));
}

void OutputPlans::add_locked(Key key, std::shared_ptr<OutputPlan> plan) {
  if (young_.size() >= kPlansPerGeneration) {
    old_ = std::exchange(young_, {});
  }
  young_.insert_or_assign(std::move(key), std::move(plan));
}

std::shared_ptr<OutputPlan> make_output_plan(const torch::jit::Stack &stack, size_t returns,
                                             c10::ArrayRef<Substituted> substituted,
                                             const Allocations &allocations, KernelMemory memory) {
  auto plan = std::make_shared<OutputPlan>();
  plan->resizes = resizes_of(substituted);
  bool can_be_queued = std::ranges::all_of(substituted, &is_unchanged);
  for (auto value = stack.end() - static_cast<std::ptrdiff_t>(returns); value != stack.end();
       ++value) {
    auto &planned = plan->returns.emplace_back();
    planned.is_list = value->isTensorList();
    if (!planned.is_list && !value->isTensor()) {
      can_be_queued = false;
      continue;
    }
    for (const auto &tensor :
         planned.is_list ? value->toTensorVector() : std::vector<at::Tensor>{value->toTensor()}) {
      can_be_queued &=
          plan_result(tensor, substituted, allocations, planned.tensors.emplace_back());
    }
  }
  plan->can_be_queued = can_be_queued && have_own_memory(plan->returns);
  plan->results = memory == KernelMemory::kAsOnCuda ? Placement::all() : placement_of(*plan);
  if (memory == KernelMemory::kAsOnCuda && plan->can_be_queued) {
    plan->events = events_of(*plan, allocations);
  }
  return plan;
}

} // namespace openreg
