#include "launch/philox_offsets.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "device/capture.h"

namespace openreg {

// ---- graphs -------------------------------------------------------------------------------------

const GraphPhiloxState::Source *GraphPhiloxState::find(const GeneratorSource &source) const {
  const auto found = std::ranges::find(sources_, source, &Source::generator);
  return found == sources_.end() ? nullptr : &*found;
}

bool GraphPhiloxState::has(const GeneratorSource &source) const {
  return find(source) != nullptr;
}

void GraphPhiloxState::add(GeneratorSource source) {
  if (!has(source)) {
    sources_.push_back({std::move(source)});
  }
}

PhiloxOffset GraphPhiloxState::reserve(const GeneratorSource &source, uint64_t words) {
  constexpr uint64_t kBlock = 4; // generators reserve whole blocks of words
  auto &from = *const_cast<Source *>(find(source));
  const auto offset = from.words;
  from.words += (words + kBlock - 1) / kBlock * kBlock;
  return {&from.begin.seed, &from.begin.offset, offset};
}

std::vector<openreg_philox> GraphPhiloxState::reserve_all() const {
  std::vector<openreg_philox> begins;
  for (const auto &source : sources_) {
    begins.push_back(openreg_generator_take(source.generator.get(), source.words));
  }
  return begins;
}

void GraphPhiloxState::set_begins(const std::vector<openreg_philox> &begins) {
  for (size_t i = 0; i < begins.size(); ++i) {
    sources_[i].begin = begins[i];
  }
}

bool GraphPhiloxState::is_used() const {
  return std::ranges::any_of(sources_, [](const Source &source) { return source.words > 0; });
}

// ---- captures -----------------------------------------------------------------------------------

namespace {

struct Captures {
  std::mutex mutex;
  std::unordered_map<uint64_t, GraphPhiloxState *> states;
};

Captures &captures() {
  static auto *const all = new Captures();
  return *all;
}

uint64_t current_capture(c10::DeviceIndex device) {
  int stream = OPENREG_STREAM_DEFAULT;
  bool is_valid = false;
  check(openreg_stream_current(device, &stream));
  return openreg_stream_capture(device, stream, &is_valid);
}

} // namespace

PhiloxCaptureScope::PhiloxCaptureScope(uint64_t capture, GraphPhiloxState &state)
    : capture_(capture) {
  const std::lock_guard<std::mutex> lock(captures().mutex);
  captures().states[capture] = &state;
}

PhiloxCaptureScope::~PhiloxCaptureScope() {
  const std::lock_guard<std::mutex> lock(captures().mutex);
  captures().states.erase(capture_);
}

PhiloxOffset reserve_philox(c10::DeviceIndex device, const GeneratorSource &source, bool is_default,
                            uint64_t words) {
  const auto capture = openreg_captures_exist() ? current_capture(device) : 0;
  if (capture == 0) [[likely]] {
    return PhiloxOffset(openreg_generator_take(source.get(), words));
  }
  const std::lock_guard<std::mutex> lock(captures().mutex);
  const auto found = captures().states.find(capture);
  TORCH_CHECK(found != captures().states.end() && (is_default || found->second->has(source)),
              "Offset increment outside graph capture encountered unexpectedly.");
  if (is_default) {
    found->second->add(source);
  }
  return found->second->reserve(source, words);
}

} // namespace openreg
