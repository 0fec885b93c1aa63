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

GraphPhiloxState::Source &GraphPhiloxState::get(const GeneratorSource &source) {
  return *const_cast<Source *>(find(source));
}

uint64_t GraphPhiloxState::position(const GeneratorSource &source) const {
  return find(source)->words;
}

void GraphPhiloxState::set_position(const GeneratorSource &source, uint64_t words) {
  get(source).words = words;
}

PhiloxOffset GraphPhiloxState::reserve(const GeneratorSource &source, uint64_t words) {
  constexpr uint64_t kBlock = 4; // generators reserve whole blocks of words
  auto &from = get(source);
  from.is_used = true;
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
  return std::ranges::any_of(sources_, &Source::is_used);
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

namespace {

// Calls the function with the state of the graph that the device's current stream captures.
template <class Function>
bool with_captured_state(c10::DeviceIndex device, const GeneratorSource &source,
                         const Function &function) {
  const auto capture = openreg_captures_exist() ? current_capture(device) : 0;
  if (capture == 0) [[likely]] {
    return false;
  }
  const std::lock_guard<std::mutex> lock(captures().mutex);
  const auto found = captures().states.find(capture);
  TORCH_CHECK(found != captures().states.end() && found->second->has(source),
              "Generator not registered with the capturing graph.");
  function(*found->second);
  return true;
}

} // namespace

std::optional<uint64_t> captured_position(c10::DeviceIndex device, const GeneratorSource &source) {
  uint64_t position = 0;
  const auto found = with_captured_state(
      device, source, [&](const GraphPhiloxState &state) { position = state.position(source); });
  return found ? std::optional(position) : std::nullopt;
}

bool set_captured_position(c10::DeviceIndex device, const GeneratorSource &source, uint64_t words) {
  return with_captured_state(device, source,
                             [&](GraphPhiloxState &state) { state.set_position(source, words); });
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
