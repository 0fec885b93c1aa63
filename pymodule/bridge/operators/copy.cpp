// Copies between host and devices, and between devices: any dtypes and strides.
//
// Both ends are reachable through the kernel view, so that a copy is one pass over the bytes
// wherever they lie: PyTorch's CPU copy on the twins, or the device layer's when no element
// changes.

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize.h>
#include <torch/library.h>

#include <atomic>
#include <memory>
#include <optional>

#include "core/registration.h"
#include "launch/typed.h"
#include "profiler/memory_note.h"
#include "streams/current.h"
#include "streams/event_owner.h"
#include "streams/sync_debug.h"
#include "streams/stream_observer.h"

namespace openreg {

namespace {

// Below this size the device layer's copy has nothing to win, unless the copy has to be queued.
constexpr size_t kPlainCopyBytes = 4096;

// Of copies of bytes between two addresses, and of those that change elements on the way.
LaunchCost plain_copy_cost, converting_copy_cost;

// While one lives, a stream's work may touch the tensor, if it is on the host.
class OpenTensor {
public:
  OpenTensor(const at::Tensor &tensor, bool writes)
      : is_host_(tensor.is_cpu() && tensor.has_storage()),
        open_(is_host_ ? tensor.storage().data() : nullptr,
              is_host_ ? tensor.storage().nbytes() : 0, writes) {}

private:
  bool is_host_;
  OpenHost open_;
};

// Tensors that share a storage are the CPU's to judge: it refuses a partial overlap.
bool same_bytes(const at::Tensor &self, const at::Tensor &source) {
  return !self.is_alias_of(source) && self.scalar_type() == source.scalar_type() &&
         self.sizes() == source.sizes() && self.strides() == source.strides() &&
         self.is_non_overlapping_and_dense() && self.is_conj() == source.is_conj() &&
         self.is_neg() == source.is_neg() && !source.is_quantized() && !source._is_zerotensor();
}

void check_copyable(const at::Tensor &tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.device().type() == kDeviceType || tensor.is_cpu(),
                              "openreg: cannot copy between openreg and ", tensor.device());
}

// The stream of a copy is the current one of its device: the source's, if it is on one. A copy
// between two devices comes after what the other's current stream has to do as well, and before
// what follows there.
class CopyDevices {
public:
  CopyDevices(const at::Tensor &self, const at::Tensor &source)
      : device_(source.is_cpu() ? self.device().index() : source.device().index()),
        other_(self.is_cpu() ? device_ : self.device().index()) {}

  c10::DeviceIndex device() const { return device_; }
  bool are_two() const { return device_ != other_; }
  bool are_idle() const { return is_idle(device_) && (!are_two() || is_idle(other_)); }

  // For a copy on this thread.
  void wait_for_other() const {
    if (are_two() && !is_idle(other_)) {
      wait_for_stream(other_, current_stream(other_));
    }
  }

  // For one that may be queued: before it and after it.
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

// What the caller agreed not to wait for is not counted, although a copy to pageable memory is
// waited for here.
void note_sync_unless(bool non_blocking, c10::DeviceIndex device) {
  if (!non_blocking) {
    note_sync(device);
    note_wait(device);
  }
}

// As on CUDA, only copies between host and device are waited for, unless the host's memory may be
// used after the call. A queued copy keeps it alive.
void copy_bytes(const at::Tensor &self, const at::Tensor &source, const CopyDevices &devices,
                bool non_blocking, bool host_may_be_used_later) {
  void *to = self.mutable_data_ptr();
  const void *from = source.const_data_ptr();
  const auto bytes = self.nbytes();
  const auto host = self.is_cpu() ? self : source.is_cpu() ? source : at::Tensor();
  if (host.defined() && !host_may_be_used_later) {
    note_sync_unless(non_blocking, devices.device());
    const Turn turn(devices.device());
    if (self.is_cpu()) {
      turn.raise_failures();
    }
    const OpenHost open(host.const_data_ptr(), bytes, self.is_cpu());
    check(openreg_copy(to, from, bytes));
    return;
  }
  const void *on_host = host.defined() ? host.const_data_ptr() : nullptr;
  const bool is_to_host = self.is_cpu();
  const auto copy = [=, kept = host.defined() ? host.storage() : c10::Storage()] {
    bool is_done = false;
    if (is_to_host) {
      tell_watcher([&](Watcher &watcher) { is_done = watcher.write_to_host(to, from, bytes); });
    }
    if (is_done) {
      return OPENREG_OK;
    }
    const OpenHost open(on_host, bytes, is_to_host);
    if (!Turn::any()) { // on a worker: as a GPU's copy engine, which takes nothing from the kernels
      keep_on_all_cores();
    }
    return openreg_copy(to, from, bytes);
  };
  devices.begin();
  submit(plain_copy_cost, static_cast<int64_t>(bytes), devices.device(), copy);
  devices.end();
}

// What a copy refuses, it refuses at the call.
at::Tensor expanded(const at::Tensor &source, const at::Tensor &self) {
  at::assert_no_internal_overlap(self);
  return source.sizes() == self.sizes() ? source : source.expand(self.sizes());
}

bool is_pinned_host(const at::Tensor &tensor) {
  return tensor.is_cpu() && tensor.is_pinned();
}

// ---- pageable memory ----------------------------------------------------------------------------

// How much pageable memory may be staged at any time, in all. A program that copies more than its
// devices keep up with is waited for, and does not fill the host's memory.
constexpr size_t kStagingBytes = size_t{256} << 20;

// So many of these bytes, taken while it lives.
class StagingRoom {
public:
  explicit StagingRoom(size_t bytes) : bytes_(bytes), taken_(taken_in_all.fetch_add(bytes)) {}
  ~StagingRoom() { taken_in_all.fetch_sub(bytes_); }
  StagingRoom(const StagingRoom &) = delete;
  StagingRoom &operator=(const StagingRoom &) = delete;

