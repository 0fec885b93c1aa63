// Where the random words of launches begin, also of those that a graph has: each replay takes the
// words of the whole graph from the generators that it draws from, as so many launches would.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "generator/generator.h"
#include "core/status.h"

namespace openreg {

// Where the words of a launch begin: known at the call, or when it is the launch's turn. Those of
// work that a graph has begin elsewhere at each replay, which writes where the words of the whole
// graph do.
class LaunchWords {
public:
  explicit LaunchWords(openreg_philox begin) : begin_(begin) {}

  // By numbers that are read when it is the launch's turn, `words` behind the offset.
  LaunchWords(const uint64_t *seed, const uint64_t *offset, uint64_t words)
      : begin_{0, words}, seed_(seed), offset_(offset) {}

  openreg_philox begin() const {
    return seed_ == nullptr ? begin_ : openreg_philox{*seed_, *offset_ + begin_.offset};
  }

private:
  openreg_philox begin_;
  const uint64_t *seed_ = nullptr, *offset_ = nullptr;
};

using GeneratorSource = std::shared_ptr<openreg_generator>;

// The words of one graph. Filled by one thread during the capture, then replayed.
class GraphWords {
public:
  // The graph may draw from this generator.
  void add(GeneratorSource source);
  bool has(const GeneratorSource &source) const;

  // For a launch of the capture. From a generator that was added.
  LaunchWords take(const GeneratorSource &source, uint64_t words);

  // For a replay, where it is called: takes the words of the whole graph from each generator. And
  // where its work is done: `begins` is what that gave.
  std::vector<openreg_philox> take_all() const;
  void begin_at(const std::vector<openreg_philox> &begins);

  bool are_any() const;

private:
  struct Source {
    GeneratorSource generator;
    uint64_t words = 0;     // of the whole graph
    openreg_philox begin{}; // of the replay that runs
  };
  const Source *find(const GeneratorSource &source) const;

  std::deque<Source> sources_; // they stay where they are: launches know their address
};

// While one lives, launches on streams of a capture, by its number, take their words of a graph.
class CapturedWords {
public:
  CapturedWords(uint64_t capture, GraphWords &words);
  ~CapturedWords();
  CapturedWords(const CapturedWords &) = delete;
  CapturedWords &operator=(const CapturedWords &) = delete;

private:
  uint64_t capture_;
};

// Takes words for a launch on the device's current stream: of its graph, if it captures.
// `is_default`: the generator is the device's own, which every graph may draw from.
LaunchWords take_words(c10::DeviceIndex device, const GeneratorSource &source, bool is_default,
                       uint64_t words);

} // namespace openreg
