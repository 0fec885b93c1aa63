// Copies between the host and devices, and between devices, of any dtypes and strides.
//
// Both tensors are accessible through the kernel view. So a copy is one pass over the bytes: by
// PyTorch's CPU kernel on the twins, or by the device layer's copy if no element changes.

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <atomic>
#include <memory>
#include <optional>

#include "core/registration.h"
#include "kernels/kernels.h"
#include "launch/dry_host.h"
#include "launch/typed.h"
#include "profiler/host_wait.h"
#include "profiler/memory_note.h"
#include "streams/current.h"
#include "streams/event_owner.h"
#include "streams/sync_debug.h"
#include "streams/observer.h"
#include "tensor/known_values.h"

namespace openreg {

namespace {

// Below this size the device layer's copy is not faster, unless the copy must be queued.
constexpr size_t kPlainCopyBytes = 4096;

// The costs of copies of bytes, and of copies that convert elements.
LaunchCost plain_copy_cost, converting_copy_cost;

// Marks an access of a stream's work to a tensor while it lives, if the tensor is on the host.
class HostTensorAccess {
public:
  HostTensorAccess(const at::Tensor &tensor, bool writes)
      : is_host_(tensor.is_cpu() && tensor.has_storage()),
        access_(is_host_ ? tensor.storage().data() : nullptr,
                is_host_ ? tensor.storage().nbytes() : 0, writes) {}

private:
  bool is_host_;
  HostAccess access_;
};

// Whether the copy is one of plain bytes. Tensors that share a storage go to the CPU's kernel,
// which refuses partial overlap.
bool same_bytes(const at::Tensor &self, const at::Tensor &source) {
  return !self.is_alias_of(source) && self.scalar_type() == source.scalar_type() &&
         self.sizes() == source.sizes() && self.strides() == source.strides() &&
         self.is_non_overlapping_and_dense() && self.is_conj() == source.is_conj() &&
         self.is_neg() == source.is_neg() && !source.is_quantized() && !source._is_zerotensor();
}

void check_copyable(const at::Tensor &tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.device().type() == kDeviceType || tensor.is_cpu(),
                              "openreg: cannot copy between an openreg device and ",
                              tensor.device());
}

// The devices of a copy. It runs on the current stream of the source's device, or of the
// destination's if the source is on the host. A copy between two devices is also ordered after
// earlier and before later work on the other device's current stream.
class CopyDevices {
public:
  CopyDevices(const at::Tensor &self, const at::Tensor &source)
      : device_(source.is_cpu() ? self.device().index() : source.device().index()),
        other_(self.is_cpu() ? device_ : self.device().index()) {}

  c10::DeviceIndex device() const { return device_; }
  bool are_two() const { return device_ != other_; }
  bool are_idle() const { return is_idle(device_) && (!are_two() || is_idle(other_)); }

  // For a copy on this thread: waits for the other device.
  void wait_for_other() const {
    if (are_two() && !is_idle(other_)) {
      wait_for_stream(other_, current_stream(other_));
    }
  }

  // For a copy that may be queued: call these before and after it.
  void begin() const { order(other_, device_); }
  void end() const { order(device_, other_); }

private:
  void order(c10::DeviceIndex first, c10::DeviceIndex second) const {
    if (!are_two() || is_idle(first)) {
      return;
    }
    const auto event = make_event(first, /*enable_timing=*/false);
    check(openreg_event_record(event.get(), current_stream(first)));
    check(openreg_stream_wait_event(second, current_stream(second), event.get()));
  }

