// The boxed door: a launch of any operator, by its schema.
//
// Registered for every operator that has a CPU kernel of its own (so that it wins over composite
// kernels that would take the long way), and as the fallback of the PrivateUse1 key for all others:
// an operator that a program registers for the CPU later works without a line more. The same for
// the keys of sparse tensors.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <string_view>
#include <vector>

#include "boxed.h"
#include "launch.h"
#include "sparse.h"

namespace openreg {

namespace {

using c10::IValue;
using c10::OperatorHandle;

// A tensor of a launch while its twin stands in for it: an argument, or a member of a sparse one.
struct Exchanged {
  at::Tensor tensor;
  at::Tensor twin;
  bool written;
};

using ExchangeList = c10::SmallVector<Exchanged, 4>;

bool is_on_device(const at::Tensor &tensor) {
  return tensor.defined() && tensor.device().type() == kDeviceType;
}

// What the boxed door must know of an operator: derived once from its schema and tags.
class BoxedOperator {
public:
  // `kernel_key`: the CPU key whose kernel runs.
  BoxedOperator(const OperatorHandle &op, c10::DispatchKey kernel_key)
      : name_(op.schema().name()), overload_(op.schema().overload_name()),
        draws_(op.hasTag(at::Tag::nondeterministic_seeded) && name_ != "aten::_fused_sdp_choice"),
        has_kernel_(op.hasComputedKernelForDispatchKey(kernel_key)),
        is_dense_(kernel_key == c10::DispatchKey::CPU),
        is_copy_(name_ == "aten::copy_" || name_ == "aten::copy_sparse_to_sparse_"),
        host_result_(name_ == "aten::_pack_padded_sequence" ? 1 : -1) {
    const auto &arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto *alias = arguments[i].alias_info();
      written_.push_back(alias != nullptr && alias->isWrite());
    }
  }

  void run(const OperatorHandle &op, torch::jit::Stack *stack) const {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !draws_, "openreg: '", name_,
        "' draws random numbers and has no openreg kernel: the host's "
        "generator is not used in its place. Compute it on the CPU and copy the result.");
    TORCH_CHECK_NOT_IMPLEMENTED(
        has_kernel_, "Could not run '", name_, (overload_.empty() ? "" : "."), overload_,
        "' with arguments from the 'openreg' backend: it has neither an openreg kernel nor a CPU "
        "kernel to run on it.");
    ExchangeList exchanged;
    const auto device = exchange_arguments(stack, exchanged);
    {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      Redirection redirection(device);
      if (is_dense_) {
        op.redispatchBoxed(kCpuKernel, stack);
      } else {
        op.callBoxed(stack); // the twins' keys lead to the kernel for their mix of layouts
      }
    }
    for (const auto &each : exchanged) {
      if (each.written) {
        write_back_any(each, exchanged, device);
      }
    }
    exchange_results(op, stack, exchanged, device);
  }

private:
  // Puts twins in the place of device tensors and "cpu" in the place of a device argument. Returns
  // the device where the kernel allocates; -1 for the host, the target of a copy.
  c10::DeviceIndex exchange_arguments(torch::jit::Stack *stack, ExchangeList &exchanged) const {
    const auto arguments = stack->end() - static_cast<std::ptrdiff_t>(written_.size());
    LaunchDevice where(name_.c_str(), overload_.c_str());
    int named_device = -1;
    for (size_t i = 0; i < written_.size(); ++i) {
      auto &value = arguments[static_cast<std::ptrdiff_t>(i)];
      const bool written = written_[i];
      if (value.isTensor()) {
        value = exchange(value.toTensor(), written, where, exchanged);
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> twins;
        for (const auto &tensor : value.toTensorVector()) {
          twins.push_back(exchange(tensor, written, where, exchanged));
        }
        value = std::move(twins);
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> twins;
        for (const auto &tensor : value.toOptionalTensorVector()) {
          twins.push_back(tensor.has_value()
                              ? std::optional(exchange(*tensor, written, where, exchanged))
                              : std::nullopt);
        }
        value = std::move(twins);
      } else if (value.isDevice() && value.toDevice().type() == kDeviceType) {
        named_device =
            value.toDevice().has_index() ? value.toDevice().index() : openreg_device_current();
        value = c10::Device(c10::DeviceType::CPU);
      }
    }
    if (is_copy_) {
      return exchanged.front().written ? exchanged.front().tensor.device().index()
                                       : static_cast<c10::DeviceIndex>(-1);
    }
    return named_device >= 0 ? static_cast<c10::DeviceIndex>(named_device) : where.index();
  }

