// c10/cuda/CUDAStream.h: streams and the current stream of each thread, which are those of the C
// layers. A stream's id is the number of the C layer's stream.

#include <c10/cuda/CUDAStream.h>

#include <ostream>

#include "bridge/core/status.h"
#include "stand_ins/c10_cuda/registered.h"

namespace c10::cuda {

namespace {

CUDAStream make_stream(DeviceIndex device, int number) {
  return CUDAStream(CUDAStream::UNCHECKED,
                    Stream(Stream::UNSAFE, Device(DeviceType::CUDA, device), number));
}

// The runtime alone knows which stream a thread has as its own.
CUDAStream stream_of_thread(DeviceIndex device) {
  const DeviceGuard guard({DeviceType::CUDA, device});
  unsigned long long id = 0;
  C10_CUDA_CHECK(cudaStreamGetId(cudaStreamPerThread, &id));
  return make_stream(device, static_cast<int>(id & 0xFFFFFFFF));
}

} // namespace

cudaStream_t CUDAStream::stream() const {
  const auto number = id();
  int priority = 0; // fails for a device or stream that does not exist
  const auto status =
      number < 0 || number >= OPENREG_STREAMS_PER_DEVICE
          ? OPENREG_INVALID_ARGUMENT
          : openreg_stream_priority(device_index(), static_cast<int>(number), &priority);
  TORCH_CHECK(status == OPENREG_OK, "openreg: no CUDA stream has the id ", number, " on device ",
              static_cast<int>(device_index()),
              ": use a stream that getStreamFromPool, getStreamFromExternal, "
              "getDefaultCUDAStream or getCurrentCUDAStream returned");
  return reinterpret_cast<cudaStream_t>(
      openreg_stream_make_handle(device_index(), static_cast<int>(number)));
}

bool CUDAStream::query() const {
  return openreg::registered_guard().queryStream(unwrap());
}

void CUDAStream::synchronize() const {
  openreg::registered_guard().synchronizeStream(unwrap());
}

CUDAStream getStreamFromPool(const int priority, DeviceIndex device) {
  TORCH_CHECK(priority <= 0, "Expected cuda stream priority to be less than or equal to 0, got ",
              priority);
  const Device resolved(DeviceType::CUDA, openreg::resolve_device(device));
  return CUDAStream(openreg::registered_guard().getNewStream(resolved, priority));
}

CUDAStream getStreamFromPool(const bool isHighPriority, DeviceIndex device) {
  return getStreamFromPool(isHighPriority ? 1 - OPENREG_STREAM_PRIORITIES : 0, device);
}

CUDAStream getStreamFromExternal(cudaStream_t ext_stream, DeviceIndex device_index) {
  const auto expected = openreg::resolve_device(device_index);
  if (ext_stream == cudaStreamPerThread) {
    return stream_of_thread(expected);
  }
  int device = 0;
  int number = OPENREG_STREAM_DEFAULT;
  openreg::check(
      openreg_stream_parse_handle(reinterpret_cast<uintptr_t>(ext_stream), &device, &number));
  TORCH_CHECK(number == OPENREG_STREAM_DEFAULT || device == expected, "openreg: the stream ",
              static_cast<void *>(ext_stream), " belongs to device ", device,
              ", but was given for device ", static_cast<int>(expected));
  return make_stream(expected, number);
}

CUDAStream getDefaultCUDAStream(DeviceIndex device_index) {
  return make_stream(openreg::resolve_device(device_index), OPENREG_STREAM_DEFAULT);
}

CUDAStream getCurrentCUDAStream(DeviceIndex device_index) {
  const auto device = openreg::resolve_device(device_index);
  int number = OPENREG_STREAM_DEFAULT;
  openreg::check(openreg_stream_current(device, &number));
  return make_stream(device, number);
}

void setCurrentCUDAStream(CUDAStream stream) {
  openreg::check(openreg_stream_set_current(stream.device_index(), static_cast<int>(stream.id())));
}

std::ostream &operator<<(std::ostream &stream, const CUDAStream &s) {
  return stream << s.unwrap();
}

} // namespace c10::cuda
