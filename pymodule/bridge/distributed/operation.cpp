#include "distributed/operation.h"

#include "distributed/flight_watch.h"
#include "device/trace.h"
#include "graph/graph.h"
#include "launch/policy.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

// So long a thread waits for others itself: about what a hand-over to a worker takes, and back; or,
// where all cores have enough to do with the others, many times that.
constexpr uint64_t kPatienceNs = 30'000, kCrowdedPatienceNs = 2'000'000;

// So much is moved in the time that a program may be kept from its next call.
constexpr size_t kShortBytes = size_t{4} << 20;

// Inline work on a stream, if it is idle.
class Inline {
public:
  Inline(c10::DeviceIndex device, int stream)
      : device_(device), stream_(stream),
        is_held_(openreg_stream_try_begin_inline(device, stream) == OPENREG_OK) {}
  ~Inline() {
    if (is_held_) {
      openreg_stream_end_inline(device_, stream_);
    }
  }
  Inline(const Inline &) = delete;
  Inline &operator=(const Inline &) = delete;

  bool is_held() const { return is_held_; }

private:
  c10::DeviceIndex device_;
  int stream_;
  bool is_held_;
};

} // namespace

openreg_status Operation::run() {
  if (failed_ != OPENREG_OK) {
    return openreg_fail(failed_, "%s", outcome->sentence().c_str());
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
  if (record != nullptr) {
    record->start();
  }
}

// The outcome last: who sees that it failed may end the job.
openreg_status Operation::end(openreg_status status) {
  if (extra_time != nullptr) {
    extra_time->end(extra_time_owned);
  }
  if (record != nullptr) {
    record->end(status == OPENREG_OK);
  }
  if (status == OPENREG_OK) {
    return status;
  }
  const std::string sentence = openreg_last_error();
  const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - began_;
  if (static_cast<uint64_t>(time.count()) >= timeout_ns) {
    outcome->note_late();
  }
  if (record != nullptr) {
    FlightWatch::get().tell(*communicator);
  }
  return outcome->set(openreg_fail(status, "%s", sentence.c_str()));
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

bool Operation::try_now() {
  if (collectives.size() != 1 || !messages.empty() || collectives[0].bytes() > kShortBytes) {
    return false;
  }
  auto &collective = collectives[0];
  collective.call.timeout_ns = timeout_ns;
  began_ = std::chrono::steady_clock::now();
  auto status = communicator->begin(collective.complete());
  if (status == OPENREG_OK) {
    has_begun_ = true;
    start();
    status = communicator->finish(communicator->has_cores() ? kPatienceNs : kCrowdedPatienceNs);
  }
  if (status == OPENREG_NOT_READY) {
    return false;
  }
  failed_ = end(status);
  return failed_ == OPENREG_OK;
}

void launch(c10::DeviceIndex device, int stream, std::unique_ptr<Operation> operation) {
  if (openreg_stream_is_capturing(device, stream)) {
    capture_on_stream(device, stream, kCollectiveNode,
                      [operation = std::move(operation)] { return operation->replay(); });
    return;
  }
  if (may_queue() && !queues_everything()) {
    if (const Inline turn(device, stream); turn.is_held()) {
      if (operation->try_now()) {
        return;
      }
      openreg_trace_skip_inline(device, stream);
    }
  }
  const auto run = [](void *data) {
    return std::unique_ptr<Operation>(static_cast<Operation *>(data))->run();
  };
  auto *const data = operation.release(); // the worker's, also of one that fails at once
  launch_on_stream(device, stream, run, data);
}

} // namespace openreg
