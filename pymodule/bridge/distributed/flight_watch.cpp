#include "distributed/flight_watch.h"

#include <c10/util/Logging.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <unistd.h>

#include <array>
#include <future>
#include <thread>

#include "distributed/flight/recorder.h"
#include "distributed/polling_thread.h"

namespace openreg {

namespace {

constexpr std::chrono::milliseconds kWatchInterval(100);
constexpr std::chrono::seconds kWriteTime(2);
constexpr int kDumpMilliseconds = 15'000; // as NCCL's group by default

// Creates the pipe and returns its reading end; -1 if none is configured. Errors are those of
// ProcessGroupNCCL.
int make_pipe(int rank) {
  const auto prefix = c10d::getCvarString({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE"}, "");
  if (prefix.empty()) {
    return -1;
  }
  const auto path = c10::str(prefix, rank, ".pipe");
  TORCH_CHECK(unlink(path.c_str()) == 0 || errno == ENOENT, "Error removing existing named pipe ",
              path, ", Error: ", std::strerror(errno));
  TORCH_CHECK(mkfifo(path.c_str(), 0666) == 0, "Error creating named pipe ", path,
              ", Error: ", std::strerror(errno));
  const int pipe = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  TORCH_CHECK(pipe >= 0, "Error opening named pipe ", path);
  return pipe;
}

bool is_dump_requested(int pipe) {
  std::array<char, 128> words;
  return pipe >= 0 && read(pipe, words.data(), words.size()) > 0;
}

// Python frames need the GIL, which a hung thread may hold. So a thread of its own makes the dump;
// if it takes too long, the dump has no frames and the thread is abandoned.
std::string dump_within_timeout(FlightRecorder::Parts parts) {
  auto dumped = std::make_shared<std::promise<std::string>>();
  auto text = dumped->get_future();
  std::thread([=] { dumped->set_value(FlightRecorder::get().dump(parts)); }).detach();
  const std::chrono::milliseconds timeout(
      c10d::getCvarInt({"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"}, kDumpMilliseconds));
  if (text.wait_for(timeout) == std::future_status::ready) {
    return text.get();
  }
  parts.frames = false;
  return FlightRecorder::get().dump(parts);
}

} // namespace

FlightWatch &FlightWatch::get() {
  static auto &one = *new FlightWatch;
  return one;
}

void FlightWatch::add(const CommunicatorPtr &communicator, int rank) {
  const bool writes = c10d::getCvarBool({"TORCH_NCCL_DUMP_ON_TIMEOUT"}, true);
  if (!FlightRecorder::get().is_on() || !writes || openreg_in_bad_fork()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (is_over_) {
    return;
  }
  if (!is_polled_) {
    rank_ = rank;
    pipe_ = make_pipe(rank);
    is_polled_ = PollingThread::get().add([this](bool is_last) { return poll(is_last); });
  }
  if (is_polled_) {
    watched_[communicator.get()] = communicator;
  }
}

void FlightWatch::remove(const CommunicatorPtr &communicator) {
  const std::lock_guard lock(mutex_);
  watched_.erase(communicator.get());
}

void FlightWatch::notify_failure(const Communicator &communicator) {
  if (communicator.check() == OPENREG_OK) {
    return; // the operation failed, but the communicator did not
  }
  std::unique_lock lock(mutex_);
  if (is_over_ || !watched_.contains(&communicator)) {
    return;
  }
  PollingThread::get().wake();
  const auto before = writes_;
  written_.wait_for(lock, kWriteTime, [&] { return writes_ != before || is_over_; });
  lock.unlock();
  std::this_thread::sleep_for(2 * kWatchInterval);
}

std::chrono::milliseconds FlightWatch::poll(bool is_last) {
  std::unique_lock lock(mutex_);
  const bool has_failed = has_new_failure();
  lock.unlock();
  if (has_failed || is_dump_requested(pipe_)) {
    write();
  }
  lock.lock();
  if (has_failed && ++writes_ == 1) {
    LOG(WARNING) << "A group failed. The last calls of this process are in "
                 << c10d::DebugInfoWriter::getWriter(rank_).getWriterTarget()
                 << "; read them with torchfrtrace.";
  }
  is_over_ = is_last;
  written_.notify_all();
  return kWatchInterval;
}

// With the lock held. Forgets failed communicators, so each is reported once.
bool FlightWatch::has_new_failure() {
  bool has_failed = false;
  std::erase_if(watched_, [&](const auto &each) {
    const auto communicator = each.second.lock();
    if (communicator == nullptr) {
      return true;
    }
    const bool is_over = communicator->check() != OPENREG_OK;
    has_failed = has_failed || is_over;
    return is_over;
  });
  return has_failed;
}

void FlightWatch::write() {
  FlightRecorder::Parts parts;
  parts.frames = c10d::getCvarBool({"TORCH_INCLUDE_STACK_TRACE"}, true);
  parts.only_active = c10d::getCvarBool({"TORCH_INCLUDE_ONLY_ACTIVE"}, false);
  c10d::DebugInfoWriter::getWriter(rank_).write(dump_within_timeout(parts));
}

} // namespace openreg
