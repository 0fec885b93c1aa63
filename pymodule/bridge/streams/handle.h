// What programs call a stream that take one as a number: as torch.Stream's id, and in CUDA mode as
// CUDA's handle, which is an address for all but default streams.
#pragma once

#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <ios>

#include "core/device_type.h"

namespace openreg {

// In CUDA mode, of the stream's number; the bits above are the device's, counted from 1.
inline constexpr int kHandleBits = 12;

inline uintptr_t handle_of_stream(int device, int64_t stream) {
  const auto id = static_cast<uintptr_t>(stream);
  return in_cuda_mode() && id != 0 ? (static_cast<uintptr_t>(device) + 1) << kHandleBits | id : id;
}

inline uintptr_t handle_of_stream(const c10::Stream &stream) {
  return handle_of_stream(stream.device_index(), stream.id());
}

// Raises RuntimeError for what cannot be a stream's handle.
inline int stream_of_handle(uintptr_t handle) {
  if (!in_cuda_mode()) {
    return static_cast<int>(handle);
  }
  constexpr uintptr_t kLegacyDefault = 1; // CUDA's other name for the default stream
  if (handle == 0 || handle == kLegacyDefault) {
    return 0;
  }
  constexpr uintptr_t kNumber = (uintptr_t{1} << kHandleBits) - 1;
  TORCH_CHECK(handle > kNumber && (handle & kNumber) != 0, "openreg: the address 0x", std::hex,
              handle, " is not that of a stream: expected the cuda_stream of one");
  return static_cast<int>(handle & kNumber);
}

} // namespace openreg
