#include "sanitizer/call_sites.h"

#include <torch/csrc/python_headers.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/python_stack.h"
#include "sanitizer/tables.h"

namespace openreg {

namespace {

namespace py = pybind11;

// One frame. The code object is never freed.
struct FramePosition {
  PyCodeObject *code;
  int instruction; // byte offset in `code`
  bool operator<(const FramePosition &other) const {
    return std::pair(code, instruction) < std::pair(other.code, other.instruction);
  }
};

using FramePositions = std::vector<FramePosition>;

struct Pair {
  uint64_t here, forward;
  bool operator<(const Pair &other) const {
    return std::pair(here, forward) < std::pair(other.here, other.forward);
  }
};

// Stacks have even numbers, pairs odd ones. The GIL guards the stacks.
struct CallSites {
  std::map<FramePositions, uint64_t> numbers;
  std::deque<const FramePositions *> stacks;
  std::unordered_map<PyCodeObject *, bool> is_library;

  // Guarded by `tables_mutex`.
  std::map<Pair, uint64_t> pair_numbers;
  std::deque<Pair> pairs;
};

CallSites &tables() {
  static auto &all = *new CallSites(); // never destroyed: threads may outlive static objects
  return all;
}

std::atomic<bool> whole_stacks{false};

std::string text(PyObject *unicode) {
  const char *const utf8 = PyUnicode_AsUTF8(unicode);
  if (utf8 == nullptr) {
    PyErr_Clear();
    return "?";
  }
  return utf8;
}

// Folders and files whose frames do not belong to the program.
const std::vector<std::string> &library_folders() {
  static const auto &folders = *new std::vector<std::string>([] {
    std::vector<std::string> found;
    for (const char *const name :
         {"torch", "torch_openreg", "contextlib", "functools", "threading", "typing_extensions"}) {
      const py::object module = py::module_::import(name);
      const auto file = module.attr("__file__").cast<std::string>();
      const bool is_package = file.ends_with("/__init__.py");
      found.push_back(is_package ? file.substr(0, file.rfind('/') + 1) : file);
    }
    return found;
  }());
  return folders;
}

bool compute_is_library(PyCodeObject *code) {
  const auto file = text(code->co_filename);
  if (file.starts_with("<frozen")) {
    return true;
  }
  for (const auto &folder : library_folders()) {
    if (file.starts_with(folder)) {
      return true;
    }
  }
  return false;
}

// Keeps a reference to the code object.
bool is_library(PyCodeObject *code) {
  const auto [known, is_new] = tables().is_library.try_emplace(code, false);
  if (is_new) {
    Py_INCREF(code);
    known->second = compute_is_library(code);
  }
  return known->second;
}

FramePositions current_frames() {
  FramePositions positions;
  const bool whole = whole_stacks.load(std::memory_order_relaxed);
  walk_python_stack([&](PyCodeObject *code, int instruction) {
    const bool is_own = !is_library(code);
    if (is_own || whole) {
      positions.push_back({code, instruction}); // is_library() keeps a reference to the code
    }
    return whole || !is_own;
  });
  return positions;
}

Stack describe_frames(const FramePositions &positions) {
  Stack stack;
  for (const auto &position : positions) {
    const auto frame = describe_frame(position.code, position.instruction);
    stack.push_back({frame.filename, frame.line, frame.name});
  }
  return stack;
}

} // namespace

void set_whole_stacks(bool whole) {
  whole_stacks.store(whole);
}

uint64_t current_call_site() {
  if (Py_IsInitialized() == 0 || Py_IsFinalizing() != 0 ||
      PyGILState_GetThisThreadState() == nullptr) {
    return 0;
  }
  const py::gil_scoped_acquire gil;
  auto positions = current_frames();
  if (positions.empty()) {
    return 0;
  }
  auto &all = tables();
  const auto [known, is_new] = all.numbers.try_emplace(std::move(positions), 0);
  if (is_new) {
    all.stacks.push_back(&known->first);
    known->second = all.stacks.size() * 2;
  }
  return known->second;
}

uint64_t backward_call_site(uint64_t here, uint64_t forward) {
  if (forward == 0) {
    return here;
  }
  auto &all = tables();
  const std::lock_guard lock(tables_mutex());
  const auto [known, is_new] = all.pair_numbers.try_emplace({here, forward}, 0);
  if (is_new) {
    all.pairs.push_back(known->first);
    known->second = all.pairs.size() * 2 - 1;
  }
  return known->second;
}

CallSite describe_call_site(uint64_t call_site) {
  auto &all = tables();
  Pair pair{call_site, 0};
  if (call_site % 2 == 1) {
    const std::lock_guard lock(tables_mutex());
    pair = all.pairs[call_site / 2];
  }
  const auto stack_of = [&all](uint64_t number) {
    return number == 0 ? Stack() : describe_frames(*all.stacks[number / 2 - 1]);
  };
  return {stack_of(pair.here), stack_of(pair.forward)};
}

} // namespace openreg
