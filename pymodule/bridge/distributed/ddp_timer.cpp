// Measures the steps of DistributedDataParallel on a device, by an event at each point.

#include "distributed/ddp_timer.h"

#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <array>
#include <memory>

#include "streams/event_owner.h"

namespace openreg {

namespace {

class DeviceTimer final : public c10d::Timer {
public:
  explicit DeviceTimer(c10::Device device) : device_(device.index()) {}

  void record(Event point) override {
    Timer::record(point); // records the host's time, too
    auto &event = events_.at(static_cast<size_t>(point));
    if (!event) {
      event = make_event(device_, true);
    }
    int stream = OPENREG_STREAM_DEFAULT;
    check(openreg_stream_current(device_, &stream));
    check(openreg_event_record(event.get(), stream));
  }

  // No value for points that were not recorded, or not in order: that step did not end.
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const auto *first = events_.at(static_cast<size_t>(start)).get();
    const auto *last = events_.at(static_cast<size_t>(end)).get();
    if (first == nullptr || last == nullptr) {
      return std::nullopt;
    }
    check(openreg_event_synchronize(first));
    check(openreg_event_synchronize(last));
    double milliseconds = 0;
    check(openreg_event_elapsed_ms(first, last, &milliseconds));
    if (milliseconds < 0) {
      return std::nullopt;
    }
    constexpr double kNsPerMs = 1e6;
    return static_cast<int64_t>(milliseconds * kNsPerMs);
  }

private:
  c10::DeviceIndex device_;
  std::array<EventOwner, 5> events_;
};

} // namespace

void register_ddp_timer() {
  c10d::TimerRegistry()->Register(
      kDeviceType,
      [](c10::Device device) -> std::unique_ptr<c10d::Timer> {
        return std::make_unique<DeviceTimer>(device);
      },
      c10::REGISTRY_DEFAULT);
}

} // namespace openreg
