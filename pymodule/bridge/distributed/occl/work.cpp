#include "distributed/occl/work.h"

#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "distributed/arguments.h"
#include "distributed/work_results.h"
#include "streams/inline_guard.h"
#include "streams/stream_observer.h"

namespace openreg {

namespace {

constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(50);

// Ctrl-C ends the wait, as all others here.
void check_signals() {
  if (Py_IsInitialized() == 0 || Py_IsFinalizing() != 0) {
    return;
  }
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    throw python_error();
  }
}

} // namespace

OcclWork::OcclWork(Facts facts, const std::optional<Tensors> &inputs, Tensors outputs)
    : Work(facts.rank, facts.type, inputs ? facts.title.c_str() : nullptr, inputs),
      facts_(std::move(facts)), outputs_(std::move(outputs)) {}

// Nobody has waited for it: what frees the tensors must not have the memory used again before.
OcclWork::~OcclWork() {
  if (used_.empty()) {
    return;
  }
  if (is_done()) { // who watches the order is told all the same: next time it may not be
    tell_watcher([this](Watcher &watcher) {
      for (const auto &tensor : used_) {
        watcher.record_use(tensor.storage().data(), {facts_.device, facts_.stream});
      }
    });
    return;
  }
  const c10::impl::VirtualGuardImpl guard(kDeviceType);
  for (const auto &tensor : used_) {
    guard.recordDataPtrOnStream(tensor.storage().data_ptr(),
                                stream_of(facts_.device, facts_.stream));
  }
}

void OcclWork::attach(CommunicatorPtr communicator, std::shared_ptr<Outcome> outcome,
                      SharedEvent start, SharedEvent end, uint64_t call, Tensors used) {
  communicator_ = std::move(communicator);
  outcome_ = std::move(outcome);
  start_ = std::move(start);
  end_ = std::move(end);
  call_ = call;
  used_ = std::move(used);
}

void OcclWork::end_profiling() {
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
}

bool OcclWork::is_done() const {
  return end_ == nullptr || openreg_event_query(end_.get()) == OPENREG_OK;
}

bool OcclWork::isCompleted() {
  return is_done() || exception() != nullptr;
}

bool OcclWork::isSuccess() const {
  return is_done() && exception() == nullptr;
}

std::exception_ptr OcclWork::exception() const {
  try {
    raise_failure();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void OcclWork::raise_failure() const {
  TORCH_CHECK_WITH(DistBackendError, outcome_ == nullptr || !outcome_->has_failed(),
                   outcome_->sentence());
}

int OcclWork::sourceRank() const {
  return facts_.source >= 0 ? facts_.source : Work::sourceRank();
}

void OcclWork::synchronize() {
  if (end_ != nullptr) {
    int stream = OPENREG_STREAM_DEFAULT;
    check(openreg_stream_current(facts_.device, &stream));
    const WithoutGil no_gil;
    if (!facts_.is_message) {
      communicator_->wait(call_, facts_.device);
    }
    wait_for_event_on({facts_.device, stream}, end_.get());
  }
  Tensors used;
  {
    const std::lock_guard lock(mutex_of_used_);
    used.swap(used_);
  }
}

bool OcclWork::wait(std::chrono::milliseconds timeout) {
  RECORD_PARAM_COMMS(std::make_tuple(static_cast<int64_t>(facts_.number), facts_.is_message),
                     std::make_tuple(facts_.group, facts_.description), rank_, "wait", 0, 0,
                     at::kByte, std::vector<int64_t>(), std::vector<int64_t>(), -1, -1, 1);
  synchronize();
  const bool is_host_to_wait = facts_.blocks || timeout != kNoTimeout || facts_.is_barrier;
  if (is_host_to_wait && end_ != nullptr) {
    tell_watcher([this](Watcher &watcher) { watcher.synchronize(end_.get()); });
  }
  if (facts_.blocks || timeout != kNoTimeout) {
    wait_on_host(timeout == kNoTimeout ? facts_.timeout : timeout);
  } else if (facts_.is_barrier && !is_done()) {
    wait_for_event(end_.get());
  }
  raise_failure();
  return true;
}

void OcclWork::wait_on_host(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!is_done()) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= std::chrono::steady_clock::duration::zero()) {
      const auto sentence = c10::str(
          "[Rank ", rank_, "] Watchdog caught collective operation timeout: Work", backend_title(),
          "(SeqNum=", facts_.number, ", OpType=", c10d::opTypeToString(retrieveOpType()),
          ", Timeout(ms)=", timeout.count(), ") timed out in blocking wait.");
      outcome_->note_late();
      communicator_->abort(sentence);
      TORCH_CHECK_WITH(DistBackendError, false, sentence);
    }
    const auto slice = std::min<std::chrono::nanoseconds>(left, kSlice);
    const WithoutGil no_gil;
    const auto status =
        openreg_event_synchronize_for(end_.get(), static_cast<uint64_t>(slice.count()));
    if (status != OPENREG_NOT_READY) {
      check(status);
    } else {
      check_signals();
    }
  }
}

void OcclWork::abort() {
  if (communicator_ != nullptr) {
    communicator_->abort("its work was aborted");
  }
}

// It is complete as soon as the work is queued, as with CUDA: who takes its value waits for the
// streams that were current then, on streams. Made when it is asked for, which is rare: on a stream
// that waits for this work.
c10::intrusive_ptr<c10::ivalue::Future> OcclWork::getFuture() {
  const std::lock_guard lock(mutex_of_future_);
  if (!future_) {
    const c10::Device device(kDeviceType, facts_.device);
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{device});
    if (const auto failure = exception()) {
      future_->setError(failure);
      return future_;
    }
    if (end_ == nullptr) {
      future_->markCompleted(c10::IValue(outputs_));
      return future_;
    }
    int stream = OPENREG_STREAM_DEFAULT;
    check(openreg_stream_from_pool(facts_.device, 0, &stream));
    wait_for_event_on({facts_.device, stream}, end_.get());
    const auto waiting = stream_of(facts_.device, stream);
    const c10::MultiStreamGuard guard(waiting);
    future_->markCompleted(c10::IValue(outputs_));
  }
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> OcclWork::getFutureResult() {
  const std::lock_guard lock(mutex_of_future_);
  if (!future_result_) {
    TORCH_CHECK(end_ != nullptr,
                "openreg: only what is called together has a result, not its parts");
    future_result_ = WorkResults::get().of(end_, outcome_);
  }
  return future_result_;
}

float OcclWork::getDuration() const {
  TORCH_CHECK(start_ != nullptr, "getDuration only works if timing was enabled");
  double milliseconds = 0;
  check(openreg_event_elapsed_ms(start_.get(), end_.get(), &milliseconds));
  return static_cast<float>(milliseconds);
}

} // namespace openreg
