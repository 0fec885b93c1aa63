#include "sanitizer/report_order.h"

#include "core/status.h"
#include "launch/boxed_operator.h"
#include "sanitizer/bad_indices.h"
#include "sanitizer/blocks.h"
#include "sanitizer/call_sites.h"
#include "sanitizer/calls.h"
#include "sanitizer/captures.h"
#include "sanitizer/host_memory.h"
#include "sanitizer/launches.h"
#include "sanitizer/red_zones.h"

namespace openreg {

void OrderReporter::order(StreamKey first, StreamKey second) {
  if (!ObserverPause::any()) {
    session_.order(first, second);
  }
}

void OrderReporter::record(const openreg_event *event, StreamKey stream, EventOrigin) {
  if (!ObserverPause::any()) {
    check(openreg_sanitizer_record(session_.sanitizer(), session_.token_of(event),
                                   session_.thread_of(stream), session_.host(),
                                   current_call_site()));
  }
}

void OrderReporter::wait(StreamKey stream, const openreg_event *event, EventOrigin) {
  if (!ObserverPause::any()) {
    openreg_sanitizer_wait(session_.sanitizer(), session_.thread_of(stream),
                           session_.token_of(event), session_.host(), current_call_site());
  }
}

void OrderReporter::forget(const openreg_event *event, EventOrigin) noexcept {
  session_.release_token(event);
}

void OrderReporter::synchronize(const openreg_event *event, EventOrigin) {
  if (!ObserverPause::any()) {
    openreg_sanitizer_wait(session_.sanitizer(), session_.host(), session_.token_of(event), nullptr,
                           current_call_site());
    unprotect_completed(session_);
  }
}

void OrderReporter::synchronize(StreamKey stream) {
  if (!ObserverPause::any() && !defer_synchronize()) {
    synchronize_host(session_, stream);
  }
}

void OrderReporter::synchronize(c10::DeviceIndex device) {
  if (!ObserverPause::any()) {
    openreg_sanitizer_synchronize(session_.sanitizer(), device, session_.host());
    unprotect_completed(session_);
  }
}

void OrderReporter::found_done(const openreg_event *event) {
  synchronize(event, EventOrigin::kProgram);
}

void OrderReporter::found_done(StreamKey stream) {
  synchronize(stream);
}

void OrderReporter::launch(StreamKey stream, const Work &work) {
  if (!ObserverPause::any()) {
    report_work(session_, stream, work);
  }
}

std::unique_ptr<Observer::LaunchObserver>
OrderReporter::queue(StreamKey stream, const c10::OperatorHandle &op,
                     c10::ArrayRef<c10::IValue> arguments) {
  return ObserverPause::any() || !takes_indices(public_name(op))
             ? nullptr
             : watch_indices(session_, stream, call_site_of_launch(), op, arguments);
}

std::unique_ptr<Observer::CaptureObserver> OrderReporter::begin_capture(uint64_t capture) {
  return observe_capture(capture);
}

void OrderReporter::resize(StreamKey stream, const void *from, const void *to, size_t kept,
                           size_t bytes) {
  if (!ObserverPause::any()) {
    report_resize(session_, stream, reinterpret_cast<uint64_t>(from),
                  reinterpret_cast<uint64_t>(to), kept, bytes);
  }
}

void OrderReporter::fill(at::TensorList tensors) {
  session_.initialize(tensors);
}

void OrderReporter::allocated(const openreg_block &block) {
  watch_allocated_block(block);
}

void OrderReporter::begin_free(const openreg_block &) {
  set_free_call_site();
}

void OrderReporter::record_use(const void *address, StreamKey stream) {
  session_.add_use(address, stream);
}

void OrderReporter::pinned(const void *address, size_t bytes) {
  add_pinned(session_, address, bytes);
}

void OrderReporter::unpin(const void *address) {
  remove_pinned(session_, address);
}

void OrderReporter::begin_host_access(const void *address, size_t bytes, bool writes) {
  begin_device_access(address, bytes, writes);
}

void OrderReporter::end_host_access(const void *address, size_t bytes, bool writes) {
  end_device_access(address, bytes, writes);
}

bool OrderReporter::write_to_host(void *to, const void *from, size_t bytes) {
  return write_to_protected(to, from, bytes);
}

} // namespace openreg
