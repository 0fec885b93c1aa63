// What launches looked like when they last ran, so that the next one need not be waited for.
//
// Given an operator, the metadata of its tensors, its other arguments and the global switches that
// matter, a CPU kernel makes results of the same shapes, and allocates their memory at the same
// point of its work. A memo of one run is a forecast of the next: with it, the results' tensors can
// be made before the kernel has run. A worker checks each forecast (queued.cpp).
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory.h"

namespace openreg {

// One tensor that a kernel gives back.
struct ForetoldTensor {
  enum class Kind {
    kFresh,    // in memory that the kernel allocates
    kArgument, // an argument that it wrote to
    kUndefined,
  };
  // Not known by its number: by its size, which no other allocation of the kernel has; or not at
  // all.
  static constexpr size_t kOfItsSize = Offering::kFirstOfItsSize;
  static constexpr size_t kAnywhere = SIZE_MAX - 1;
  Kind kind = Kind::kUndefined;
  size_t argument = 0;   // its place among the launch's device tensors
  size_t allocation = 0; // which of the kernel's allocations it is in, from 0; or one of these
  size_t bytes = 0;      // of that allocation
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::SmallVector<int64_t, 5> sizes, strides;
};

// One value that a kernel returns: a tensor, or a list of them.
struct ForetoldReturn {
  bool is_list = false;
  std::vector<ForetoldTensor> tensors;
};

struct Forecast {
  std::atomic<bool> can_be_queued{false};
  std::vector<ForetoldReturn> returns;
  std::atomic<int64_t> cost_ns{0}; // of the kernel, when it ran last
};

// The memos of one operator. All functions may be called from any thread.
class Memos {
public:
  using Key = std::string;

  // Whether two values of this argument make results that look different. Numbers to compute with
  // do not, unless one of them is refused: these are remembered by their kind, such as "above 1".
  static bool matters_by_value(const c10::Argument &argument);

  // What decides a launch's results, apart from the operator: the arguments, which lie on top of
  // the stack with twins in the place of device tensors, and global switches. `by_value` says for
  // each argument what matters_by_value does. False for arguments whose content decides too, or
  // which cannot be told apart.
  static bool make_key(const torch::jit::Stack &stack, const std::vector<bool> &by_value, Key &key);

  // Null when nothing is known. The forecast stays valid while it is held.
  std::shared_ptr<Forecast> find(const Key &key);
  void learn(Key key, std::shared_ptr<Forecast> forecast);

private:
  std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<Forecast>> forecasts_;
};

} // namespace openreg
