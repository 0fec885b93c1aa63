// Where each launch reads its random words: offsets into a generator's Philox sequence.
//
// A launch reserves words when it is submitted. A captured launch gets an offset within its graph
// instead. Each replay reserves the words of the whole graph at once, from every generator that it
// draws from, as the same launches would without a graph.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "generator/generator.h"
#include "core/status.h"

namespace openreg {

// Where the words of a launch begin. It is known at the call, or for a captured launch when it
// runs: each replay writes where the words of its graph begin.
class PhiloxOffset {
public:
  explicit PhiloxOffset(openreg_philox begin) : begin_(begin) {}

  // begin() reads `seed` and `offset` when it is called and adds `words` to the offset. Both must
  // outlive this.
  PhiloxOffset(const uint64_t *seed, const uint64_t *offset, uint64_t words)
      : begin_{0, words}, seed_(seed), offset_(offset) {}

  openreg_philox begin() const {
    return seed_ == nullptr ? begin_ : openreg_philox{*seed_, *offset_ + begin_.offset};
  }

  // For C++ programs: the addresses of the seed and of the offset, to which `words` is added. All
  // are null, and 0, if the position is known.
  const uint64_t *seed() const { return seed_; }
  const uint64_t *offset() const { return offset_; }
  uint64_t words() const { return seed_ == nullptr ? 0 : begin_.offset; }

private:
  openreg_philox begin_;
  const uint64_t *seed_ = nullptr, *offset_ = nullptr;
};

using GeneratorSource = std::shared_ptr<openreg_generator>;

// The random words of one graph. One thread fills it during the capture; replays use it afterwards.
class GraphPhiloxState {
public:
  // Allows the graph to draw from this generator.
  void add(GeneratorSource source);
  bool has(const GeneratorSource &source) const;
  size_t generator_count() const { return sources_.size(); }

  // Reserves `words` for a captured launch. Requires has(source).
  PhiloxOffset reserve(const GeneratorSource &source, uint64_t words);

  // Where the next captured launch draws, counted from the start of a replay. A program may set it
  // back, to draw the same numbers again. Requires has(source).
  uint64_t position(const GeneratorSource &source) const;
  void set_position(const GeneratorSource &source, uint64_t words);

  // A replay calls reserve_all() when it is submitted: it reserves the words of the whole graph
  // from each generator. Right before its work runs it passes the result to set_begins().
  std::vector<openreg_philox> reserve_all() const;
  void set_begins(const std::vector<openreg_philox> &begins);

  // Whether any launch of the graph draws random numbers.
  bool is_used() const;

private:
  struct Source {
    GeneratorSource generator;
    uint64_t words = 0;     // used by the whole graph
    openreg_philox begin{}; // for the replay that runs
    bool is_used = false;   // whether a launch draws from it
  };
  const Source *find(const GeneratorSource &source) const;
  Source &get(const GeneratorSource &source);

  std::deque<Source> sources_; // a deque, because launches hold addresses of its elements
};

// While one lives, launches on the streams of the capture with this id reserve words of `state`.
class PhiloxCaptureScope {
public:
  PhiloxCaptureScope(uint64_t capture, GraphPhiloxState &state);
  ~PhiloxCaptureScope();
  PhiloxCaptureScope(const PhiloxCaptureScope &) = delete;
  PhiloxCaptureScope &operator=(const PhiloxCaptureScope &) = delete;

private:
  uint64_t capture_;
};

// Reserves `words` for a launch on the device's current stream, from its graph if it captures.
// `is_default`: the generator is the device's own, from which every graph may draw. Raises
// RuntimeError for another generator that was not registered with the graph.
PhiloxOffset reserve_philox(c10::DeviceIndex device, const GeneratorSource &source, bool is_default,
                            uint64_t words);

// The position of a generator in the graph that the device's current stream captures; nullopt if it
// captures none. Both raise RuntimeError for a generator that was not registered with the graph.
std::optional<uint64_t> captured_position(c10::DeviceIndex device, const GeneratorSource &source);

// Returns false if the stream captures no graph.
bool set_captured_position(c10::DeviceIndex device, const GeneratorSource &source, uint64_t words);

} // namespace openreg
