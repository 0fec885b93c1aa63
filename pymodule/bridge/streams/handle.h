// Stream handles: the number by which libraries name a stream. In openreg mode it is torch.Stream's
// id. In CUDA mode it stands for a cudaStream_t, an address for all but the default stream.
#pragma once

#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <ios>

#include "core/device_type.h"
#include "device/device.h"

namespace openreg {

inline uintptr_t handle_of_stream(int device, int64_t stream) {
  return in_cuda_mode() ? openreg_stream_make_handle(device, static_cast<int>(stream))
                        : static_cast<uintptr_t>(stream);
}

inline uintptr_t handle_of_stream(const c10::Stream &stream) {
  return handle_of_stream(stream.device_index(), stream.id());
}

// Returns the stream's number. Raises RuntimeError for a number that cannot be a handle.
inline int stream_of_handle(uintptr_t handle) {
  if (!in_cuda_mode()) {
    return static_cast<int>(handle);
  }
  int device = 0;
  int stream = 0;
  TORCH_CHECK(openreg_stream_parse_handle(handle, &device, &stream) == OPENREG_OK,
              "openreg: the address 0x", std::hex, handle,
              " is not a stream handle; pass the cuda_stream attribute of a stream");
  return stream;
}

} // namespace openreg
