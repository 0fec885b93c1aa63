#include "compat/autograd_graph.h"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "allocator/allocator.h"
#include "compat/autograd_node.h"
#include "core/status.h"
#include "device/capture.h"
#include "device/device.h"

namespace openreg {

namespace {

using torch::autograd::Node;

// In a larger graph, the time of a switch between threads is small beside that of its nodes.
constexpr size_t kMostNodes = 1000;

bool runs_known_code(const Node &node, std::string_view type) {
  if (type == "N5torch8autograd6PyNodeE") { // a function written in Python
    return node.is_aot_backward();          // which the compiler wrote
  }
  // An extension's functions in C++ are CppNode<its type>.
  return type.starts_with("N5torch8autograd") && !type.starts_with("N5torch8autograd7CppNodeI");
}

// Whether the node accumulates gradients of no tensor, as in some graphs of PyTorch's operator
// database. Asking such a node for its hooks ends the process.
bool lacks_tensor(const Node &node, std::string_view type) {
  return type == "N5torch8autograd14AccumulateGradE" &&
         !static_cast<const torch::autograd::AccumulateGrad &>(node).variable.defined();
}

bool has_hooks(Node &node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() ||
         !node.tensor_pre_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

// Walks over a graph, and notes the device of its nodes.
class Walk {
public:
  // Returns whether all nodes suit.
  bool visit_all(c10::ArrayRef<at::Tensor> roots) {
    for (const auto &root : roots) {
      if (root.unsafeGetTensorImpl()->is_python_dispatch()) {
        return false;
      }
      add(torch::autograd::impl::gradient_edge(root).function.get());
    }
    while (!waiting_.empty()) {
      Node &node = *waiting_.back();
      waiting_.pop_back();
      if (seen_.size() > kMostNodes || !suits(node)) {
        return false;
      }
      for (const auto &edge : node.next_edges()) {
        add(edge.function.get());
      }
    }
    return true;
  }

  // The only accelerator of the nodes, if there is one.
  std::optional<c10::Device> device() const { return device_; }

private:
  void add(Node *node) {
    if (node != nullptr && seen_.insert(node).second) {
      waiting_.push_back(node);
    }
  }

  bool suits(Node &node) {
    const std::string_view type(typeid(node).name());
    if (!runs_known_code(node, type) || lacks_tensor(node, type) || has_hooks(node)) {
      return false;
    }
    for (uint32_t i = 0; i < node.num_inputs(); ++i) {
      const auto &input = node.input_metadata(i);
      if (input.is_tensor_subclass()) {
        return false;
      }
      if (const auto device = input.device(); !device.is_cpu()) {
        if (device_ && *device_ != device) {
          return false;
        }
        device_ = device;
      }
    }
    return true;
  }

  ska::flat_hash_set<Node *> seen_;
  std::vector<Node *> waiting_;
  std::optional<c10::Device> device_;
};

} // namespace

bool may_use_calling_thread(c10::ArrayRef<at::Tensor> roots) {
  if (at::hasCallbacks() || torch::autograd::AnomalyMode::is_enabled() ||
      c10::impl::TorchDispatchModeTLS::any_modes_set() || is_in_backward()) {
    return false;
  }
  Walk walk;
  if (!walk.visit_all(roots) || !walk.device()) {
    return false;
  }
  const openreg_config *config = nullptr;
  check(openreg_config_get(&config));
  if (config->gpu_overhead) { // each thread takes memory for its handles of cuBLAS
    return false;
  }
  const auto index = walk.device()->index();
  uint64_t mempool = 0;
  int stream = OPENREG_STREAM_DEFAULT;
  check(openreg_mempool_current(index, &mempool));
  check(openreg_stream_current(index, &stream));
  return mempool == 0 && !openreg_stream_is_capturing(index, stream);
}

} // namespace openreg
