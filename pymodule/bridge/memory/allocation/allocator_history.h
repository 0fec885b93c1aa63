// The history of device memory for C++ programs, which reach it through the registered allocator.
#pragma once

#include "core/host_functions.h"

namespace openreg {

class RecordedHistory : public AllocatorHistory {
public:
  void record_history(const Options &options) override;
  bool is_history_on() const override;
  std::vector<c10::CachingDeviceAllocator::TraceEntry> history_of(int device) const override;
  void note_snapshot(int device, size_t active_bytes, uint64_t mempool) override;
  Context block_context(int device, uintptr_t address) const override;
  void set_metadata(const std::string &metadata) override;
  std::string metadata() const override;
  void attach_observer(std::function<void(int64_t, size_t, size_t, size_t)> observer) override;

protected:
  ~RecordedHistory() = default;
};

} // namespace openreg
