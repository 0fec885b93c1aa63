// Replaces libcudart and the driver functions that PyTorch's CUDA caching allocator uses: one
// device whose memory is only counted, and streams on which nothing runs.
//
// A stream is idle unless it is held. Waiting ends held work: waiting for an event or a stream ends
// that of the stream; waiting for the device, as cudaFree and cuMemUnmap do, ends that of all
// streams. Addresses are the lowest that fit, in pages of 2 MiB. Memory and reserved ranges have
// different addresses. Functions that the allocator does not call are missing: libc10_cuda looks
// functions up when it first calls them, and the process ends if one is missing.

#include "stub.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

// What cudaEvent_t points to: the hold under which an event was recorded, 0 for none.
struct CUevent_st {
  uint64_t stream, hold;
};

namespace {

constexpr uint64_t kPageBytes = 2 << 20;
constexpr uint64_t kFirstMemory = 0x200000000;
constexpr uint64_t kFirstReserved = 0x1000000000000;

using Ranges = std::map<uint64_t, uint64_t>; // from address to bytes

uint64_t capacity_bytes, used_bytes;
Ranges memory, reserved;
std::map<CUmemGenericAllocationHandle, uint64_t> pages; // the bytes that cuMemCreate created
std::string handed_out;
std::map<uint64_t, uint64_t> holds; // the hold of each held stream
cudaError_t last_error = cudaSuccess;

uint64_t number_of(cudaStream_t stream) {
  return reinterpret_cast<uint64_t>(stream);
}

uint64_t hold_of(uint64_t stream) {
  const auto hold = holds.find(stream);
  return hold == holds.end() ? 0 : hold->second;
}

bool is_done(const CUevent_st &event) {
  return event.hold == 0 || event.hold != hold_of(event.stream);
}

uint64_t round_up(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Places a range at the lowest address that has room for it.
uint64_t place(Ranges &ranges, uint64_t first, uint64_t bytes, const char *prefix) {
  uint64_t address = first;
  for (const auto &[other, other_bytes] : ranges) {
    if (other >= address + round_up(bytes)) {
      break;
    }
    address = other + round_up(other_bytes);
  }
  ranges[address] = bytes;
  handed_out += handed_out.empty() ? "" : ",";
  handed_out += prefix + std::to_string(address) + ":" + std::to_string(bytes);
  return address;
}

bool take(uint64_t bytes) {
  if (bytes > capacity_bytes - used_bytes) {
    return false;
  }
  used_bytes += bytes;
  return true;
}

cudaError_t fail(cudaError_t error) {
  return last_error = error;
}

} // namespace

// ---- for the player -----------------------------------------------------------------------------

void stub::set_capacity(uint64_t bytes) {
  capacity_bytes = bytes;
}

void stub::hold(uint64_t stream) {
  static uint64_t count;
  holds.try_emplace(stream, ++count);
}

void stub::go(uint64_t stream) {
  holds.erase(stream);
}

std::string stub::take_segments() {
  return std::exchange(handed_out, {});
}

// ---- runtime: the device and its memory ---------------------------------------------------------

cudaError_t cudaGetDeviceCount(int *count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
  *properties = {};
  properties->totalGlobalMem = capacity_bytes;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  *free = capacity_bytes - used_bytes;
  *total = capacity_bytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **address, size_t bytes) {
  if (!take(bytes)) {
    return fail(cudaErrorMemoryAllocation);
  }
  *address = reinterpret_cast<void *>(place(memory, kFirstMemory, bytes, ""));
  return cudaSuccess;
}

cudaError_t cudaFree(void *address) {
  const auto range = memory.find(reinterpret_cast<uint64_t>(address));
  if (range == memory.end()) {
    return fail(cudaErrorInvalidValue);
  }
  used_bytes -= range->second;
  memory.erase(range);
  return cudaDeviceSynchronize();
}

// ---- runtime: streams and events ----------------------------------------------------------------

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  holds.clear();
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  stub::go(number_of(stream));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  *event = new CUevent_st{};
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  *event = {number_of(stream), hold_of(number_of(stream))};
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return is_done(*event) ? cudaSuccess : fail(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!is_done(*event)) {
    stub::go(event->stream);
  }
  return cudaSuccess;
}

// ---- driver: expandable segments ----------------------------------------------------------------

namespace {

CUresult get_device(CUdevice *device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult get_attribute(int *value, CUdevice_attribute, CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult reserve(CUdeviceptr *address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  *address = place(reserved, kFirstReserved, bytes, "r");
  return CUDA_SUCCESS;
}

CUresult free_reserved(CUdeviceptr address, size_t) {
  return reserved.erase(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *,
                unsigned long long) {
  static CUmemGenericAllocationHandle count;
  if (!take(bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = ++count;
  pages[*handle] = bytes;
  return CUDA_SUCCESS;
}

// The allocator unmaps first.
CUresult release(CUmemGenericAllocationHandle handle) {
  used_bytes -= pages.at(handle);
  pages.erase(handle);
  return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t) {
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr, size_t) {
  cudaDeviceSynchronize();
  return CUDA_SUCCESS;
}

// Stands for functions that are looked up, but not called.
void end() {
  fputs("stub: a function was called that is not here\n", stderr);
  abort();
}

template <class F> void *address_of(F *function) {
  return reinterpret_cast<void *>(function);
}

} // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult *result) {
  static const std::map<std::string, void *> functions = {
      {"cuDeviceGet", address_of(get_device)},
      {"cuDeviceGetAttribute", address_of(get_attribute)},
      {"cuMemAddressReserve", address_of(reserve)},
      {"cuMemAddressFree", address_of(free_reserved)},
      {"cuMemCreate", address_of(create)},
      {"cuMemRelease", address_of(release)},
      {"cuMemMap", address_of(map)},
      {"cuMemSetAccess", address_of(set_access)},
      {"cuMemUnmap", address_of(unmap)},
  };
  const auto found = functions.find(name);
  *function = found == functions.end() ? address_of(end) : found->second;
  if (result) {
    *result = cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}

// ---- NVML ---------------------------------------------------------------------------------------

// The message of OutOfMemoryError names the processes that use the device: none.

extern "C" {

int nvmlInit_v2() {
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *, void **) {
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses(void *, unsigned *count, void *) {
  *count = 0;
  return 0;
}

void nvmlDeviceGetNvLinkRemoteDeviceType() {
  end();
}

void nvmlDeviceGetNvLinkRemotePciInfo_v2() {
  end();
}

void nvmlSystemGetCudaDriverVersion_v2() {
  end();
}
}