  at::Tensor exchange(const at::Tensor &tensor, bool written, LaunchDevice &where,
                      ExchangeList &exchanged) const {
    if (!is_copy_) { // a copy has a device on each side
      where.see(tensor);
    }
    if (!is_on_device(tensor)) {
      if (written && !is_copy_) {
        where.see_written(tensor);
      }
      return tensor;
    }
    if (is_sparse(tensor)) {
      auto twin = map_members(tensor, c10::kCPU, [&](const at::Tensor &member) {
        exchanged.push_back({member, twin_of(member), false});
        return exchanged.back().twin;
      });
      exchanged.push_back({tensor, std::move(twin), written});
    } else {
      exchanged.push_back({tensor, twin_of(tensor), written});
    }
    if (!is_dense_ && tensor.requires_grad()) {
      // Some sparse kernels look at this to know what a backward will need.
      auto &twin = exchanged.back().twin;
      twin = twin.detach();
      twin.set_requires_grad(true);
    }
    return exchanged.back().twin;
  }

  static void write_back_any(const Exchanged &each, const ExchangeList &exchanged,
                             c10::DeviceIndex device) {
    if (is_sparse(each.tensor)) {
      assign_members(each.tensor, each.twin, [&](const at::Tensor &member) {
        return give_back(at::Tensor(member), exchanged, device);
      });
    } else {
      write_back(each.tensor, each.twin);
    }
  }

  void exchange_results(const OperatorHandle &op, torch::jit::Stack *stack,
                        const ExchangeList &exchanged, c10::DeviceIndex device) const {
    const auto count = op.schema().returns().size();
    const auto results = stack->end() - static_cast<std::ptrdiff_t>(count);
    for (size_t i = 0; i < count; ++i) {
      auto &value = results[static_cast<std::ptrdiff_t>(i)];
      if (static_cast<int>(i) == host_result_) {
        value = value.toTensor().clone(); // out of device memory
      } else if (value.isTensor()) {
        value = give_back(std::move(value).toTensor(), exchanged, device);
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (auto &tensor : value.toTensorVector()) {
          list.push_back(give_back(std::move(tensor), exchanged, device));
        }
        value = std::move(list);
      }
    }
  }

  static at::Tensor give_back(at::Tensor &&result, c10::ArrayRef<Exchanged> exchanged,
                              c10::DeviceIndex device) {
    if (result.defined() && is_fresh(result)) {
      return hand_over(std::move(result));
    }
    c10::SmallVector<const at::Tensor *, 4> arguments;
    for (const auto &each : exchanged) {
      if (result.unsafeGetTensorImpl() == each.twin.unsafeGetTensorImpl()) {
        return each.tensor;
      }
      if (!is_sparse(each.tensor)) {
        arguments.push_back(&each.tensor);
      }
    }
    if (result.defined() && result.is_cpu() && is_sparse(result)) {
      return map_members(result, c10::Device(kDeviceType, device), [&](const at::Tensor &member) {
        return give_back(at::Tensor(member), exchanged, device);
      });
    }
    return return_shared(std::move(result), arguments, device);
  }

  std::string name_, overload_;
  bool draws_;
  bool has_kernel_;
  bool is_dense_;   // every tensor argument is strided
  bool is_copy_;    // between any two devices, the host among them
  int host_result_; // the result that is a CPU tensor by contract; -1: none
  c10::SmallVector<bool, 8> written_;
};

class BoxedKernel final : public c10::OperatorKernel {
public:
  BoxedKernel(const OperatorHandle &op, c10::DispatchKey kernel_key) : operator_(op, kernel_key) {}
  void operator()(const OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack) {
    operator_.run(op, stack);
  }

private:
  BoxedOperator operator_;
};

template <c10::DispatchKey kKernelKey>
void boxed_fallback(const OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack) {
  BoxedOperator(op, kKernelKey).run(op, stack);
}

using c10::DispatchKey;

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback<DispatchKey::CPU>>());
}
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, library) {
  library.fallback(
      torch::CppFunction::makeFromBoxedFunction<&boxed_fallback<DispatchKey::SparseCPU>>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, library) {
  library.fallback(
      torch::CppFunction::makeFromBoxedFunction<&boxed_fallback<DispatchKey::SparseCsrCPU>>());
}

// Registers the boxed launch under `key` for the operators with a kernel of their own under
// `kernel_key`, so that it wins over composite kernels.
void register_for(DispatchKey key, DispatchKey kernel_key) {
  auto &dispatcher = c10::Dispatcher::singleton();
  // Registrations last as long as the process.
  static auto *registrations = new std::vector<c10::RegistrationHandleRAII>();
  for (const auto &name : dispatcher.getAllOpNamesForDispatchKey(kernel_key)) {
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value() || op->hasKernelForDispatchKey(key)) {
      continue;
    }
    registrations->push_back(dispatcher.registerImpl(
        name, key,
        c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(*op, kernel_key)),
        std::nullopt, nullptr, "openreg: boxed launch"));
  }
}

} // namespace

void register_boxed_kernels() {
  register_for(DispatchKey::PrivateUse1, DispatchKey::CPU);
  register_for(DispatchKey::SparsePrivateUse1, DispatchKey::SparseCPU);
  register_for(DispatchKey::SparseCsrPrivateUse1, DispatchKey::SparseCsrCPU);
}

} // namespace openreg
