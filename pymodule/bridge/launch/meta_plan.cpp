#include "launch/meta_plan.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "launch/map_tensors.h"

namespace openreg {

namespace {

constexpr auto kMeta = c10::DispatchKey::Meta;

// Meta tensors with the metadata of a launch's arguments. Those of tensors that share memory share
// a storage, too.
class MetaInputs {
public:
  at::Tensor of(const at::Tensor &twin) {
    // Python meta functions accept numbers on the host only.
    if (!twin.defined() || !twin.has_storage() || twin.unsafeGetTensorImpl()->is_wrapped_number()) {
      return twin;
    }
    auto &meta = tensors_[twin.unsafeGetTensorImpl()];
    if (!meta.defined()) {
      const auto *impl = twin.unsafeGetTensorImpl();
      c10::DispatchKeySet keys(kMeta);
      for (const auto key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
        if (impl->key_set().has(key)) {
          keys = keys.add(key);
        }
      }
      auto made =
          c10::make_intrusive<c10::TensorImpl>(storage_of(twin.storage()), keys, impl->dtype());
      made->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
      meta = at::Tensor(std::move(made));
    }
    return meta;
  }

  c10::IValue in(const c10::IValue &value) {
    if (value.isDevice()) {
      return c10::Device(c10::DeviceType::Meta);
    }
    return map_tensors(value, [this](const at::Tensor &tensor) { return of(tensor); });
  }

private:
  c10::Storage storage_of(const c10::Storage &storage) {
    auto &meta = storages_[storage.unsafeGetStorageImpl()];
    if (!meta) {
      meta = c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(),
                          c10::DataPtr(nullptr, c10::Device(c10::DeviceType::Meta)),
                          c10::GetAllocator(c10::DeviceType::Meta), /*resizable=*/true);
    }
    return meta;
  }

  std::unordered_map<const c10::StorageImpl *, c10::Storage> storages_;
  std::unordered_map<const c10::TensorImpl *, at::Tensor> tensors_;
};

// The key of the kernel that takes meta tensors. A host operator's only kernel is for the CPU, and
// takes them as well (host_operator.h).
std::optional<c10::DispatchKey> meta_key(const c10::OperatorHandle &op) {
  if (std::string_view(op.schema().name()).starts_with("openreg_host::")) {
    return c10::DispatchKey::CPU;
  }
  return op.hasComputedKernelForDispatchKey(kMeta) ? std::optional(kMeta) : std::nullopt;
}

// Returns false if a plan cannot describe the result.
bool plan_result(const at::Tensor &result, c10::ArrayRef<Substituted> inputs,
                 PlannedTensor &planned) {
  using Kind = PlannedTensor::Kind;
  if (!result.defined()) {
    return true;
  }
  const auto *impl = result.unsafeGetTensorImpl();
  const auto *storage = impl->unsafe_storage().unsafeGetStorageImpl();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto *input = inputs[i].twin.unsafeGetTensorImpl();
    if (input == impl) {
      planned.kind = Kind::kArgument;
      planned.argument = i;
      return true;
    }
    if (input->unsafe_storage().unsafeGetStorageImpl() == storage) {
      return false;
    }
  }
  if (result.layout() != c10::kStrided || result.is_conj() || result.is_neg() ||
      result.storage_offset() != 0) {
    return false;
  }
  planned.dtype = result.scalar_type();
  planned.sizes = result.sizes();
  planned.strides = result.strides();
  planned.bytes = storage->nbytes();
  planned.kind = planned.bytes == 0 ? Kind::kEmpty : Kind::kFresh;
  return true;
}

} // namespace

std::shared_ptr<OutputPlan> plan_from_meta(const c10::OperatorHandle &op,
                                           const torch::jit::Stack &stack,
                                           c10::ArrayRef<Substituted> substituted) {
  // An operator that returns nothing does not resize its arguments, such as a fused optimizer.
  const auto without_meta = [&] {
    return op.schema().returns().empty() ? std::make_shared<OutputPlan>() : nullptr;
  };
  const auto key = meta_key(op);
  if (!key.has_value()) {
    return without_meta();
  }
  MetaInputs made;
  SubstitutedList inputs;
  for (const auto &each : substituted) {
    inputs.push_back({each.tensor, made.of(each.twin), each.written});
  }
  const auto count = op.schema().arguments().size();
  torch::jit::Stack values;
  for (const auto &value : torch::jit::last(stack, count)) {
    values.push_back(made.in(value));
  }
  try {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    op.redispatchBoxed(c10::DispatchKeySet(*key), &values);
  } catch (const c10::NotImplementedError &) {
    return without_meta();
  }
  resize_written(inputs);
  auto plan = std::make_shared<OutputPlan>();
  for (const auto &value : values) {
    auto &planned = plan->returns.emplace_back();
    planned.is_list = value.isTensorList();
    if (!planned.is_list && !value.isTensor()) {
      return nullptr;
    }
    for (const auto &tensor :
         planned.is_list ? value.toTensorVector() : std::vector<at::Tensor>{value.toTensor()}) {
      if (!plan_result(tensor, inputs, planned.tensors.emplace_back())) {
        return nullptr;
      }
    }
  }
  return plan;
}

} // namespace openreg
