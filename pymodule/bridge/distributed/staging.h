// Tensors of devices as a backend of the host takes them: CPU tensors over the same memory, which
// keep it alive. No byte is copied. Where that cannot be, for sparse tensors, whose memory the
// backend replaces, they are copies.
//
// Streams are what is left to see to. A backend of the host reads and writes when it likes, so
// `arrive` must have returned before: then all work has finished that was submitted to the current
// streams before `record`. What the backend wrote is visible to work that is submitted after its
// own thread told the caller that it is done.
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
  // Raises if the tensors of a list are on several devices.
  TensorLists add(const TensorLists &lists);

  // Remembers how far the current streams of the tensors' devices are.
  void record();

  // Waits for that, and raises what the work failed with. Takes neither the GIL nor a turn.
  void arrive() const;

  // Copies what was staged as a copy, from and to its device.
  void copy_to_host() const;
  void copy_to_device() const;

private:
  Tensors tensors_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_; // on a device, on the host
  std::vector<EventOwner> events_;
};

} // namespace openreg
