// Stream handles: the number by which libraries name a stream. In openreg mode it is torch.Stream's
// id. In CUDA mode it stands for a cudaStream_t, an address for all but the default stream.
#pragma once

#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <ios>

#include "core/device_type.h"

namespace openreg {

// In CUDA mode: the low bits hold the stream's number, the bits above hold the device index + 1.
inline constexpr int kHandleBits = 12;

inline uintptr_t handle_of_stream(int device, int64_t stream) {
  const auto id = static_cast<uintptr_t>(stream);
  return in_cuda_mode() && id != 0 ? (static_cast<uintptr_t>(device) + 1) << kHandleBits | id : id;
}

inline uintptr_t handle_of_stream(const c10::Stream &stream) {
  return handle_of_stream(stream.device_index(), stream.id());
}

// Returns the stream's number. Raises RuntimeError for a number that cannot be a handle.
inline int stream_of_handle(uintptr_t handle) {
  if (!in_cuda_mode()) {
    return static_cast<int>(handle);
  }
  constexpr uintptr_t kLegacyDefault = 1; // cudaStreamLegacy
  if (handle == 0 || handle == kLegacyDefault) {
    return 0;
  }
  constexpr uintptr_t kNumber = (uintptr_t{1} << kHandleBits) - 1;
  TORCH_CHECK(handle > kNumber && (handle & kNumber) != 0, "openreg: the address 0x", std::hex,
              handle, " is not a stream handle; pass the cuda_stream attribute of a stream");
  return static_cast<int>(handle & kNumber);
}

} // namespace openreg
