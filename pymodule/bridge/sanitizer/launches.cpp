#include "sanitizer/launches.h"

#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/device_type.h"
#include "device/capture.h"
#include "sanitizer/bad_indices.h"
#include "sanitizer/calls.h"
#include "sanitizer/captures.h"
#include "sanitizer/descriptions.h"
#include "sanitizer/forward_sites.h"
#include "sanitizer/host_memory.h"
#include "sanitizer/call_sites.h"
#include "sanitizer/tables.h"
#include "streams/current.h"

namespace openreg {

namespace {

std::atomic<ToldOrder *> told{nullptr};

// ---- which calls are told of --------------------------------------------------------------------

constinit thread_local OperatorCall *current = nullptr;

bool is_in_host() {
  return current != nullptr && current->kind == OperatorCall::Kind::kHost;
}

bool is_in_launch() {
  return current != nullptr && current->kind == OperatorCall::Kind::kLaunch;
}

constexpr auto kWrappers =
    c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                         c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize});
constexpr auto kModes =
    c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                         c10::DispatchKey::Functionalize, c10::DispatchKey::PythonDispatcher});

bool is_wrapper(const at::Tensor &tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has_any(kWrappers);
}

// Whether something between the program and the kernels takes the call and makes others.
bool is_taken_by_others(const at::RecordFunction &function, const c10::OperatorHandle &op) {
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

struct Known {
  const char *name = nullptr, *overload = nullptr;
  std::optional<c10::OperatorHandle> op;
  const Roles *roles = nullptr;
  bool has_indices = false;
};

constexpr size_t kKnown = 512;
constinit thread_local std::array<Known, kKnown> *known_here = nullptr;

// By where its name lies, which stays as long as the operator. Null: it is none.
const Known *find_operator(const at::RecordFunction &function) {
  if (known_here == nullptr) {
    known_here = new std::array<Known, kKnown>(); // kept
  }
  const char *const name = function.name(), *const overload = function.overload_name();
  auto &known = (*known_here)[(reinterpret_cast<uintptr_t>(name) >> 4) % kKnown];
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

// Whether an operator without tensors makes some on a device.
bool names_device(c10::ArrayRef<const c10::IValue> inputs) {
  for (const auto &input : inputs) {
    if (input.isDevice() && input.toDevice().type() == kDeviceType) {
      return true;
    }
  }
  return false;
}

// What its arguments are may be judged by their memory when it has ended.
void watch_arguments(ToldOrder &order, OperatorCall &call, bool has_indices,
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
  call.zones = RedZones::make(order, {call.device, current_stream(call.device)}, call.place,
                              call.name, call.overload);
  if (call.zones != nullptr) {
    for (size_t i = 0; i < call.accesses.size(); ++i) {
      call.zones->watch(call.accesses[i].region.address, call.accesses[i].tag);
    }
    call.zones->begin();
  }
}

std::unique_ptr<at::ObserverContext> enter(std::unique_ptr<OperatorCall> call) {
  call->outer = current;
  current = call.get();
  return call;
}

// An operator of the host is told of before it touches its arguments, which are then open to it:
// what is closed there it has been blamed for.
std::unique_ptr<at::ObserverContext> begin_on_host(ToldOrder &order,
                                                   std::unique_ptr<OperatorCall> call,
                                                   const at::RecordFunction &function) {
  call->kind = OperatorCall::Kind::kHost;
  call->sees_pinned = true;
  see_arguments(*call, function.inputs());
  if (call->accesses.size() == 0) {
    return nullptr;
  }
  const openreg_sanitizer_launch launch{.actor = order.host(),
                                        .submitter = nullptr,
                                        .site = backward_place(place_here(), call->forward),
                                        .accesses = call->accesses.data(),
                                        .count = call->accesses.size()};
  check(openreg_sanitizer_run_launch(order.layer(), &launch));
  for (const auto &input : function.inputs()) {
    for_each_tensor(input, [&](const at::Tensor &tensor) {
      if (is_known_pinned(tensor)) {
        const auto &storage = tensor.storage();
        call->open.push_back(std::make_unique<OpenHost>(storage.data(), storage.nbytes(), true));
      }
    });
  }
  return enter(std::move(call));
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction &function) {
  auto *const order = told.load(std::memory_order_acquire);
  if (Unwatched::any() || order == nullptr || is_in_launch() || is_in_host()) {
    return nullptr;
  }
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    auto call = std::make_unique<OperatorCall>();
    call->kind = OperatorCall::Kind::kBackward;
    call->forward = forward_of(function);
    return enter(std::move(call));
  }
  const auto *known = find_operator(function);
  if (known == nullptr || !known->roles->is_leaf || is_taken_by_others(function, *known->op)) {
    return nullptr;
  }
  auto call = std::make_unique<OperatorCall>();
  call->kind =
      known->roles->is_foreign ? OperatorCall::Kind::kForeign : OperatorCall::Kind::kLaunch;
  call->forward = current == nullptr ? 0 : current->forward;
  call->roles = known->roles;
  call->name = known->name;
  call->overload = known->overload;
  see_arguments(*call, function.inputs());
  if (call->device < 0 && !names_device(function.inputs())) {
    return call->kind == OperatorCall::Kind::kLaunch
               ? begin_on_host(*order, std::move(call), function)
               : nullptr;
  }
  const auto here = place_here();
  note_forward(function, here);
  call->place = backward_place(here, call->forward);
  call->is_waited_for = call->is_waited_for || call->roles->is_waited_for;
  watch_arguments(*order, *call, known->has_indices, function.inputs());
  return enter(std::move(call));
}

// ---- after it -----------------------------------------------------------------------------------

void tell_now(ToldOrder &order, Queue queue, uint64_t place,
              const openreg_sanitizer_access *accesses, size_t count) {
  const openreg_sanitizer_launch launch{.actor = order.actor_of(queue),
                                        .submitter = order.host(),
                                        .site = place,
                                        .accesses = accesses,
                                        .count = count};
  check(openreg_sanitizer_run_launch(order.layer(), &launch));
  close_pages(order, accesses, count);
}

void tell(ToldOrder &order, Queue queue, uint64_t place, Accesses &&accesses) {
  if (accesses.size() == 0) {
    return;
  }
  for (auto *call = current; call != nullptr; call = call->outer) {
    call->has_told = true;
  }
  if (openreg_stream_is_capturing(queue.device, queue.stream)) {
    keep_launch(queue, place, std::move(accesses));
  } else {
    tell_now(order, queue, place, accesses.data(), accesses.size());
  }
}

// What it wrote itself, besides by what it called, is not known: its results count as written.
void end_foreign(ToldOrder &order, OperatorCall &call, const at::RecordFunction &function) {
  for (const auto &output : function.outputs()) {
    for_each_tensor(output, [&](const at::Tensor &tensor) {
      if (is_plain(tensor)) {
        call.written.push_back(tensor);
      }
    });
  }
  order.fill(call.written);
}

void look_at_arguments(ToldOrder &order, OperatorCall &call, const at::RecordFunction &function,
                       bool is_refused) {
  if (call.zones != nullptr) {
    for (const auto &output : function.outputs()) {
      for_each_tensor(output, [&](const at::Tensor &tensor) {
        if (is_plain(tensor)) {
          call.zones->name_result(tensor);
        }
      });
    }
    call.zones->end();
  }
  if (is_refused && !call.indexed.empty() && call.device >= 0) {
    const auto op = c10::Dispatcher::singleton().findSchema({call.name, call.overload});
    const Queue queue{call.device, current_stream(call.device)};
    if (op.has_value() && openreg_stream_is_idle(queue.device, queue.stream)) {
      watch_indices(order, queue, call.place, *op, call.indexed)->fail();
    }
  }
}

void end(const at::RecordFunction &function, at::ObserverContext *context) {
  if (context == nullptr) {
    return;
  }
  auto &call = *static_cast<OperatorCall *>(context);
  current = call.outer;
  if (call.kind == OperatorCall::Kind::kBackward || call.kind == OperatorCall::Kind::kHost) {
    return;
  }
  auto *const watching = told.load(std::memory_order_acquire);
  if (watching == nullptr) { // since the call began
    return;
  }
  auto &order = *watching;
  const bool is_refused = std::uncaught_exceptions() > call.exceptions;
  look_at_arguments(order, call, function, is_refused);
  if (is_refused) {
    return;
  }
  if (call.kind == OperatorCall::Kind::kForeign && call.has_told) {
    end_foreign(order, call, function);
    return;
  }
  for (const auto &output : function.outputs()) {
    for_each_tensor(output, [&](const at::Tensor &tensor) { see_result(call, tensor); });
  }
  if (call.device < 0) {
    return;
  }
  const Queue queue{call.device, current_stream(call.device)};
  if (openreg_stream_is_capturing(queue.device, queue.stream)) {
    end_foreign(order, call, function); // until the first replay all counts as written
    tell(order, queue, call.place, std::move(call.accesses));
    return;
  }
  const Queue other{call.other, call.other < 0 ? 0 : current_stream(call.other)};
  if (call.other >= 0) {
    order.order(other, queue);
  }
  tell(order, queue, call.place, std::move(call.accesses));
  if (call.other >= 0) {
    order.order(queue, other);
  }
  if (call.is_waited_for) {
    order.synchronize(queue);
  }
}

} // namespace

