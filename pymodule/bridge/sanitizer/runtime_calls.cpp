#include "sanitizer/runtime_calls.h"

#include <exception>
#include <optional>

#include "device/operations.h"
#include "sanitizer/host_memory.h"
#include "sanitizer/call_sites.h"
#include "sanitizer/launches.h"
#include "sanitizer/report_order.h"
#include "sanitizer/session.h"

namespace openreg {

namespace {

using Range = openreg_operation_range;

size_t bytes_of(const Range &range) {
  return (range.rows - 1) * range.pitch + range.bytes;
}

template <class Do> void for_host_memory(const openreg_operation &operation, Do act) {
  for (const auto *range : {&operation.to, &operation.from}) {
    if (range->address != nullptr) {
      act(range->address, bytes_of(*range), range == &operation.to);
    }
  }
}

void add_block(SanitizerSession &session, const openreg_operation &operation) {
  openreg_sanitizer_block block{};
  block.address = reinterpret_cast<uint64_t>(operation.to.address);
  block.bytes = operation.to.bytes;
  block.call_site = current_call_site();
  block.owner = SanitizerSession::tag_of(
      {static_cast<c10::DeviceIndex>(operation.device), OPENREG_STREAM_DEFAULT});
  // Other processes and other libraries may write to it unseen, so it is never uninitialized. If
  // this fails for lack of memory, the sanitizer ignores the block.
  (void)openreg_sanitizer_alloc(session.sanitizer(), &block, /*is_initialised=*/true);
}

// The runtime gives memory out again only after its users, so the next block has a new history.
void remove_block(SanitizerSession &session, const openreg_operation &operation) {
  const auto address = reinterpret_cast<uint64_t>(operation.to.address);
  openreg_sanitizer_free(session.sanitizer(), address, 0);
  openreg_sanitizer_forget(session.sanitizer(), address, operation.to.bytes);
}

// A host function of a stream is a part of the stream's work. The sanitizer knows no accesses of
// such work, so it ignores the thread meanwhile. This does not depend on the session, which may end
// in between.
constinit thread_local std::optional<ObserverPause> host_function;

void report(SanitizerSession &session, const openreg_operation &operation) {
  OrderReporter reporter(session);
  const auto device = static_cast<c10::DeviceIndex>(operation.device);
  const StreamKey stream{device, operation.stream};
  switch (operation.kind) {
  case OPENREG_OPERATION_RECORD:
    reporter.record(operation.event, stream, EventOrigin::kProgram);
    break;
  case OPENREG_OPERATION_WAIT:
    reporter.wait(stream, operation.event, EventOrigin::kProgram);
    break;
  case OPENREG_OPERATION_FORGET:
    reporter.forget(operation.event, EventOrigin::kProgram);
    break;
  case OPENREG_OPERATION_ORDER:
    reporter.order({device, operation.awaited}, stream);
    break;
  case OPENREG_OPERATION_SYNC_EVENT:
    reporter.synchronize(operation.event, EventOrigin::kProgram);
    break;
  case OPENREG_OPERATION_SYNC_STREAM:
    reporter.synchronize(stream);
    break;
  case OPENREG_OPERATION_SYNC_DEVICE:
    reporter.synchronize(device);
    break;
  case OPENREG_OPERATION_COPY:
  case OPENREG_OPERATION_FILL:
    if (!ObserverPause::any()) {
      report_transfer(session, operation);
    }
    break;
  case OPENREG_OPERATION_ALLOCATED:
    add_block(session, operation);
    break;
  case OPENREG_OPERATION_FREE:
    remove_block(session, operation);
    break;
  case OPENREG_OPERATION_PINNED:
    reporter.pinned(operation.to.address, operation.to.bytes);
    break;
  case OPENREG_OPERATION_UNPIN:
    reporter.unpin(operation.to.address);
    break;
  case OPENREG_OPERATION_BEGIN_ACCESS:
    for_host_memory(operation, begin_device_access);
    break;
  case OPENREG_OPERATION_END_ACCESS:
    for_host_memory(operation, end_device_access);
    break;
  case OPENREG_OPERATION_BEGIN_CALL:
  case OPENREG_OPERATION_END_CALL:
    break; // observe() handles them
  }
}

// The caller is C, so no exception may pass. Without memory for a report, the sanitizer misses the
// operation.
void observe(const openreg_operation *operation) noexcept {
  if (operation->kind == OPENREG_OPERATION_BEGIN_CALL) {
    host_function.emplace();
  } else if (operation->kind == OPENREG_OPERATION_END_CALL) {
    host_function.reset();
  }
  auto *const session = SanitizerSession::active();
  if (session == nullptr) {
    return;
  }
  try {
    report(*session, *operation);
  } catch (const std::exception &) { // NOLINT(bugprone-empty-catch)
  }
}

} // namespace

void observe_runtime() {
  openreg_operation_set_observer(&observe);
}

} // namespace openreg
