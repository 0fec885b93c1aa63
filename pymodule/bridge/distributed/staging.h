// Lets a host backend such as Gloo work on device tensors: CPU tensors over the same memory, which
// keep that memory alive. No data is copied. Sparse tensors are the exception: the backend replaces
// their memory, so they are copied.
//
// Streams need care. A host backend may read and write at any time, so wait() must return first: it
// waits for all work that was submitted to the current streams before record(). Work that is
// submitted after the backend's thread has reported completion sees what the backend wrote.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "streams/event_owner.h"

namespace openreg {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

inline bool is_on_device(const at::Tensor &tensor) {
  return tensor.device().type() == kDeviceType;
}

class Staging {
public:
  at::Tensor add(const at::Tensor &tensor);
  Tensors add(const Tensors &tensors);
  // Raises if the tensors of one list are on several devices.
  TensorLists add(const TensorLists &lists);

  // Records an event on the current stream of each tensor's device.
  void record();

  // Waits for these events, and raises if their work failed. Takes neither the GIL nor an inline
  // guard.
  void wait() const;

  // Copy the tensors that were staged as copies.
  void copy_to_host() const;
  void copy_to_device() const;

private:
  Tensors tensors_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_; // device tensor, host tensor
  std::vector<EventOwner> events_;
};

} // namespace openreg