bool wait_in_launch() {
  if (!is_in_launch()) {
    return false;
  }
  current->is_waited_for = true;
  return true;
}

uint64_t place_of_launch() {
  return is_in_launch() ? current->place : place_here();
}

Allocating allocating_now() {
  if (!is_in_launch()) {
    return {0, false};
  }
  const auto &context = at::globalContext();
  const bool is_filled =
      context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
  return {current->place, current->roles->leaves_unwritten && !is_filled};
}

void tell_order(Queue first, Queue second) {
  if (auto *const order = told.load(std::memory_order_acquire); order != nullptr) {
    order->order(first, second);
  }
}

void tell_launch(Queue queue, uint64_t place, const openreg_sanitizer_access *accesses,
                 size_t count) {
  auto *const order = told.load(std::memory_order_acquire);
  if (order != nullptr && !Unwatched::any()) {
    tell_now(*order, queue, place, accesses, count);
  }
}

// A name that stays where it is.
const char *keep(const std::string &name) {
  static auto &names = *new std::unordered_set<std::string>();
  const std::lock_guard lock(tables_mutex());
  return names.insert(name).first->c_str();
}

void tell_work(ToldOrder &order, Queue queue, const Watcher::Work &work) {
  const bool is_captured = openreg_stream_is_capturing(queue.device, queue.stream);
  if (is_captured) {
    order.fill(work.writes);
  }
  Accesses accesses;
  const char *const name = keep(work.name);
  // A replay waits for all that it begins.
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
  tell(order, queue, place_here(), std::move(accesses));
}

