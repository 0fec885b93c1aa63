#include "python/bind.h"

#include <iterator>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "core/device_type.h"
#include "device/device.h"

namespace py = pybind11;

namespace openreg {

namespace {

using Properties = openreg_device_properties;

// What a GPU's compute capability determines. Source: the table of technical specifications in
// NVIDIA's CUDA programming guide. Shared memory is in KiB.
struct Capability {
  int major, minor;
  int shared_per_multiprocessor;
};
constexpr Capability kCapabilities[] = {{7, 0, 96},  {7, 5, 64},  {8, 0, 164},  {8, 6, 100},
                                        {8, 9, 100}, {9, 0, 228}, {10, 0, 228}, {12, 0, 100}};

constexpr int kKHzPerMHz = 1000;

std::string text_of_uuid(const Properties &properties) {
  char text[OPENREG_UUID_TEXT_BYTES];
  openreg_device_write_uuid(properties.uuid, text);
  return text;
}

// PyTorch's interface of a UUID: str() and `bytes`.
struct Uuid {
  Properties properties;
};

constexpr int kRegistersPerMultiprocessor = 65536;
constexpr int kThreadsPerBlock = 1024;
constexpr int kWarpSize = 32;
constexpr int kSharedPerBlock = 48 << 10;
constexpr int kReservedPerBlock = 1 << 10; // shared memory, from capability 8.0 on

int shared_per_multiprocessor(const Properties &properties) {
  for (const auto &capability : kCapabilities) {
    if (capability.major == properties.profile.major &&
        capability.minor == properties.profile.minor) {
      return capability.shared_per_multiprocessor << 10;
    }
  }
  return 2 * kSharedPerBlock;
}

int shared_per_block_optin(const Properties &properties) {
  const int reserved = properties.profile.major >= 8 ? kReservedPerBlock : 0;
  return shared_per_multiprocessor(properties) - reserved;
}

template <auto Field> auto profile_field(const openreg_device_properties &properties) {
  if constexpr (std::is_array_v<std::remove_reference_t<decltype(properties.profile.*Field)>>) {
    return std::string(properties.profile.*Field);
  } else {
    return properties.profile.*Field;
  }
}

} // namespace

void define_properties(py::module &module) {
  py::class_<Uuid>(module, "_CUuuid")
      .def_property_readonly("bytes",
                             [](const Uuid &uuid) {
                               const auto &bytes = uuid.properties.uuid;
                               return std::vector<int>(std::begin(bytes), std::end(bytes));
                             })
      .def("__str__", [](const Uuid &uuid) { return text_of_uuid(uuid.properties); });
  py::class_<Properties>(module, "_DeviceProperties")
      .def_property_readonly("name", &profile_field<&openreg_profile::name>)
      .def_property_readonly("profile", &profile_field<&openreg_profile::key>)
      .def_property_readonly("profile_memory", &profile_field<&openreg_profile::memory_bytes>)
      .def_property_readonly("context_bytes", &profile_field<&openreg_profile::context_bytes>)
      .def_property_readonly("major", &profile_field<&openreg_profile::major>)
      .def_property_readonly("minor", &profile_field<&openreg_profile::minor>)
      .def_property_readonly("multi_processor_count",
                             &profile_field<&openreg_profile::multiprocessor_count>)
      .def_property_readonly("max_threads_per_multi_processor",
                             &profile_field<&openreg_profile::max_threads_per_multiprocessor>)
      .def_property_readonly("warp_size", [](const Properties &) { return kWarpSize; })
      .def_property_readonly("regs_per_multiprocessor",
                             [](const Properties &) { return kRegistersPerMultiprocessor; })
      .def_property_readonly("max_threads_per_block",
                             [](const Properties &) { return kThreadsPerBlock; })
      .def_property_readonly("shared_memory_per_block",
                             [](const Properties &) { return kSharedPerBlock; })
      .def_property_readonly("shared_memory_per_block_optin", &shared_per_block_optin)
      .def_property_readonly("shared_memory_per_multiprocessor", &shared_per_multiprocessor)
      .def_property_readonly("is_integrated", [](const Properties &) { return 0; })
      .def_property_readonly("is_multi_gpu_board", [](const Properties &) { return 0; })
      .def_property_readonly("gcnArchName", // as PyTorch: NVIDIA GPUs have no other value
                             &profile_field<&openreg_profile::name>)
      .def_readonly("total_memory", &Properties::total_memory_bytes)
      .def_property_readonly("uuid", [](const Properties &p) { return Uuid{p}; })
      .def_property_readonly("L2_cache_size",
                             [](const Properties &p) { return p.profile.l2_cache_mib << 20; })
      .def_property_readonly("clock_rate",
                             [](const Properties &p) { return p.profile.clock_mhz * kKHzPerMHz; })
      .def_property_readonly(
          "memory_clock_rate",
          [](const Properties &p) { return p.profile.memory_clock_mhz * kKHzPerMHz; })
      .def_property_readonly("memory_bus_width",
                             [](const Properties &p) { return p.profile.memory_bus_bits; })
      .def_readonly("numa_node", &Properties::numa_node)
      .def_property_readonly("cpuset", [](const Properties &p) { return std::string(p.cpuset); })
      .def("__repr__", [](const Properties &p) {
        std::ostringstream text;
        text << (in_cuda_mode() ? "_CudaDeviceProperties" : "_DeviceProperties") << "(name='"
             << p.profile.name << "', major=" << p.profile.major << ", minor=" << p.profile.minor
             << ", total_memory=" << p.total_memory_bytes / 1048576
             << "MB, multi_processor_count=" << p.profile.multiprocessor_count
             << ", uuid=" << text_of_uuid(p) << ", L2_cache_size=" << p.profile.l2_cache_mib
             << "MB";
        if (!in_cuda_mode()) { // CUDA has no such fields
          text << ", numa_node=" << p.numa_node << ", cpuset='" << p.cpuset << "'";
        }
        text << ")";
        return text.str();
      });
}

} // namespace openreg
