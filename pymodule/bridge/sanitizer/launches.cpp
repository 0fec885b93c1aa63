#include "sanitizer/launches.h"

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <exception>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/device_type.h"
#include "core/status.h"
#include "device/capture.h"
#include "sanitizer/bad_indices.h"
#include "sanitizer/call_sites.h"
#include "sanitizer/calls.h"
#include "sanitizer/captures.h"
#include "sanitizer/descriptions.h"
#include "sanitizer/forward_sites.h"
#include "sanitizer/host_memory.h"
#include "sanitizer/tables.h"
#include "streams/current.h"

namespace openreg {

namespace {

// ---- which calls are reported -------------------------------------------------------------------

constexpr auto kWrappers =
    c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                         c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize});
constexpr auto kModes =
    c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                         c10::DispatchKey::Functionalize, c10::DispatchKey::PythonDispatcher});

bool is_wrapper(const at::Tensor &tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has_any(kWrappers);
}

// Returns whether a mode, autocast or a wrapper handles the call, and makes other calls instead.
bool is_intercepted(const at::RecordFunction &function, const c10::OperatorHandle &op) {
  const auto tls = c10::impl::tls_local_dispatch_key_set();
  if (tls.included_.has_any(kModes)) {
    return true;
  }
  if (tls.included_.has(kDeviceKeys.autocast) && !tls.excluded_.has(kDeviceKeys.autocast) &&
      op.hasKernelForDispatchKey(kDeviceKeys.autocast)) {
    return true;
  }
  bool any = false;
  for (const auto &input : function.inputs()) {
    for_each_tensor(input, [&](const at::Tensor &tensor) { any = any || is_wrapper(tensor); });
  }
  return any;
}

// ---- which operator -----------------------------------------------------------------------------

struct KnownOperator {
  const char *name = nullptr, *overload = nullptr;
  std::optional<c10::OperatorHandle> op;
  const Roles *roles = nullptr;
  bool has_indices = false;
};

constexpr size_t kCacheSlots = 512;
constinit thread_local std::array<KnownOperator, kCacheSlots> *operator_cache = nullptr;

// Finds an operator by the address of its name, which is the same as long as the operator exists.
// Returns null if the function is no operator.
const KnownOperator *find_operator(const at::RecordFunction &function) {
  if (operator_cache == nullptr) {
    operator_cache = new std::array<KnownOperator, kCacheSlots>(); // never freed
  }
  const char *const name = function.name(), *const overload = function.overload_name();
  auto &known = (*operator_cache)[(reinterpret_cast<uintptr_t>(name) >> 4) % kCacheSlots];
  if (known.name != name || known.overload != overload) {
    known = {name, overload, std::nullopt, nullptr, takes_indices(name)};
    if (const auto full = function.operator_name(); full.has_value()) {
      known.op = c10::Dispatcher::singleton().findSchema(*full);
      known.roles = known.op.has_value() ? &roles_of(*known.op) : nullptr;
    }
  }
  return known.roles == nullptr ? nullptr : &known;
}

// ---- before the call ----------------------------------------------------------------------------

// Returns whether an operator without tensor arguments creates some on a device.
bool names_device(c10::ArrayRef<const c10::IValue> inputs) {
  for (const auto &input : inputs) {
    if (input.isDevice() && input.toDevice().type() == kDeviceType) {
      return true;
    }
  }
  return false;
}

// Prepares the checks of indices and red zones that follow the call.
void watch_arguments(SanitizerSession &session, OperatorCall &call, bool has_indices,
                     c10::ArrayRef<const c10::IValue> inputs) {
  if (call.kind == OperatorCall::Kind::kLaunch) {
    if (has_indices) {
      call.indexed.assign(inputs.begin(), inputs.end());
    }
    return;
  }
  if (call.device < 0) {
    return;
  }
  call.red_zones = RedZones::make(session, {call.device, current_stream(call.device)},
                                  call.call_site, call.name, call.overload);
  if (call.red_zones != nullptr) {
    for (size_t i = 0; i < call.accesses.size(); ++i) {
      call.red_zones->watch(call.accesses[i].region.address, call.accesses[i].tag);
    }
    call.red_zones->begin();
  }
}

