#include "distributed/same_process_ranks.h"

namespace openreg {

std::shared_ptr<SameProcessRanks> SameProcessRanks::join(const std::string &id) {
  static std::mutex mutex;
  static auto &all = *new std::map<std::string, std::weak_ptr<SameProcessRanks>>;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto &each) { return each.second.expired(); });
  auto found = all[id].lock();
  if (found == nullptr) {
    found = std::make_shared<SameProcessRanks>();
    all[id] = found;
  }
  ++found->ranks_;
  return found;
}

bool SameProcessRanks::note_call(uint64_t number, Stream stream, bool waits) {
  const std::lock_guard lock(mutex_);
  auto &called = called_[number];
  if (called.waiting.contains(stream)) {
    return false;
  }
  if (++called.ranks == ranks_) {
    called_.erase(number);
  } else if (waits) {
    called.waiting.insert(stream);
  }
  return true;
}

void SameProcessRanks::note_wait(uint64_t number, Stream stream) {
  const std::lock_guard lock(mutex_);
  if (const auto found = called_.find(number); found != called_.end()) {
    found->second.waiting.insert(stream);
  }
}

} // namespace openreg
