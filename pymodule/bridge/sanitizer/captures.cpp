#include "sanitizer/captures.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/status.h"
#include "device/capture.h"
#include "sanitizer/host_memory.h"
#include "sanitizer/tables.h"

namespace openreg {

namespace {

struct Launch {
  uint64_t call_site;
  Accesses accesses;
  const Accesses::Access *data; // accesses.data(), prepared once for all replays
};

class CapturedLaunches;

// Live captures and graphs, by the capture's number. Guarded by `tables_mutex`.
std::unordered_map<uint64_t, CapturedLaunches *> &all_captures() {
  static auto &all = *new std::unordered_map<uint64_t, CapturedLaunches *>();
  return all;
}

// Returns 0 if the stream does not capture.
uint64_t capture_of(StreamKey stream) {
  bool is_valid = false;
  return openreg_stream_capture(stream.device, stream.stream, &is_valid);
}

void report_now(SanitizerSession &session, StreamKey stream, uint64_t call_site,
                const Accesses::Access *accesses, size_t count) {
  const openreg_sanitizer_launch launch{.thread = session.thread_of(stream),
                                        .submitter = session.host(),
                                        .call_site = call_site,
                                        .accesses = accesses,
                                        .count = count};
  check(openreg_sanitizer_check_launch(session.sanitizer(), &launch));
  protect_pages(session, accesses, count);
}

class CapturedLaunches final : public Observer::CaptureObserver {
public:
  explicit CapturedLaunches(uint64_t capture) : capture_(capture) {
    const std::lock_guard lock(tables_mutex());
    all_captures()[capture_] = this;
  }

  ~CapturedLaunches() override {
    const std::lock_guard lock(tables_mutex());
    all_captures().erase(capture_);
  }

  // Needs `tables_mutex`.
  void add(std::shared_ptr<const Launch> launch) { launches_.push_back(std::move(launch)); }

  void replay(StreamKey stream) override {
    const auto outer = capture_of(stream);
    std::vector<std::shared_ptr<const Launch>> launches;
    std::optional<StreamKey> previous;
    {
      const std::lock_guard lock(tables_mutex());
      launches = launches_;
      if (outer != 0) { // this graph becomes a node of another graph
        if (const auto found = all_captures().find(outer); found != all_captures().end()) {
          std::ranges::for_each(launches, [&](const auto &each) { found->second->add(each); });
        }
        return;
      }
      previous = std::exchange(last_stream_, stream);
    }
    auto *const session = SanitizerSession::active();
    if (session == nullptr || ObserverPause::any()) {
      return;
    }
    if (previous.has_value()) { // replays of one graph run one after another
      session->order(*previous, stream);
    }
    for (const auto &launch : launches) {
      report_now(*session, stream, launch->call_site, launch->data, launch->accesses.size());
    }
  }

private:
  uint64_t capture_;
  // Guarded by `tables_mutex`.
  std::vector<std::shared_ptr<const Launch>> launches_;
  std::optional<StreamKey> last_stream_; // of the previous replay
};

void add_to_capture(StreamKey stream, uint64_t call_site, Accesses accesses) {
  auto launch = std::make_shared<Launch>(Launch{call_site, std::move(accesses), nullptr});
  launch->data = launch->accesses.data();
  const auto capture = capture_of(stream);
  const std::lock_guard lock(tables_mutex());
  if (const auto found = all_captures().find(capture); found != all_captures().end()) {
    found->second->add(std::move(launch));
  }
}

} // namespace

std::unique_ptr<Observer::CaptureObserver> observe_capture(uint64_t capture) {
  return std::make_unique<CapturedLaunches>(capture);
}

void report_launch(SanitizerSession &session, StreamKey stream, uint64_t call_site,
                   Accesses accesses) {
  if (openreg_stream_is_capturing(stream.device, stream.stream)) {
    add_to_capture(stream, call_site, std::move(accesses));
  } else {
    report_now(session, stream, call_site, accesses.data(), accesses.size());
  }
}

} // namespace openreg
