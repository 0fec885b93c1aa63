// Detects a deadlock of ranks that are threads of one process and share a device
// (OPENREG_SHARE_DEVICE=1). If two of them have the same current stream, the collective of the
// second one is queued behind the first one's wait for that very collective.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace openreg {

// The streams that wait for collectives which not all ranks of the process have called yet.
class SameProcessRanks {
public:
  // The ranks of the communicator with this id. Each rank joins before any of them calls.
  static std::shared_ptr<SameProcessRanks> join(const std::string &id);

  using Stream = std::pair<int, int>; // device, number

  // A rank calls collective `number` behind the work of `stream`; `waits`: the stream will wait for
  // it. Returns false if the stream already waits for that collective, which is a deadlock.
  bool note_call(uint64_t number, Stream stream, bool waits);
  // From now on `stream` waits for collective `number`.
  void note_wait(uint64_t number, Stream stream);

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
