// Leaving the process in order.
//
// backward() returns to Python before autograd's device thread has let go of its last task, whose
// destructor takes the GIL. If the interpreter is being finalized by then, Python 3.11 ends that
// thread by unwinding it through a function that must not throw, and the process aborts. So at exit
// the threads are told to stop, and waited for to their very end, thread-local destructors
// included, of which only the system knows.

#include "compat/autograd_threads.h"

#include <torch/csrc/autograd/engine.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace openreg {

namespace {

// How PyTorch names the threads.
constexpr std::string_view kThreadName = "pt_autograd";

// Long enough for a busy machine, short enough for a person if a thread never ends.
constexpr auto kPatience = std::chrono::seconds(5);
constexpr auto kPause = std::chrono::milliseconds(1);

bool autograd_threads_exist() {
  std::error_code error; // a thread may end while it is looked at
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
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (autograd_threads_exist() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kPause);
  }
}

} // namespace openreg
