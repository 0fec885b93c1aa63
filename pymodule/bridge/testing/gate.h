// For tests: work that keeps a stream busy until the test opens the gate. So a test decides what
// has finished and what has not.
#pragma once

#include <atomic>
#include <memory>

#include "core/status.h"

namespace openreg {

// The destructor opens the gate.
class Gate {
public:
  Gate(int device, int stream) : is_open_(std::make_shared<std::atomic<bool>>(false)) {
    auto held = std::make_unique<IsOpen>(is_open_);
    check(openreg_stream_launch(device, stream, &wait, held.get()));
    (void)held.release(); // the worker owns it
  }
  ~Gate() { open(); }
  Gate(const Gate &) = delete;
  Gate &operator=(const Gate &) = delete;

  void open() {
    is_open_->store(true);
    is_open_->notify_all();
  }

private:
  using IsOpen = std::shared_ptr<std::atomic<bool>>;

  static openreg_status wait(void *data) {
    const std::unique_ptr<IsOpen> is_open(static_cast<IsOpen *>(data));
    (*is_open)->wait(false);
    return OPENREG_OK;
  }

  IsOpen is_open_;
};

} // namespace openreg
