// Forecasts of what launches give back, learnt from launches that were waited for.
//
// Given an operator, the metadata of its tensors, its other arguments and the global switches that
// matter, a CPU kernel makes results of the same shapes, and allocates memory at the same points
// of its work. So one run is a forecast of the next: with it, the results' tensors can be
// made before the kernel has run. A worker checks each forecast (queued_launch.cpp).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory/allocation/memory.h"

namespace openreg {

// One tensor that a kernel gives back.
struct ExpectedTensor {
  enum class Kind {
    kFresh,    // in memory that the kernel allocates
    kEmpty,    // of no bytes, in no memory
    kArgument, // an argument that it wrote to
    kUndefined,
  };
  Kind kind = Kind::kUndefined;
  size_t argument = 0; // its place among the launch's device tensors
  WhichAllocation allocation;
  size_t bytes = 0; // of that allocation
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::SmallVector<int64_t, 5> sizes, strides;
};

// One value that a kernel returns: a tensor, or a list of them.
struct ExpectedReturn {
  bool is_list = false;
  std::vector<ExpectedTensor> tensors;
};

struct Forecast {
  std::atomic<bool> can_be_queued{false};
  std::vector<ExpectedReturn> returns;

  // What the kernel allocates, and frees again, while it runs.
  struct Temporary {
    WhichAllocation allocation;
    size_t bytes;
  };
  std::vector<Temporary> temporaries;
};

// A device tensor of a launch, and the twin that stands in for it.
struct Exchanged {
  at::Tensor tensor;
  at::Tensor twin;
  bool written;
};

// What a kernel gave back on top of the stack, as a forecast of the next launch like it.
std::shared_ptr<Forecast> make_forecast(const torch::jit::Stack &stack, size_t returns,
                                        c10::ArrayRef<Exchanged> exchanged,
                                        const Allocations &allocations);

// The forecasts of one operator, of which those that were not used for longest are forgotten. All
// functions may be called from any thread.
class Forecasts {
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
  using Map = std::unordered_map<Key, std::shared_ptr<Forecast>>;
  void add_locked(Key key, std::shared_ptr<Forecast> forecast);

  std::mutex mutex_;
  // Two generations: what is found in the older one moves to the younger, and when that is full it
  // becomes the older.
  Map young_, old_;
};

} // namespace openreg
