// backward() returns to Python before autograd's device thread has destroyed its last task, and
// that destructor takes the GIL. If the interpreter is finalizing by then, Python 3.11 unwinds the
// thread through a noexcept function, and the process aborts. So at exit this stops the threads and
// waits for their end. Thread-local destructors count, so it looks at the system's list of threads.

#include "compat/autograd_threads.h"

#include <torch/csrc/autograd/engine.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace openreg {

namespace {

// PyTorch's name for the threads.
constexpr std::string_view kThreadName = "pt_autograd";

// Long enough for a busy machine, and short enough for a user if a thread never ends.
constexpr auto kTimeout = std::chrono::seconds(5);
constexpr auto kPollInterval = std::chrono::milliseconds(1);

bool autograd_threads_exist() {
  std::error_code error; // a thread may end during the iteration
  for (const auto &task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name.starts_with(kThreadName)) {
      return true;
    }
  }
  return false;
}

} // namespace

void stop_autograd_threads() {
  if (!autograd_threads_exist()) {
    return;
  }
  torch::autograd::Engine::get_default_engine().stop();
  const auto end = std::chrono::steady_clock::now() + kTimeout;
  while (autograd_threads_exist() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kPollInterval);
  }
}

} // namespace openreg