  c10::DeviceIndex device_, other_;
};

// The wait of a call that returns when its copy between host and device is done, until end(). A
// non_blocking copy does not count as one, although a copy to pageable memory waits here.
class CopyWait {
public:
  CopyWait(bool non_blocking, c10::DeviceIndex device) {
    if (!non_blocking) {
      note_sync(device);
      record_wait(device);
      wait_.emplace(device);
    }
  }
  void end() { wait_.reset(); }

private:
  std::optional<HostWait> wait_;
};

// As on CUDA, the call waits for a copy between host and device, unless `host_may_be_used_later`
// says that host memory may be accessed after the call. A queued copy keeps the host memory alive.
void copy_bytes(const at::Tensor &self, const at::Tensor &source, const CopyDevices &devices,
                bool non_blocking, bool host_may_be_used_later) {
  void *to = self.mutable_data_ptr();
  const void *from = source.const_data_ptr();
  const auto bytes = self.nbytes();
  const auto host = self.is_cpu() ? self : source.is_cpu() ? source : at::Tensor();
  if (host.defined() && !host_may_be_used_later) {
    CopyWait wait(non_blocking, devices.device());
    const InlineGuard guard(devices.device());
    wait.end();
    if (self.is_cpu()) {
      guard.raise_failures();
    }
    const HostAccess access(host.const_data_ptr(), bytes, self.is_cpu());
    check(openreg_copy(to, from, bytes));
    return;
  }
  const void *on_host = host.defined() ? host.const_data_ptr() : nullptr;
  const bool is_to_host = self.is_cpu();
  const auto copy = [=, kept = host.defined() ? host.storage() : c10::Storage()] {
    bool is_done = false;
    if (is_to_host) {
      notify_observers(
          [&](Observer &observer) { is_done = observer.write_to_host(to, from, bytes); });
    }
    if (is_done) {
      return OPENREG_OK;
    }
    const HostAccess access(on_host, bytes, is_to_host);
    if (!InlineGuard::any()) { // on a worker; like a copy engine, it leaves the kernels' cores
                               // alone
      keep_on_all_cores();
    }
    return openreg_copy(to, from, bytes);
  };
  devices.begin();
  submit(plain_copy_cost, static_cast<int64_t>(bytes), devices.device(), copy);
  devices.end();
}

// Checks at the call what the kernel would check, and expands the source.
at::Tensor expanded(const at::Tensor &source, const at::Tensor &self) {
  at::assert_no_internal_overlap(self);
  return source.sizes() == self.sizes() ? source : source.expand(self.sizes());
}

bool is_pinned_host(const at::Tensor &tensor) {
  return tensor.is_cpu() && tensor.is_pinned();
}

// ---- pageable memory ----------------------------------------------------------------------------

// How many bytes of pageable memory may be staged at a time, in the whole process. A program that
// copies faster than its devices waits instead of filling the host's memory.
constexpr size_t kStagingBytes = size_t{256} << 20;

// Reserves `bytes` of these while it lives, if is_granted().
class StagingReservation {
public:
  explicit StagingReservation(size_t bytes)
      : bytes_(bytes), taken_(taken_in_all.fetch_add(bytes)) {}
  ~StagingReservation() { taken_in_all.fetch_sub(bytes_); }
  StagingReservation(const StagingReservation &) = delete;
  StagingReservation &operator=(const StagingReservation &) = delete;

  bool is_granted() const { return taken_ + bytes_ <= kStagingBytes; }

private:
  static inline std::atomic<size_t> taken_in_all{0};

