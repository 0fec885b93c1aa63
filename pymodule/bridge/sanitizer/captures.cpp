#include "sanitizer/captures.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/capture.h"
#include "sanitizer/launches.h"
#include "sanitizer/tables.h"

namespace openreg {

namespace {

struct Launch {
  uint64_t place;
  Accesses accesses;
  const Accesses::Access *list; // for the layer
};

class CapturedLaunches;

// Of captures and of graphs, by the capture's number. Under `tables_mutex`.
std::unordered_map<uint64_t, CapturedLaunches *> &all_captures() {
  static auto &all = *new std::unordered_map<uint64_t, CapturedLaunches *>();
  return all;
}

// 0: the stream does not capture.
uint64_t capture_of(Queue queue) {
  bool is_valid = false;
  return openreg_stream_capture(queue.device, queue.stream, &is_valid);
}

class CapturedLaunches final : public Watcher::Captured {
public:
  explicit CapturedLaunches(uint64_t capture) : capture_(capture) {
    const std::lock_guard lock(tables_mutex());
    all_captures()[capture_] = this;
  }

  ~CapturedLaunches() override {
    const std::lock_guard lock(tables_mutex());
    all_captures().erase(capture_);
  }

  // Under `tables_mutex`.
  void keep(std::shared_ptr<const Launch> launch) { launches_.push_back(std::move(launch)); }

  void replay(Queue queue) override {
    const auto outer = capture_of(queue);
    std::vector<std::shared_ptr<const Launch>> launches;
    std::optional<Queue> before;
    {
      const std::lock_guard lock(tables_mutex());
      launches = launches_;
      if (outer != 0) { // a node of another graph
        if (const auto found = all_captures().find(outer); found != all_captures().end()) {
          std::ranges::for_each(launches, [&](const auto &each) { found->second->keep(each); });
        }
        return;
      }
      before = std::exchange(replayed_, queue);
    }
    if (before.has_value()) { // replays of one graph come one after another
      tell_order(*before, queue);
    }
    for (const auto &launch : launches) {
      tell_launch(queue, launch->place, launch->list, launch->accesses.size());
    }
  }

private:
  uint64_t capture_;
  // Under `tables_mutex`.
  std::vector<std::shared_ptr<const Launch>> launches_;
  std::optional<Queue> replayed_; // the last time
};

} // namespace

std::unique_ptr<Watcher::Captured> note_capture(uint64_t capture) {
  return std::make_unique<CapturedLaunches>(capture);
}

void keep_launch(Queue queue, uint64_t place, Accesses accesses) {
  auto launch = std::make_shared<Launch>(Launch{place, std::move(accesses), nullptr});
  launch->list = launch->accesses.data();
  const auto capture = capture_of(queue);
  const std::lock_guard lock(tables_mutex());
  if (const auto found = all_captures().find(capture); found != all_captures().end()) {
    found->second->keep(std::move(launch));
  }
}

} // namespace openreg
