#include "tensor/known_values.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "memory/allocation/host_blocks.h"
#include "tensor/known_scope.h"

namespace openreg {

namespace {

constexpr uint32_t kUnknown = 1; // in openreg_block::user_flags

// Never freed: it may hold a Python object.
DryRun &the_dry_run() {
  static auto *run = new DryRun();
  return *run;
}

// The dry run in a KnownScope: no kernel is too large.
DryRun &unlimited_dry_run() {
  static auto *run = new DryRun();
  return *run;
}

thread_local int known_scopes = 0;

// The flags of a tensor's memory; null if it is neither a block of a device nor of the host.
uint32_t *flags_of(const at::Tensor &tensor) {
  if (!tensor.defined() || !tensor.has_storage()) {
    return nullptr;
  }
  const auto &pointer = tensor.unsafeGetTensorImpl()->unsafe_storage().data_ptr();
  if (tensor.is_cpu()) {
    return host_block_flags(pointer);
  }
  auto *const block = tensor.device().type() == kDeviceType ? find_block(pointer) : nullptr;
  return block == nullptr ? nullptr : &block->user_flags;
}

} // namespace

void start_dry_run(DryRun dry_run) {
  unlimited_dry_run() = dry_run;
  unlimited_dry_run().known_bytes = SIZE_MAX / 2; // a sum with the bytes of results must not wrap
  the_dry_run() = std::move(dry_run);
  dry_run_exists.store(true, std::memory_order_relaxed);
}

const DryRun &dry_run() {
  return known_scopes > 0 ? unlimited_dry_run() : the_dry_run();
}

KnownScope::KnownScope() {
  ++known_scopes;
}

KnownScope::~KnownScope() {
  --known_scopes;
}

bool is_known(const at::Tensor &tensor) {
  auto *flags = flags_of(tensor);
  return flags == nullptr || std::atomic_ref(*flags).load(std::memory_order_relaxed) == 0;
}

void set_known(const at::Tensor &tensor, bool known) {
  if (auto *flags = flags_of(tensor)) {
    std::atomic_ref(*flags).store(known ? 0 : kUnknown, std::memory_order_relaxed);
  }
}

void note_overwritten(const at::Tensor &tensor) {
  if (!is_known(tensor) && tensor.nbytes() == tensor.storage().nbytes() &&
      tensor.is_non_overlapping_and_dense()) {
    set_known(tensor, true);
  }
}

void KernelAccesses::overwrite(const at::Tensor &tensor) {
  if (tensor.defined() && tensor.device().type() == kDeviceType) {
    bytes_ += tensor.nbytes();
  }
}

void KernelAccesses::read_all(c10::ArrayRef<c10::IValue> arguments) {
  for (const auto &argument : arguments) {
    if (argument.isTensor()) {
      read(argument.toTensor());
    } else if (argument.isTensorList() || argument.isOptionalTensorList()) {
      read_all(argument.toListRef());
    }
  }
}

void KernelAccesses::mark(const at::Tensor &written) const {
  if (are_skipped()) {
    set_known(written, false);
  } else {
    note_overwritten(written);
  }
}

bool skip_kernel(SomeTensors reads, SomeTensors writes) {
  if (!is_dry()) [[likely]] {
    return false;
  }
  KernelAccesses accesses;
  for (const at::Tensor &tensor : reads) {
    accesses.read(tensor);
  }
  for (const at::Tensor &tensor : writes) {
    accesses.overwrite(tensor);
  }
  for (const at::Tensor &tensor : writes) {
    accesses.mark(tensor);
  }
  return accesses.are_skipped();
}

bool skip_move(const openreg_block &from, openreg_block &to, size_t bytes) {
  if (!is_dry() || bytes == 0) [[likely]] {
    return false;
  }
  to.user_flags = bytes > dry_run().known_bytes ? kUnknown : from.user_flags;
  return to.user_flags == kUnknown;
}

void record_unknown_read(const char *operator_name, const std::string &value) {
  if (const auto &record = the_dry_run().record_read) {
    record(operator_name, value);
  }
}

} // namespace openreg