// Reports an operator of the host before it accesses its arguments, then makes their pages
// accessible: the report has already covered a conflict there.
std::unique_ptr<at::ObserverContext> begin_on_host(SanitizerSession &session,
                                                   std::unique_ptr<OperatorCall> call,
                                                   const at::RecordFunction &function) {
  call->kind = OperatorCall::Kind::kHost;
  call->includes_pinned = true;
  add_arguments(*call, function.inputs());
  if (call->accesses.size() == 0) {
    return nullptr;
  }
  const auto call_site = backward_call_site(current_call_site(), call->forward_call_site);
  const openreg_sanitizer_launch launch{.thread = session.host(),
                                        .submitter = nullptr,
                                        .call_site = call_site,
                                        .accesses = call->accesses.data(),
                                        .count = call->accesses.size()};
  check(openreg_sanitizer_check_launch(session.sanitizer(), &launch));
  for (const auto &input : function.inputs()) {
    for_each_tensor(input, [&](const at::Tensor &tensor) {
      if (is_known_pinned(tensor)) {
        const auto &storage = tensor.storage();
        call->host_accesses.push_back(
            std::make_unique<HostAccess>(storage.data(), storage.nbytes(), true));
      }
    });
  }
  return enter_call(std::move(call));
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction &function) {
  auto *const session = SanitizerSession::active();
  if (ObserverPause::any() || session == nullptr || is_in_launch() || is_in_host_operator()) {
    return nullptr;
  }
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    auto call = std::make_unique<OperatorCall>();
    call->kind = OperatorCall::Kind::kBackward;
    call->forward_call_site = forward_call_site_of(function);
    return enter_call(std::move(call));
  }
  const auto *known = find_operator(function);
  if (known == nullptr || !known->roles->is_leaf || is_intercepted(function, *known->op)) {
    return nullptr;
  }
  const auto *const outer = innermost_call();
  auto call = std::make_unique<OperatorCall>();
  call->kind =
      known->roles->is_foreign ? OperatorCall::Kind::kForeign : OperatorCall::Kind::kLaunch;
  call->forward_call_site = outer == nullptr ? 0 : outer->forward_call_site;
  call->roles = known->roles;
  call->name = known->name;
  call->overload = known->overload;
  add_arguments(*call, function.inputs());
  if (call->device < 0 && !names_device(function.inputs())) {
    return call->kind == OperatorCall::Kind::kLaunch
               ? begin_on_host(*session, std::move(call), function)
               : nullptr;
  }
  const auto here = current_call_site();
  record_forward(function, here);
  call->call_site = backward_call_site(here, call->forward_call_site);
  call->synchronizes = call->synchronizes || call->roles->synchronizes;
  watch_arguments(*session, *call, known->has_indices, function.inputs());
  return enter_call(std::move(call));
}

// ---- after the call -----------------------------------------------------------------------------

void report(SanitizerSession &session, StreamKey stream, uint64_t call_site, Accesses &&accesses) {
  if (accesses.size() == 0) {
    return;
  }
  for (auto *call = innermost_call(); call != nullptr; call = call->outer) {
    call->has_reported = true;
  }
  report_launch(session, stream, call_site, std::move(accesses));
}

// Marks everything that a foreign operator may have written, as its own kernel is not known.
void initialize_written(SanitizerSession &session, OperatorCall &call,
                        const at::RecordFunction &function) {
  for (const auto &output : function.outputs()) {
    for_each_tensor(output, [&](const at::Tensor &tensor) {
      if (is_plain(tensor)) {
        call.written.push_back(tensor);
      }
    });
  }
  session.initialize(call.written);
}

void check_arguments(SanitizerSession &session, OperatorCall &call,
                     const at::RecordFunction &function, bool has_raised) {
  if (call.red_zones != nullptr) {
    for (const auto &output : function.outputs()) {
      for_each_tensor(output, [&](const at::Tensor &tensor) {
        if (is_plain(tensor)) {
          call.red_zones->name_result(tensor);
        }
      });
    }
    call.red_zones->end();
  }
  if (has_raised && !call.indexed.empty() && call.device >= 0) {
    const auto op = c10::Dispatcher::singleton().findSchema({call.name, call.overload});
    const StreamKey stream{call.device, current_stream(call.device)};
    if (op.has_value() && openreg_stream_is_idle(stream.device, stream.stream)) {
      watch_indices(session, stream, call.call_site, *op, call.indexed)->fail();
    }
  }
}

void end(const at::RecordFunction &function, at::ObserverContext *context) {
  if (context == nullptr) {
    return;
  }
  auto &call = *static_cast<OperatorCall *>(context);
  leave_call(call);
  if (call.kind == OperatorCall::Kind::kBackward || call.kind == OperatorCall::Kind::kHost) {
    return;
  }
  auto *const active = SanitizerSession::active();
  if (active == nullptr) { // stopped since the call began
    return;
  }
  auto &session = *active;
  const bool has_raised = std::uncaught_exceptions() > call.exceptions;
  check_arguments(session, call, function, has_raised);
  if (has_raised) {
    return;
  }
  if (call.kind == OperatorCall::Kind::kForeign && call.has_reported) {
    initialize_written(session, call, function);
    return;
  }
  for (const auto &output : function.outputs()) {
    for_each_tensor(output, [&](const at::Tensor &tensor) { add_result(call, tensor); });
  }
  if (call.device < 0) {
    return;
  }
  const StreamKey stream{call.device, current_stream(call.device)};
  if (openreg_stream_is_capturing(stream.device, stream.stream)) {
    initialize_written(session, call, function); // everything counts as written until a replay
    report(session, stream, call.call_site, std::move(call.accesses));
    return;
  }
  const bool is_between_devices = call.source_device >= 0;
  const StreamKey source{call.source_device,
                         is_between_devices ? current_stream(call.source_device) : 0};
  if (is_between_devices) {
    session.order(source, stream);
  }
  report(session, stream, call.call_site, std::move(call.accesses));
  if (is_between_devices) {
    session.order(stream, source);
  }
  if (call.synchronizes) {
    synchronize_host(session, stream);
  }
}

