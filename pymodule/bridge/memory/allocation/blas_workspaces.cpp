#include "memory/allocation/blas_workspaces.h"

#include <c10/util/Exception.h>
#include <c10/util/env.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <compare>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memory/allocation/memory.h"

namespace openreg {

namespace {

constexpr size_t kKiB = 1024;

// ---- sizes --------------------------------------------------------------------------------------

// PyTorch's default: 32 MiB for Hopper and Blackwell, else NVIDIA's recommendation of two buffers
// of 4096 KiB and eight of 16 KiB.
size_t default_bytes(c10::DeviceIndex device) {
  openreg_device_properties properties;
  check(openreg_device_get_properties(device, &properties));
  const int major = properties.profile.major;
  return (major == 9 || major == 10 || major == 12 ? 8 * 4096 : 2 * 4096 + 8 * 16) * kKiB;
}

// Removes a colon and a number from the front of `text`.
std::optional<size_t> take_number(std::string_view &text) {
  size_t number = 0;
  if (text.empty() || text.front() != ':') {
    return std::nullopt;
  }
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), number);
  if (error == std::errc::invalid_argument) {
    return std::nullopt;
  }
  TORCH_CHECK(error == std::errc(), "openreg: CUBLAS_WORKSPACE_CONFIG holds a number that is too "
                                    "large: expected :SIZE:COUNT, sizes in KiB, as :4096:8");
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// As on CUDA, ":SIZE:COUNT" counts wherever it occurs, and other text is skipped.
std::optional<size_t> sum_of_buffers(std::string_view text) {
  std::optional<size_t> bytes;
  while (!text.empty()) {
    auto rest = text;
    const auto size = take_number(rest);
    const auto count = size.has_value() ? take_number(rest) : std::nullopt;
    if (count.has_value()) {
      bytes = bytes.value_or(0) + *size * kKiB * *count;
      text = rest;
    } else {
      text.remove_prefix(1);
    }
  }
  return bytes;
}

size_t read_cublas_bytes(c10::DeviceIndex device) {
  const auto value = c10::utils::get_env("CUBLAS_WORKSPACE_CONFIG");
  if (!value.has_value()) {
    return default_bytes(device);
  }
  const auto bytes = sum_of_buffers(*value);
  if (!bytes.has_value()) {
    TORCH_WARN("CUBLAS_WORKSPACE_CONFIG=", *value, ": expected :SIZE:COUNT, sizes in KiB, as ",
               ":4096:8; the default is used, ", default_bytes(device), " bytes");
  }
  return bytes.value_or(default_bytes(device));
}

// The sizes that the program requested. kNotRequested: none.
constexpr int64_t kNotRequested = -1;
std::array<std::atomic<int64_t>, 2> requested_bytes = {kNotRequested, kNotRequested};

std::atomic<int64_t> &requested_bytes_of(BlasLibrary library) {
  return requested_bytes[library == BlasLibrary::kCublas ? 0 : 1];
}

// As on CUDA, the device that asks first determines the default for all devices.
size_t cublas_bytes(c10::DeviceIndex device) {
  if (const auto requested = requested_bytes_of(BlasLibrary::kCublas).load();
      requested != kNotRequested) {
    return static_cast<size_t>(requested);
  }
  static const size_t bytes = read_cublas_bytes(device);
  return bytes;
}

// Whether cuBLASLt uses the workspaces of cuBLAS.
bool is_unified() {
  static const bool is = c10::utils::check_env("TORCH_CUBLASLT_UNIFIED_WORKSPACE") != false;
  return is;
}

size_t read_cublaslt_bytes(c10::DeviceIndex device) {
  const size_t default_kib = is_unified() ? cublas_bytes(device) / kKiB : 1024;
  const auto value = c10::utils::get_env("CUBLASLT_WORKSPACE_SIZE");
  if (!value.has_value()) {
    return default_kib * kKiB;
  }
  const auto fall_back = [&](const char *why) {
    TORCH_WARN("CUBLASLT_WORKSPACE_SIZE=", *value, ": ", why, "; the default is used, ",
               default_kib, " KiB");
    return default_kib * kKiB;
  };
  try { // as on CUDA, "2048 KiB" is 2048, and -1 is more than any device has
    return static_cast<size_t>(std::stoi(*value)) * kKiB;
  } catch (const std::invalid_argument &) {
    return fall_back("expected a number of KiB");
  } catch (const std::out_of_range &) {
    return fall_back("the number is too large");
  }
}

// If cuBLASLt shares the workspace of cuBLAS, its size is the limit.
size_t cublaslt_bytes(c10::DeviceIndex device) {
  const auto requested = requested_bytes_of(BlasLibrary::kCublasLt).load();
  static const size_t configured = read_cublaslt_bytes(device);
  const auto bytes = requested == kNotRequested ? configured : static_cast<size_t>(requested);
  if (!is_unified() || bytes <= cublas_bytes(device)) {
    return bytes;
  }
  TORCH_WARN_ONCE("CUBLASLT_WORKSPACE_SIZE requests ", bytes, " bytes, but cuBLASLt shares the ",
                  "workspace of cuBLAS, which has ", cublas_bytes(device),
                  "; that is the limit. Set ", "CUBLAS_WORKSPACE_CONFIG to enlarge it");
  return cublas_bytes(device);
}

size_t bytes_of(BlasLibrary library, c10::DeviceIndex device) {
  return library == BlasLibrary::kCublas ? cublas_bytes(device) : cublaslt_bytes(device);
}

// ---- handles ------------------------------------------------------------------------------------

// Handles that no thread owns. Never destroyed, because threads may end after everything else.
struct FreeHandles {
  std::mutex mutex;
  std::array<std::vector<int>, OPENREG_MAX_DEVICES> of_device;
  int made = 0;
};

FreeHandles &free_handles() {
  static auto *const handles = new FreeHandles();
  return *handles;
}

class ThreadHandles {
public:
  ThreadHandles() { handles_.fill(kNone); }
  ThreadHandles(const ThreadHandles &) = delete;
  ThreadHandles &operator=(const ThreadHandles &) = delete;