void tell_resize(ToldOrder &order, Queue queue, uint64_t from, uint64_t to, size_t kept,
                 size_t bytes) {
  if (is_in_launch()) {
    return;
  }
  const auto place = place_here();
  openreg_sanitizer_block block{};
  block.address = to;
  block.bytes = bytes;
  block.site = place;
  block.owner = ToldOrder::tag_of(queue);
  // In the place of the one that the allocator told of. Without memory for it, nothing is said of
  // it.
  (void)openreg_sanitizer_alloc(order.layer(), &block, false);
  Accesses accesses;
  const auto tag = describe("aten::resize_");
  accesses.add(to, kept, OPENREG_SANITIZER_WRITE, tag);
  accesses.add(from, kept, OPENREG_SANITIZER_READ | OPENREG_SANITIZER_MOVED, tag);
  accesses.move(0, 1);
  tell(order, queue, place, std::move(accesses));
}

void forget_launches() {
  told.store(nullptr);
}

void watch_launches(ToldOrder *order) {
  static at::CallbackHandle handle = 0;
  told.store(order, std::memory_order_release);
  if (order == nullptr && handle != 0) {
    at::removeCallback(std::exchange(handle, 0));
  }
  if (order == nullptr || handle != 0) { // a fork has its parent's
    return;
  }
  handle = at::addGlobalCallback(
      at::RecordFunctionCallback(&begin, &end)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

} // namespace openreg
