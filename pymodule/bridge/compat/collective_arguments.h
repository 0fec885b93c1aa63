// What PyTorch knows about the arguments of collectives: the factor of PREMUL_SUM, and the checks
// of lists for gather and scatter. In 2.12 the factor has another name, and the checks are part of
// its NCCL group.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <torch/version.h>

namespace openreg {

#if TORCH_VERSION_MINOR >= 13

using c10d::assertEmptyInputTensorList;
using c10d::assertEmptyOutputTensorList;
using c10d::assertGatherOutputTensorList;
using c10d::assertScatterInputTensorList;
using c10d::PreMulSumSupplement;

#else

using PreMulSumSupplement = c10d::NCCLPreMulSumSupplement;
using Refuse = std::function<void(const std::string &)>;
using ListsOfTensors = std::vector<std::vector<at::Tensor>>;

// Raises an error unless there is one list with a tensor for each rank. `direction` is "input" or
// "output".
inline void assert_one_full_list(const Refuse &refuse, const ListsOfTensors &lists, int64_t size,
                                 const std::string &direction, const std::string &Direction) {
  if (lists.size() != 1) {
    refuse("requires a single-element " + direction + " list containing a list with " +
           std::to_string(size) + " tensors.");
  } else if (lists[0].size() != static_cast<size_t>(size)) {
    refuse("Incorrect " + direction + " list size " + std::to_string(lists[0].size()) + ". " +
           Direction + " list size should be " + std::to_string(size) +
           ", same as size of the process group.");
  }
}

inline void assertGatherOutputTensorList(const Refuse &refuse, const ListsOfTensors &lists,
                                         int64_t size) {
  assert_one_full_list(refuse, lists, size, "output", "Output");
}

inline void assertScatterInputTensorList(const Refuse &refuse, const ListsOfTensors &lists,
                                         int64_t size) {
  assert_one_full_list(refuse, lists, size, "input", "Input");
}

inline void assertEmptyOutputTensorList(const Refuse &refuse, const ListsOfTensors &lists) {
  if (!lists.empty()) {
    refuse("requires empty output on non-root");
  }
}

inline void assertEmptyInputTensorList(const Refuse &refuse, const ListsOfTensors &lists) {
  if (!lists.empty()) {
    refuse("requires empty input on non-root");
  }
}

#endif

} // namespace openreg
