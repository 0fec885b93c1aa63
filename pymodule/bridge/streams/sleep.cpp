#include "streams/sleep.h"

#include <algorithm>
#include <ctime>

#include "streams/inline_guard.h"

namespace openreg {

namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;
constexpr int64_t kCyclesPerNs = 2; // about the clock rate of current GPUs

void sleep(int64_t ns) {
  timespec left = {.tv_sec = ns / kNsPerSecond, .tv_nsec = ns % kNsPerSecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) != 0) {
  }
}

} // namespace

void sleep_on_current_stream(int64_t cycles) {
  const auto device = static_cast<c10::DeviceIndex>(openreg_device_current());
  const auto ns = std::max<int64_t>(cycles, 0) / kCyclesPerNs;
  queue_on_stream(device, [ns] { sleep(ns); });
}

} // namespace openreg
