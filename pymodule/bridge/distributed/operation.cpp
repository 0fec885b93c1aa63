#include "distributed/operation.h"

#include "distributed/flight_watch.h"
#include "device/trace.h"
#include "graph/graph.h"
#include "launch/policy.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

// How long a calling thread waits for the other ranks itself: about the time of handing over to a
// worker and back. Without a core for each rank it waits much longer, because handing over gains
// nothing then.
constexpr uint64_t kInlineWaitNs = 30'000, kCrowdedInlineWaitNs = 2'000'000;

// The data that a collective moves within a delay that a program can tolerate at each call.
constexpr size_t kMaxInlineBytes = size_t{4} << 20;

// Runs inline work on a stream, if the stream is idle.
class InlineScope {
public:
  InlineScope(c10::DeviceIndex device, int stream)
      : device_(device), stream_(stream),
        is_held_(openreg_stream_try_begin_inline(device, stream) == OPENREG_OK) {}
  ~InlineScope() {
    if (is_held_) {
      openreg_stream_end_inline(device_, stream_);
    }
  }
  InlineScope(const InlineScope &) = delete;
  InlineScope &operator=(const InlineScope &) = delete;

  bool is_held() const { return is_held_; }

private:
  c10::DeviceIndex device_;
  int stream_;
  bool is_held_;
};

} // namespace

openreg_status Operation::run() {
  if (failed_ != OPENREG_OK) {
    return openreg_fail(failed_, "%s", outcome->message().c_str());
  }
  if (has_begun_) {
    return end(communicator->finish(UINT64_MAX));
  }
  start();
  return end(run_all());
}

openreg_status Operation::replay() {
  outcome = std::make_shared<Outcome>();
  return run();
}

void Operation::start() {
  began_ = std::chrono::steady_clock::now();
  if (flight_entry != nullptr) {
    flight_entry->start();
  }
}

// Sets the outcome last, because a thread that sees a failure may end the job.
openreg_status Operation::end(openreg_status status) {
  if (ephemeral_timeout != nullptr) {
    ephemeral_timeout->end(ephemeral_owned);
  }
  if (flight_entry != nullptr) {
    flight_entry->end(status == OPENREG_OK);
  }
  if (status == OPENREG_OK) {
    return status;
  }
  const std::string message = openreg_last_error();
  const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - began_;
  const bool has_timed_out = static_cast<uint64_t>(time.count()) >= timeout_ns;
  if (has_timed_out) {
    outcome->set_timed_out();
  }
  communicator->note_failure(has_timed_out ? Communicator::FirstFailure::kTimeout
                                           : Communicator::FirstFailure::kOther);
  if (flight_entry != nullptr) {
    FlightWatch::get().notify_failure(*communicator);
  }
  return outcome->set(openreg_fail(status, "%s", message.c_str()));
}

openreg_status Operation::run_all() {
  for (auto &collective : collectives) {
    collective.call.timeout_ns = timeout_ns;
    if (const auto status = communicator->run(collective.complete()); status != OPENREG_OK) {
      return status;
    }
  }
  return messages.empty() ? OPENREG_OK : communicator->exchange(messages, timeout_ns);
}

bool Operation::try_inline() {
  if (collectives.size() != 1 || !messages.empty() || collectives[0].bytes() > kMaxInlineBytes) {
    return false;
  }
  auto &collective = collectives[0];
  collective.call.timeout_ns = timeout_ns;
  began_ = std::chrono::steady_clock::now();
  auto status = communicator->begin(collective.complete());
  if (status == OPENREG_OK) {
    has_begun_ = true;
    start();
    status = communicator->finish(communicator->has_core_per_rank() ? kInlineWaitNs
                                                                    : kCrowdedInlineWaitNs);
  }
  if (status == OPENREG_NOT_READY) {
    return false;
  }
  failed_ = end(status);
  return failed_ == OPENREG_OK;
}

void launch_operation(c10::DeviceIndex device, int stream, std::unique_ptr<Operation> operation) {
  if (openreg_stream_is_capturing(device, stream)) {
    capture_on_stream(device, stream, kCollectiveNode,
                      [operation = std::move(operation)] { return operation->replay(); });
    return;
  }
  if (may_queue() && !queues_everything()) {
    if (const InlineScope scope(device, stream); scope.is_held()) {
      if (operation->try_inline()) {
        return;
      }
      openreg_trace_skip_inline(device, stream);
    }
  }
  const auto run = [](void *data) {
    return std::unique_ptr<Operation>(static_cast<Operation *>(data))->run();
  };
  auto *const data = operation.release(); // the worker owns it, even if queueing fails
  launch_on_stream(device, stream, run, data);
}

} // namespace openreg