  size_t bytes_, taken_;
};

// Returns a copy of a pageable source for a queued copy to read, because the program may change the
// source after the call. Returns an undefined tensor if the staging limit is reached.
at::Tensor stage(const at::Tensor &source) {
  const auto reservation = std::make_shared<StagingReservation>(source.nbytes());
  if (!reservation->is_granted()) {
    return {};
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto staged = source.clone();
  return at::from_blob(
      staged.mutable_data_ptr(), staged.sizes(), staged.strides(), [staged, reservation](void *) {},
      staged.options());
}

bool is_pageable(const at::Tensor &source) {
  return source.is_cpu() && source.layout() == c10::kStrided && source.nbytes() > 0 &&
         !source.is_quantized() && !source._is_zerotensor() && !source.is_pinned();
}

// ---- converting copies --------------------------------------------------------------------------

// Copies between twins or host tensors. Where the source is, elements are converted, as on CUDA.
void copy_elements(at::Tensor &self, const at::Tensor &source, bool is_from_device) {
  if (is_from_device && converts_to_integers(self, source)) {
    copy_integers(self, source);
  } else {
    at::_ops::copy_::redispatch(kCpuKernel, self, source, /*non_blocking=*/false);
  }
}

// A copy between the host and a device that changes elements or strides.
class ConvertingCopy {
public:
  // Keeps the host memory alive with an alias of the host tensor: the program may resize its tensor
  // after the call.
  ConvertingCopy(const at::Tensor &self, const at::Tensor &source)
      : to_(self.is_cpu() ? self.alias() : twin_of(self)),
        from_(source.is_cpu() ? source.alias() : twin_of(source)),
        is_from_device_(!source.is_cpu()) {}

  static void queue(const at::Tensor &self, const at::Tensor &source, c10::DeviceIndex device) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    queue_on_stream(
        device, [copy = std::make_unique<ConvertingCopy>(self, source)] { return copy->run(); });
  }

private:
  openreg_status run() {
    const auto began_ns = now_ns();
    try {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      const HostTensorAccess write(to_, true), read(from_, false);
      copy_elements(to_, from_, is_from_device_);
      converting_copy_cost.note(to_.numel(), now_ns() - began_ns);
      return OPENREG_OK;
    } catch (const std::exception &error) {
      return openreg_fail(OPENREG_LAUNCH_FAILURE, "%s error: a copy failed: %s", platform_name(),
                          error.what());
    }
  }

  at::Tensor to_, from_;
  bool is_from_device_;
};

at::Tensor &copy(at::Tensor &self, const at::Tensor &source, const CopyDevices &devices,
                 bool non_blocking, bool host_may_be_used_later) {
  make_writable(self);
  if (self.nbytes() >= (devices.are_idle() ? kPlainCopyBytes : 0) && same_bytes(self, source)) {
    const MemoryNote note(self, source);
    copy_bytes(self, source, devices, non_blocking, host_may_be_used_later);
    return self;
  }
  if (!self.is_cpu() && !source.is_cpu() && !devices.are_two()) {
    return converts_to_integers(self, source)
               ? typed_by_dtype<at::_ops::copy_>(self, source, non_blocking)
               : typed<at::_ops::copy_>(self, source, non_blocking);
  }
  const MemoryNote note(self, source);
  check(openreg_initialize()); // raises in a forked child
  CopyWait wait(non_blocking || (!self.is_cpu() && !source.is_cpu()), devices.device());
  std::optional<LongLaunch> long_launch;
  if (host_may_be_used_later && may_queue()) {
    if (is_long(self.numel())) {
      long_launch.emplace(converting_copy_cost, self.numel(), devices.device());
    }
    if ((long_launch.has_value() && long_launch->is_queued()) || !devices.are_idle()) {
      if (long_launch.has_value()) {
        long_launch->set_queued();
      }
      ConvertingCopy::queue(self, expanded(source, self), devices.device());
      return self;
    }
  }
  devices.wait_for_other();
  const InlineGuard guard(devices.device());
  wait.end();
  if (self.is_cpu()) {
    guard.raise_failures();
  }
  const HostTensorAccess write(self, true), read(source, false);
  copy_elements(twin_or_self(self), twin_or_self(source), !source.is_cpu());
  return self;
}

// A replay accesses the host memory, so only pinned memory can be captured.
void check_capturable(const at::Tensor &self, const at::Tensor &source,
                      const CopyDevices &devices) {
  const auto &host = self.is_cpu() ? self : source;
  if (!host.is_cpu() || host.is_pinned() || !is_capturing(devices.device())) {
    return;
  }
  // As in PyTorch's CUDA build, the capture goes on: the copy was refused before it reached CUDA.
  TORCH_CHECK(false, "Cannot copy between CPU and ", platform_name(), " tensors during ",
              platform_name(),
              " graph capture unless the CPU tensor is pinned. Please use "
              "tensor.pin_memory() or allocate the tensor with pin_memory=True.");
}

// In a dry run, host memory of more bytes is left as it is when unknown values are copied to it. If
// nobody has written to it, it is zero as well, and takes no memory of the machine.
constexpr size_t kZeroedBytes = size_t{16} << 20;

// In a dry run: returns whether the copy is not made. A host that copies unknown values gets zeros.
// A large copy stays unknown, and any other copy counts as a read.
bool skip_copy(const at::Tensor &self, const at::Tensor &source) {
  if (!self.is_cpu()) {
    expanded(source, self); // checks the sizes
    return skip_kernel({source}, {self});
  }
  const bool is_large = self.nbytes() > known_host_bytes();
  if (is_known(source) && !(is_large && self.is_floating_point())) {
    return false;
  }
  if (is_large) {
    set_known(self, false);
    if (!is_known(self)) {
      return true;
    }
  }
  if (is_known(source)) {
    return false;
  }
  if (self.nbytes() <= kZeroedBytes) {
    self.zero_();
  }
  record_unknown_read("aten::copy_", c10::str(self.numel(), " zeros"));
  return true;
}

at::Tensor &copy_(at::Tensor &self, const at::Tensor &source, bool non_blocking) {
  check_copyable(self);
  check_copyable(source);
  if (is_dry() && skip_copy(self, source)) [[unlikely]] {
    return self;
  }
  const CopyDevices devices(self, source);
  if (openreg_captures_exist()) [[unlikely]] {
    check_capturable(self, source, devices);
  }
  if (non_blocking && may_queue() && !devices.are_idle() && is_pageable(source)) {
    if (const auto staged = stage(source); staged.defined()) {
      return copy(self, staged, devices, non_blocking, /*host_may_be_used_later=*/true);
    }
  }
  return copy(self, source, devices, non_blocking,
              non_blocking && (is_pinned_host(self) || is_pinned_host(source)));
}

// Like a copy to the host, item() raises the device's pending error.
at::Scalar item(const at::Tensor &self) {
  if (is_dry() && !is_known(self)) [[unlikely]] {
    record_unknown_read("aten::item", "0");
    return at::zeros({}, at::device(at::kCPU).dtype(self.scalar_type())).item();
  }
  CopyWait wait(/*non_blocking=*/false, self.device().index());
  const MemoryNote note(self, MemoryNote::kToNumber);
  const InlineGuard guard(self.device().index());
  wait.end();
  guard.raise_failures();
  return typed<at::_ops::_local_scalar_dense>(self);
}

at::Tensor copy_from(const at::Tensor &self, const at::Tensor &destination, bool non_blocking) {
  auto to = destination;
  return copy_(to, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor &self, const at::Tensor &destination) {
  destination.resize_(self.sizes());
  return copy_from(self, destination, false);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("copy_", &copy_);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &item);
}

// A copy reads the conjugate and negative bits of both tensors itself. Resolving them first would
// copy and recurse forever.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

} // namespace openreg
