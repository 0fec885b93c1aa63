#include "compat/autograd_node.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

namespace openreg {

bool is_in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

int64_t running_autograd_node(std::string *name) {
  const auto node = torch::autograd::get_current_node();
  if (!node) {
    return -1;
  }
  if (name != nullptr) {
    *name = node->name();
  }
  return static_cast<int64_t>(node->sequence_nr());
}

} // namespace openreg
