// The stream observer of the sanitizer: reports the program's streams, events and waits, and passes
// work, memory and captures on to the files that report those.
#pragma once

#include <memory>

#include "sanitizer/session.h"

namespace openreg {

class OrderReporter final : public Observer {
public:
  explicit OrderReporter(SanitizerSession &session) : session_(session) {}

  void order(StreamKey first, StreamKey second) override;
  void record(const openreg_event *event, StreamKey stream, EventOrigin origin) override;
  void wait(StreamKey stream, const openreg_event *event, EventOrigin origin) override;
  void forget(const openreg_event *event, EventOrigin origin) noexcept override;
  void synchronize(const openreg_event *event, EventOrigin origin) override;
  void synchronize(StreamKey stream) override;
  void synchronize(c10::DeviceIndex device) override;
  void found_done(const openreg_event *event) override;
  void found_done(StreamKey stream) override;
  void launch(StreamKey stream, const Work &work) override;
  std::unique_ptr<LaunchObserver> queue(StreamKey stream, const c10::OperatorHandle &op,
                                        c10::ArrayRef<c10::IValue> arguments) override;
  std::unique_ptr<CaptureObserver> begin_capture(uint64_t capture) override;
  void resize(StreamKey stream, const void *from, const void *to, size_t kept,
              size_t bytes) override;
  void fill(at::TensorList tensors) override;
  void allocated(const openreg_block &block) override;
  void begin_free(const openreg_block &block) override;
  void record_use(const void *address, StreamKey stream) override;
  void pinned(const void *address, size_t bytes) override;
  void unpin(const void *address) override;
  void begin_host_access(const void *address, size_t bytes, bool writes) override;
  void end_host_access(const void *address, size_t bytes, bool writes) override;
  bool write_to_host(void *to, const void *from, size_t bytes) override;

private:
  SanitizerSession &session_;
};

} // namespace openreg
