// Ranks of one process that may have one device (OPENREG_SHARE_DEVICE=1): threads. With one current
// stream each would wait for the other, for ever: what the second one calls would come behind a
// wait for itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace openreg {

// Where streams wait for collectives that not all of the ranks have called yet.
class Neighbours {
public:
  // The ones of a communicator, which its id names. Each rank joins before any of them calls.
  static std::shared_ptr<Neighbours> join(const std::string &id);

  using Stream = std::pair<int, int>; // device, number

  // A rank calls the collective of that number behind what `stream` has to do. False: which is a
  // wait for the collective itself. `waits`: it will wait for it.
  bool call(uint64_t number, Stream stream, bool waits);
  // From now on `stream` waits for it.
  void wait(uint64_t number, Stream stream);

private:
  struct Called {
    int ranks = 0;
    std::set<Stream> waiting;
  };
  std::mutex mutex_;
  int ranks_ = 0;
  std::map<uint64_t, Called> called_;
};

} // namespace openreg
