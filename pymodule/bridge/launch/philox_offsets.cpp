#include "launch/philox_offsets.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "device/capture.h"

namespace openreg {

// ---- the words of a graph -----------------------------------------------------------------------

const GraphWords::Source *GraphWords::find(const GeneratorSource &source) const {
  const auto found = std::ranges::find(sources_, source, &Source::generator);
  return found == sources_.end() ? nullptr : &*found;
}

bool GraphWords::has(const GeneratorSource &source) const {
  return find(source) != nullptr;
}

void GraphWords::add(GeneratorSource source) {
  if (!has(source)) {
    sources_.push_back({std::move(source)});
  }
}

LaunchWords GraphWords::take(const GeneratorSource &source, uint64_t words) {
  constexpr uint64_t kBlock = 4; // generators take whole blocks of words
  auto &from = *const_cast<Source *>(find(source));
  const auto offset = from.words;
  from.words += (words + kBlock - 1) / kBlock * kBlock;
  return {&from.begin.seed, &from.begin.offset, offset};
}

std::vector<openreg_philox> GraphWords::take_all() const {
  std::vector<openreg_philox> begins;
  for (const auto &source : sources_) {
    begins.push_back(openreg_generator_take(source.generator.get(), source.words));
  }
  return begins;
}

void GraphWords::begin_at(const std::vector<openreg_philox> &begins) {
  for (size_t i = 0; i < begins.size(); ++i) {
    sources_[i].begin = begins[i];
  }
}

bool GraphWords::are_any() const {
  return std::ranges::any_of(sources_, [](const Source &source) { return source.words > 0; });
}

// ---- captures -----------------------------------------------------------------------------------

namespace {

struct Captures {
  std::mutex mutex;
  std::unordered_map<uint64_t, GraphWords *> words;
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

CapturedWords::CapturedWords(uint64_t capture, GraphWords &words) : capture_(capture) {
  const std::lock_guard<std::mutex> lock(captures().mutex);
  captures().words[capture] = &words;
}

CapturedWords::~CapturedWords() {
  const std::lock_guard<std::mutex> lock(captures().mutex);
  captures().words.erase(capture_);
}

LaunchWords take_words(c10::DeviceIndex device, const GeneratorSource &source, bool is_default,
                       uint64_t words) {
  const auto capture = openreg_captures_exist() ? current_capture(device) : 0;
  if (capture == 0) [[likely]] {
    return LaunchWords(openreg_generator_take(source.get(), words));
  }
  const std::lock_guard<std::mutex> lock(captures().mutex);
  const auto found = captures().words.find(capture);
  TORCH_CHECK(found != captures().words.end() && (is_default || found->second->has(source)),
              "Offset increment outside graph capture encountered unexpectedly.");
  if (is_default) {
    found->second->add(source);
  }
  return found->second->take(source, words);
}

} // namespace openreg
