#include "distributed/occl/work.h"

#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "distributed/arguments.h"
#include "distributed/work_results.h"
#include "streams/inline_guard.h"
#include "streams/observer.h"

namespace openreg {

namespace {

constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(50);

// Lets Ctrl-C interrupt a wait on the host.
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

OcclWork::OcclWork(WorkInfo facts, const std::optional<Tensors> &inputs, Tensors outputs)
    : Work(facts.rank, facts.type, inputs ? facts.title.c_str() : nullptr, inputs),
      info_(std::move(facts)), outputs_(std::move(outputs)) {}

// If nobody has waited for the work, the allocator must not reuse the tensors' memory before the
// work is done.
OcclWork::~OcclWork() {
  if (used_.empty()) {
    return;
  }
  if (is_done()) { // report the use nevertheless, because in the next run it may not be done
    notify_observers([this](Observer &observer) {
      for (const auto &tensor : used_) {
        observer.record_use(tensor.storage().data(), {info_.device, info_.stream});
      }
    });
    return;
  }
  const c10::impl::VirtualGuardImpl guard(kDeviceType);
  for (const auto &tensor : used_) {
    guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_of(info_.device, info_.stream));
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
                   outcome_->message());
}

int OcclWork::sourceRank() const {
  return info_.source >= 0 ? info_.source : Work::sourceRank();
}

void OcclWork::synchronize() {
  if (end_ != nullptr) {
    int stream = OPENREG_STREAM_DEFAULT;
    check(openreg_stream_current(info_.device, &stream));
    const WithoutGil no_gil;
    if (!info_.is_message) {
      communicator_->note_wait(call_, info_.device);
    }
    wait_for_event_on({info_.device, stream}, end_.get());
  }
  Tensors used;
  {
    const std::lock_guard lock(mutex_of_used_);
    used.swap(used_);
  }
}

bool OcclWork::wait(std::chrono::milliseconds timeout) {
  RECORD_PARAM_COMMS(std::make_tuple(static_cast<int64_t>(info_.number), info_.is_message),
                     std::make_tuple(info_.group, info_.description), rank_, "wait", 0, 0,
                     at::kByte, std::vector<int64_t>(), std::vector<int64_t>(), -1, -1, 1);
  synchronize();
  const bool blocks_host = info_.is_blocking || timeout != kNoTimeout || info_.is_barrier;
  if (blocks_host && end_ != nullptr) {
    notify_observers(
        [this](Observer &observer) { observer.synchronize(end_.get(), EventOrigin::kInternal); });
  }
  if (info_.is_blocking || timeout != kNoTimeout) {
    wait_on_host(timeout == kNoTimeout ? info_.timeout : timeout);
  } else if (info_.is_barrier && !is_done()) {
    wait_for_event(end_.get());
  }
  raise_failure();
  if (c10d::allow_inflight_collective_as_graph_input()) {
    c10d::unregister_work(c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this));
  }
  return true;
}

void OcclWork::wait_on_host(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!is_done()) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= std::chrono::steady_clock::duration::zero()) {
      const auto message = c10::str(
          "[Rank ", rank_, "] Watchdog caught collective operation timeout: Work", backend_title(),
          "(SeqNum=", info_.number, ", OpType=", c10d::opTypeToString(retrieveOpType()),
          ", Timeout(ms)=", timeout.count(), ") timed out in blocking wait.");
      outcome_->set_timed_out();
      communicator_->note_failure(Communicator::FirstFailure::kTimeout);
      communicator_->abort(message);
      TORCH_CHECK_WITH(DistBackendError, false, message);
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
    communicator_->abort("the program aborted a work of it");
  }
}

// The future is complete as soon as the work is queued, as with CUDA: a thread that takes its value
// makes its streams wait for the stream that was current at completion. It is created on demand, on
// a stream that waits for this work.
c10::intrusive_ptr<c10::ivalue::Future> OcclWork::getFuture() {
  const std::lock_guard lock(mutex_of_future_);
  if (!future_) {
    const c10::Device device(kDeviceType, info_.device);
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
    check(openreg_stream_from_pool(info_.device, 0, &stream));
    wait_for_event_on({info_.device, stream}, end_.get());
    const auto waiting = stream_of(info_.device, stream);
    const c10::MultiStreamGuard guard(waiting);
    future_->markCompleted(c10::IValue(outputs_));
  }
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> OcclWork::getFutureResult() {
  const std::lock_guard lock(mutex_of_future_);
  if (!future_result_) {
    TORCH_CHECK(
        end_ != nullptr,
        "openreg: result() is not available for a single operation of a coalesced group; use "
        "the group's Work");
    future_result_ = WorkResults::get().add(end_, outcome_);
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
