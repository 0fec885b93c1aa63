// Python's interface to memory pools, their checkpoints, and pluggable allocators. Conversions
// only.

#include "python/bind.h"

#include <unordered_set>
#include <utility>

#include "core/status.h"
#include "memory/allocation/checkpoint.h"
#include "memory/allocation/mempool.h"
#include "memory/allocation/pluggable_allocator.h"
#include "streams/inline_guard.h"

namespace py = pybind11;

namespace openreg {

namespace {

using PoolId = std::pair<uint64_t, uint64_t>; // (0, number), as torch.cuda's

uint64_t number_of(const PoolId &id) {
  TORCH_CHECK_VALUE(id.first == 0, "openreg: invalid memory pool id (", id.first, ", ", id.second,
                    "): expected (0, number)");
  return id.second;
}

PoolId id_of(uint64_t number) {
  return {0, number};
}

std::vector<c10::StorageImpl *> storages_at(const std::vector<uintptr_t> &addresses) {
  std::vector<c10::StorageImpl *> storages;
  for (const auto address : addresses) {
    storages.push_back(reinterpret_cast<c10::StorageImpl *>(address));
  }
  return storages;
}

class Checkpoint {
public:
  explicit Checkpoint(PoolCheckpoint state) : state(std::move(state)) {}
  PoolCheckpoint state;
};

bool live_allocations_are(int device, const PoolId &id,
                          const std::unordered_set<uintptr_t> &expected) {
  const auto live = allocated_addresses(device, number_of(id));
  return std::unordered_set<uintptr_t>(live.begin(), live.end()) == expected;
}

template <class Function> Function *function_at(uintptr_t address) {
  TORCH_CHECK_VALUE(address != 0, "openreg: expected a function's address, got 0");
  return reinterpret_cast<Function *>(address);
}

void define_memory_pools(py::module &module) {
  py::class_<MemPool, std::shared_ptr<MemPool>>(module, "_MemPool")
      .def(py::init<std::shared_ptr<PluggableAllocator>, bool, bool>(), py::arg("allocator"),
           py::arg("use_on_oom"), py::arg("no_split"))
      .def_property_readonly("id", [](const MemPool &pool) { return id_of(pool.id()); })
      .def_property_readonly("allocator", &MemPool::allocator)
      .def("use_count", [](const MemPool &pool) { return openreg_mempool_use_count(pool.id()); });
  module.def("graph_pool_handle", [] { return id_of(allocate_graph_pool_id()); });
  module.def("begin_allocate_current_thread_to_pool",
             [](int device, const PoolId &id) { begin_allocate_to_pool(device, number_of(id)); });
  module.def("end_allocate_to_pool",
             [](int device, const PoolId &id) { end_allocate_to_pool(device, number_of(id)); });
  module.def("retain_pool", [](const PoolId &id) { check(openreg_mempool_retain(number_of(id))); });
  module.def("release_pool", [](int, const PoolId &id) { release_pool(number_of(id)); });
}

void define_checkpoints(py::module &module) {
  py::class_<Checkpoint, std::shared_ptr<Checkpoint>>(module, "_PoolCheckpoint");
  module.def("get_checkpoint_state", [](int device, const PoolId &id) {
    return std::make_shared<Checkpoint>(take_pool_checkpoint(device, number_of(id)));
  });
  module.def("set_checkpoint_pool_state",
             [](int, const Checkpoint &checkpoint, const std::vector<uintptr_t> &stale,
                const std::vector<uintptr_t> &adopters) {
               restore_pool(*checkpoint.state, storages_at(stale), storages_at(adopters));
             });
  module.def("check_pool_live_allocations", &live_allocations_are);
}

void define_pluggable_allocators(py::module &module) {
  using Allocator = PluggableAllocator;
  py::class_<Allocator, std::shared_ptr<Allocator>>(module, "_CUDAAllocator")
      .def("set_init_fn", [](Allocator &self,
                             uintptr_t address) { self.on_init = function_at<void(int)>(address); })
      .def("set_reset_fn",
           [](Allocator &self, uintptr_t address) { self.on_reset = function_at<void()>(address); })
      .def("set_memory_fraction_fn",
           [](Allocator &self, uintptr_t address) {
             self.on_memory_fraction = function_at<void(double, int)>(address);
           })
      .def("set_record_stream_fn", [](Allocator &self, uintptr_t address) {
        self.on_record_stream = function_at<void(void *, void *)>(address);
      });
  module.def("custom_allocator", [](uintptr_t allocate, uintptr_t free) {
    return std::make_shared<Allocator>(function_at<Allocator::Allocate>(allocate),
                                       function_at<Allocator::Free>(free));
  });
  module.def("change_current_allocator", &change_current_allocator);
  module.def("get_allocator", &current_pluggable_allocator);
}

// The equivalents of cudaMalloc and cudaFree. Addresses are integers.
void define_device_memory(py::module &module) {
  module.def("device_malloc", [](int device, size_t bytes) {
    void *address = nullptr;
    const WithoutGil no_gil;
    check(openreg_device_malloc(device, bytes, &address));
    return reinterpret_cast<uintptr_t>(address);
  });
  module.def("device_free", [](uintptr_t address) {
    const WithoutGil no_gil;
    check(openreg_device_free(reinterpret_cast<void *>(address)));
  });
}

} // namespace

void define_pools(py::module &module) {
  define_pluggable_allocators(module); // first: _MemPool's constructor takes one
  define_memory_pools(module);
  define_checkpoints(module);
  define_device_memory(module);
}

} // namespace openreg