  bool is_there() const { return taken_ + bytes_ <= kStagingBytes; }

private:
  static inline std::atomic<size_t> taken_in_all{0};

  size_t bytes_, taken_;
};

// The content of pageable memory as it is now, which a queued copy reads in its place: the program
// may change the memory when the call has returned. Undefined when there is no room.
at::Tensor stage(const at::Tensor &source) {
  const auto room = std::make_shared<StagingRoom>(source.nbytes());
  if (!room->is_there()) {
    return {};
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto staged = source.clone();
  return at::from_blob(
      staged.mutable_data_ptr(), staged.sizes(), staged.strides(), [staged, room](void *) {},
      staged.options());
}

bool is_pageable(const at::Tensor &source) {
  return source.is_cpu() && source.layout() == c10::kStrided && source.nbytes() > 0 &&
         !source.is_quantized() && !source._is_zerotensor() && !source.is_pinned();
}

// ---- copies that change elements ----------------------------------------------------------------

// A copy between host memory and a device that changes elements on the way, by PyTorch's CPU
// kernel.
class ConvertingCopy {
public:
  // The host's tensor is kept alive, as another tensor over its memory: the program's may change
  // its sizes when the call has returned.
  ConvertingCopy(const at::Tensor &self, const at::Tensor &source)
      : to_(self.is_cpu() ? self.alias() : twin_of(self)),
        from_(source.is_cpu() ? source.alias() : twin_of(source)) {}

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
      const OpenTensor open_to(to_, true), open_from(from_, false);
      at::_ops::copy_::redispatch(kCpuKernel, to_, from_, /*non_blocking=*/false);
      converting_copy_cost.note(to_.numel(), now_ns() - began_ns);
      return OPENREG_OK;
    } catch (const std::exception &error) {
      return openreg_fail(OPENREG_LAUNCH_FAILURE, "%s error: a copy failed: %s", platform_name(),
                          error.what());
    }
  }

  at::Tensor to_, from_;
};

at::Tensor &copy(at::Tensor &self, const at::Tensor &source, const CopyDevices &devices,
                 bool non_blocking, bool host_may_be_used_later) {
  if (self.nbytes() >= (devices.are_idle() ? kPlainCopyBytes : 0) && same_bytes(self, source)) {
    const MemoryNote note(self, source);
    copy_bytes(self, source, devices, non_blocking, host_may_be_used_later);
    return self;
  }
  if (!self.is_cpu() && !source.is_cpu() && !devices.are_two()) {
    return typed<at::_ops::copy_>(self, source, non_blocking);
  }
  const MemoryNote note(self, source);
  check(openreg_initialize()); // refuses a forked child
  if (self.is_cpu() || source.is_cpu()) {
    note_sync_unless(non_blocking, devices.device());
  }
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
  const Turn turn(devices.device());
  if (self.is_cpu()) {
    turn.raise_failures();
  }
  const OpenTensor open_self(self, true), open_source(source, false);
  at::_ops::copy_::redispatch(kCpuKernel, twin_or_self(self), twin_or_self(source), non_blocking);
  return self;
}

// The host's memory must be there, and may be changed, when the graph is replayed.
void check_capturable(const at::Tensor &self, const at::Tensor &source,
                      const CopyDevices &devices) {
  const auto &host = self.is_cpu() ? self : source;
  if (!host.is_cpu() || host.is_pinned() || !is_capturing(devices.device())) {
    return;
  }
  (void)openreg_capture_refuse(devices.device(), current_stream(devices.device()),
                               "a copy of pageable memory");
  TORCH_CHECK(false, "Cannot copy between CPU and ", platform_name(), " tensors during ",
              platform_name(),
              " graph capture unless the CPU tensor is pinned. Please use "
              "tensor.pin_memory() or allocate the tensor with pin_memory=True.");
}

at::Tensor &copy_(at::Tensor &self, const at::Tensor &source, bool non_blocking) {
  check_copyable(self);
  check_copyable(source);
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

// A number that goes to the host brings a failure with it, as a copy does.
at::Scalar item(const at::Tensor &self) {
  note_sync(self.device().index());
  note_wait(self.device().index());
  const MemoryNote note(self, MemoryNote::kToNumber);
  const Turn turn(self.device().index());
  turn.raise_failures();
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

// A copy reads the lazy marks of both ends itself. Resolving them first would copy, without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

} // namespace openreg