  ~ThreadHandles() {
    if (openreg_in_bad_fork()) { // no devices here, and another thread may have held the lock at
                                 // the fork
      return;
    }
    auto &free = free_handles();
    const std::lock_guard guard(free.mutex);
    for (size_t device = 0; device < handles_.size(); ++device) {
      if (handles_[device] != kNone) {
        free.of_device[device].push_back(handles_[device]);
      }
    }
  }

  int of(c10::DeviceIndex device) {
    auto &handle = handles_[static_cast<size_t>(device)];
    if (handle == kNone) {
      handle = take(static_cast<size_t>(device));
    }
    return handle;
  }

private:
  static constexpr int kNone = -1;

  static int take(size_t device) { // like CUDA's pool, takes the handle that was returned last
    auto &free = free_handles();
    const std::lock_guard guard(free.mutex);
    auto &handles = free.of_device[device];
    if (handles.empty()) {
      return free.made++;
    }
    const int handle = handles.back();
    handles.pop_back();
    return handle;
  }

  std::array<int, OPENREG_MAX_DEVICES> handles_;
};

int handle_of_this_thread(c10::DeviceIndex device) {
  thread_local ThreadHandles handles;
  return handles.of(device);
}

// ---- workspaces ---------------------------------------------------------------------------------

struct WorkspaceKey {
  BlasLibrary library;
  int device, handle, stream;
  auto operator<=>(const WorkspaceKey &) const = default;
};

struct Workspace {
  c10::DataPtr memory;
  size_t bytes;
};

using Workspaces = std::map<WorkspaceKey, Workspace>;

std::mutex workspaces_mutex;

Workspaces &workspaces() {
  static auto *const all = new Workspaces(); // their memory ends with the process
  return *all;
}

bool has_workspace(const WorkspaceKey &place, size_t bytes) {
  const std::lock_guard guard(workspaces_mutex);
  const auto found = workspaces().find(place);
  return found != workspaces().end() && found->second.bytes >= bytes;
}

void keep_workspace(const WorkspaceKey &place, Workspace workspace) {
  const std::lock_guard guard(workspaces_mutex);
  std::swap(workspaces()[place], workspace); // the old memory is freed after the lock is released
}

} // namespace

void ensure_blas_workspace(c10::DeviceIndex device, BlasLibrary library) {
  const auto bytes = bytes_of(library, device);
  const bool is_shared = library == BlasLibrary::kCublasLt && is_unified();
  if (is_shared) {
    library = BlasLibrary::kCublas;
  } else if (library == BlasLibrary::kCublasLt) {
    ensure_blas_workspace(device, BlasLibrary::kCublas); // it uses the handle of cuBLAS
  }
  int stream = OPENREG_STREAM_DEFAULT;
  check(openreg_stream_current(device, &stream));
  const WorkspaceKey place = {library, device, handle_of_this_thread(device), stream};
  if (has_workspace(place, bytes)) { // another thread cannot create it: handles belong to one
                                     // thread
    return;
  }
  const auto all = is_shared ? std::max(bytes, cublas_bytes(device)) : bytes;
  keep_workspace(
      place, {all > 0 ? device_pointer(allocate_block(device, stream, all)) : c10::DataPtr(), all});
}

size_t blas_workspace_bytes(c10::DeviceIndex device, BlasLibrary library) {
  return bytes_of(library, device);
}

void set_blas_workspace_bytes(BlasLibrary library, size_t bytes) {
  requested_bytes_of(library).store(static_cast<int64_t>(bytes));
}

void reset_blas_workspace_bytes(BlasLibrary library) {
  requested_bytes_of(library).store(kNotRequested);
}

void clear_blas_workspaces() {
  Workspaces given_back;
  const std::lock_guard guard(workspaces_mutex);
  given_back.swap(workspaces());
}

} // namespace openreg
