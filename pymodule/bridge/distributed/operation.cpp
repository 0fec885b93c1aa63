#include "distributed/operation.h"

#include "streams/turn.h"

namespace openreg {

openreg_status Operation::run() {
  for (auto &collective : collectives) {
    collective.call.timeout_ns = timeout_ns;
    if (const auto status = communicator->run(collective.complete()); status != OPENREG_OK) {
      return outcome->set(status);
    }
  }
  return messages.empty() ? OPENREG_OK : outcome->set(communicator->exchange(messages, timeout_ns));
}

void launch(c10::DeviceIndex device, int stream, std::unique_ptr<Operation> operation) {
  const auto run = [](void *data) {
    return std::unique_ptr<Operation>(static_cast<Operation *>(data))->run();
  };
  auto *const data = operation.release(); // the worker's, also of one that fails at once
  launch_on_stream(device, stream, run, data);
}

} // namespace openreg