// Returns a copy of a name that lives as long as the process.
const char *intern(const std::string &name) {
  static auto &names = *new std::unordered_set<std::string>();
  const std::lock_guard lock(tables_mutex());
  return names.insert(name).first->c_str();
}

} // namespace

void synchronize_host(SanitizerSession &session, StreamKey stream) {
  openreg_sanitizer_order(session.sanitizer(), session.thread_of(stream), session.host());
  unprotect_completed(session);
}

void report_work(SanitizerSession &session, StreamKey stream, const Observer::Work &work) {
  const bool is_captured = openreg_stream_is_capturing(stream.device, stream.stream);
  if (is_captured) {
    session.initialize(work.writes);
  }
  Accesses accesses;
  const char *const name = intern(work.name);
  // A replay waits for all work that it starts.
  const unsigned deferred = work.is_deferred && !is_captured ? OPENREG_SANITIZER_DEFERRED : 0;
  const auto add = [&](const at::Tensor &tensor, unsigned mode) {
    if (is_plain(tensor) && tensor.numel() > 0) {
      accesses.add(tensor, mode | deferred, describe(name, "", -1, tensor));
    }
  };
  for (const auto &tensor : work.reads) {
    add(tensor, OPENREG_SANITIZER_READ | OPENREG_SANITIZER_MOVED);
  }
  const bool has_own = work.own.defined() && accesses.size() == 1;
  for (const auto &tensor : work.writes) {
    add(tensor, OPENREG_SANITIZER_WRITE);
  }
  if (has_own) {
    add(work.own, OPENREG_SANITIZER_WRITE);
    accesses.move(accesses.size() - 1, 0);
  }
  report(session, stream, current_call_site(), std::move(accesses));
}

void report_resize(SanitizerSession &session, StreamKey stream, uint64_t from, uint64_t to,
                   size_t kept, size_t bytes) {
  if (is_in_launch()) {
    return;
  }
  const auto call_site = current_call_site();
  openreg_sanitizer_block block{};
  block.address = to;
  block.bytes = bytes;
  block.call_site = call_site;
  block.owner = SanitizerSession::tag_of(stream);
  // Replaces the block that the allocator reported: only the bytes from `kept` on are unwritten. If
  // this fails for lack of memory, the sanitizer ignores the block.
  (void)openreg_sanitizer_alloc(session.sanitizer(), &block, false);
  Accesses accesses;
  const auto tag = describe("aten::resize_");
  accesses.add(to, kept, OPENREG_SANITIZER_WRITE, tag);
  accesses.add(from, kept, OPENREG_SANITIZER_READ | OPENREG_SANITIZER_MOVED, tag);
  accesses.move(0, 1);
  report(session, stream, call_site, std::move(accesses));
}

void report_transfer(SanitizerSession &session, const openreg_operation &operation) {
  if (is_in_launch()) {
    return;
  }
  const StreamKey stream{static_cast<c10::DeviceIndex>(operation.device), operation.stream};
  const auto &to = operation.to, &from = operation.from;
  if (openreg_stream_is_capturing(stream.device, stream.stream)) {
    // Until a replay, this counts as written.
    openreg_sanitizer_initialise(session.sanitizer(), reinterpret_cast<uint64_t>(to.address),
                                 (to.rows - 1) * to.pitch + to.bytes);
  }
  Accesses accesses;
  const auto add = [&](const openreg_operation_range &range, const char *argument, unsigned mode) {
    const auto tag = describe(operation.name, argument, openreg_arena_device_of(range.address));
    return accesses.add_rows(reinterpret_cast<uint64_t>(range.address), range.bytes, range.rows,
                             range.pitch, mode, tag);
  };
  if (operation.kind == OPENREG_OPERATION_FILL) {
    add(to, "devPtr", OPENREG_SANITIZER_WRITE);
  } else {
    const auto written = add(to, "dst", OPENREG_SANITIZER_WRITE);
    const auto read = add(from, "src", OPENREG_SANITIZER_READ | OPENREG_SANITIZER_MOVED);
    // The host's own writes to its memory are not seen, so host memory is never uninitialized.
    if (openreg_arena_device_of(from.address) >= 0) {
      accesses.move(written, read);
    }
  }
  report(session, stream, current_call_site(), std::move(accesses));
}

void observe_operators(bool observe) {
  static at::CallbackHandle handle = 0;
  if (!observe && handle != 0) {
    at::removeCallback(std::exchange(handle, 0));
  }
  if (!observe || handle != 0) {
    return;
  }
  handle = at::addGlobalCallback(
      at::RecordFunctionCallback(&begin, &end)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

} // namespace openreg
