#include "module/module_properties.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/device_type.h"
#include "device/device.h"

namespace py = pybind11;

namespace openreg {

namespace {

using Properties = openreg_device_properties;

// What follows from a GPU's compute capability: the table of technical specifications in NVIDIA's
// CUDA programming guide. Shared memory in KiB.
struct Capability {
  int major, minor;
  int shared_per_multiprocessor;
};
constexpr Capability kCapabilities[] = {{7, 0, 96},  {7, 5, 64},  {8, 0, 164},  {8, 6, 100},
                                        {8, 9, 100}, {9, 0, 228}, {10, 0, 228}, {12, 0, 100}};
// What follows from the GPU: its data sheet, or what deviceQuery of CUDA's samples prints of one.
// Clocks in MHz, the memory's as the driver counts it; the bus in bits.
struct Board {
  std::string_view profile;
  int l2_mib, clock, memory_clock, memory_bus_width;
};
constexpr std::array<Board, 17> kBoards = {{
    {"b200", 126, 1965, 3996, 8192}, // estimate
    {"h200", 50, 1980, 3201, 6144},
    {"h100", 50, 1980, 2619, 5120},
    {"h100-pcie", 50, 1755, 1593, 5120},
    {"a100", 40, 1410, 1215, 5120},
    {"a100-80gb", 40, 1410, 1593, 5120},
    {"v100", 6, 1530, 877, 4096},
    {"v100-32gb", 6, 1530, 877, 4096},
    {"l40s", 96, 2520, 9001, 384},
    {"l4", 48, 2040, 6251, 192},
    {"t4", 4, 1590, 5001, 256},
    {"rtx4090", 72, 2520, 10501, 384},
    {"rtx3090", 6, 1695, 9751, 384},
    {"a10g", 6, 1710, 6251, 384},
    {"rtx4090d", 72, 2520, 10501, 384},
    {"h20", 60, 1980, 2619, 6144}, // estimate
    {"rtx3060", 3, 1777, 7501, 192},
}};

// All 0 for a profile given as numbers: nothing is known of it.
Board board_of(const Properties &properties) {
  const auto *const found = std::ranges::find(kBoards, properties.profile.key, &Board::profile);
  return found == kBoards.end() ? Board{} : *found;
}

constexpr int kKHzPerMHz = 1000;

std::string text_of_uuid(const Properties &properties) {
  char text[OPENREG_UUID_TEXT_BYTES];
  openreg_device_write_uuid(properties.uuid, text);
  return text;
}

// As PyTorch gives it: printed, or its bytes.
struct Uuid {
  Properties properties;
};

constexpr int kRegistersPerMultiprocessor = 65536;
constexpr int kThreadsPerBlock = 1024;
constexpr int kWarpSize = 32;
constexpr int kSharedPerBlock = 48 << 10;
constexpr int kReservedPerBlock = 1 << 10; // of shared memory, from capability 8.0 on

int shared_per_multiprocessor(const Properties &properties) {
  for (const auto &capability : kCapabilities) {
    if (capability.major == properties.profile.major &&
        capability.minor == properties.profile.minor) {
      return capability.shared_per_multiprocessor << 10;
    }
  }
  return 2 * kSharedPerBlock;
}

int shared_per_block_at_most(const Properties &properties) {
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
      .def_property_readonly("shared_memory_per_block_optin", &shared_per_block_at_most)
      .def_property_readonly("shared_memory_per_multiprocessor", &shared_per_multiprocessor)
      .def_property_readonly("is_integrated", [](const Properties &) { return 0; })
      .def_property_readonly("is_multi_gpu_board", [](const Properties &) { return 0; })
      .def_property_readonly("gcnArchName", // PyTorch's, for it has no other on NVIDIA's
                             &profile_field<&openreg_profile::name>)
      .def_readonly("total_memory", &Properties::total_memory_bytes)
      .def_property_readonly("uuid", [](const Properties &p) { return Uuid{p}; })
      .def_property_readonly("L2_cache_size",
                             [](const Properties &p) { return board_of(p).l2_mib << 20; })
      .def_property_readonly("clock_rate",
                             [](const Properties &p) { return board_of(p).clock * kKHzPerMHz; })
      .def_property_readonly(
          "memory_clock_rate",
          [](const Properties &p) { return board_of(p).memory_clock * kKHzPerMHz; })
      .def_property_readonly("memory_bus_width",
                             [](const Properties &p) { return board_of(p).memory_bus_width; })
      .def_readonly("numa_node", &Properties::numa_node)
      .def_property_readonly("cpuset", [](const Properties &p) { return std::string(p.cpuset); })
      .def("__repr__", [](const Properties &p) {
        std::ostringstream text;
        text << (in_cuda_mode() ? "_CudaDeviceProperties" : "_DeviceProperties") << "(name='"
             << p.profile.name << "', major=" << p.profile.major << ", minor=" << p.profile.minor
             << ", total_memory=" << p.total_memory_bytes / 1048576
             << "MB, multi_processor_count=" << p.profile.multiprocessor_count
             << ", uuid=" << text_of_uuid(p) << ", L2_cache_size=" << board_of(p).l2_mib << "MB";
        if (!in_cuda_mode()) { // where nothing says where a device is
          text << ", numa_node=" << p.numa_node << ", cpuset='" << p.cpuset << "'";
        }
        text << ")";
        return text.str();
      });
}

} // namespace openreg
