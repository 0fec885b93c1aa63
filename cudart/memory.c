/* memory.c: memory of devices and of the host, and what a pointer points to.
 *
 * Device memory comes from openreg_device_malloc: it is neither cached nor counted as memory of
 * PyTorch's caching allocator, and its size is rounded up to a multiple of 2 MiB. Host memory is
 * registered with the allocator, which then reports it as pinned.
 */
#include "cudart/internal.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A flag of openreg_host_range beside the program's: the memory came from cudaHostAlloc. */
enum { WAS_ALLOCATED = 1 << 30, PITCH_BYTES = 512 };

/* ---- devices --------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **devPtr, size_t size) {
  if (devPtr == NULL)
    return cudart_fail_null(__func__, "devPtr");
  int device;
  openreg_status status = cudart_enter(&device);
  if (status == OPENREG_OK)
    status = openreg_capture_refuse_unsafe("cudaMalloc");
  *devPtr = NULL;
  if (status == OPENREG_OK && size > 0)
    status = cudart_allocate(device, size, NULL, devPtr);
  if (status == OPENREG_OK && size > 0)
    cudart_report_memory(OPENREG_OPERATION_ALLOCATED, device, *devPtr, size);
  return cudart_return(status);
}

cudaError_t cudaMallocPitch(void **devPtr, size_t *pitch, size_t width, size_t height) {
  if (devPtr == NULL || pitch == NULL)
    return cudart_fail_null(__func__, devPtr == NULL ? "devPtr" : "pitch");
  size_t row = (width + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES, bytes;
  if (row < width || __builtin_mul_overflow(row, height, &bytes))
    return cudart_fail(cudaErrorMemoryAllocation,
                       "cudaMallocPitch: %zu rows of %zu bytes exceed the address space", height,
                       width);
  cudaError_t error = cudaMalloc(devPtr, bytes);
  if (error == cudaSuccess)
    *pitch = row;
  return error;
}

/* Managed memory is memory of the current device that the host may access too. */
cudaError_t cudaMallocManaged(void **devPtr, size_t size, unsigned int flags) {
  if (devPtr == NULL)
    return cudart_fail_null(__func__, "devPtr");
  *devPtr = NULL;
  if (size == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost))
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaMallocManaged: %zu bytes with flags 0x%x: expected 1 byte or more, and "
                       "cudaMemAttachGlobal (1) or cudaMemAttachHost (2)",
                       size, flags);
  void *memory = NULL;
  cudaError_t error = cudaMalloc(&memory, size);
  if (error != cudaSuccess)
    return error;
  openreg_status status = cudart_make_managed(memory);
  if (status == OPENREG_OK)
    *devPtr = memory;
  else
    (void)cudart_release(memory);
  return cudart_return(status);
}

/* cudaFree(NULL) only creates the context; programs call it for that. */
cudaError_t cudaFree(void *devPtr) {
  int device;
  openreg_status status = cudart_enter(&device);
  if (status != OPENREG_OK || devPtr == NULL)
    return cudart_return(status);
  struct cudart_allocation found;
  if (!cudart_find_allocation(devPtr, &found) || found.address != devPtr)
    return cudart_fail(cudaErrorInvalidValue, "cudaFree: no memory of cudaMalloc starts at %p",
                       devPtr);
  status = openreg_capture_refuse_unsafe("cudaFree");
  if (status == OPENREG_OK)
    cudart_report_sync(found.device);
  if (status == OPENREG_OK)
    status = found.pool != NULL ? cudart_free_pooled(&found) : cudart_release(devPtr);
  return cudart_return(status);
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  int device;
  uint64_t free_bytes = 0, total_bytes = 0;
  openreg_status status = cudart_enter(&device);
  if (status == OPENREG_OK)
    status = openreg_ledger_query(device, &free_bytes, &total_bytes);
  if (status == OPENREG_OK && free != NULL)
    *free = free_bytes;
  if (status == OPENREG_OK && total != NULL)
    *total = total_bytes;
  return cudart_return(status);
}

/* ---- host memory ----------------------------------------------------------------------------- */

static size_t round_to_pages(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags) {
  enum { KNOWN = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined };
  if (pHost == NULL)
    return cudart_fail_null(__func__, "pHost");
  if ((flags & ~(unsigned)KNOWN) != 0)
    return cudart_fail(cudaErrorInvalidValue, "cudaHostAlloc: invalid flags 0x%x", flags);
  int device;
  openreg_status status = cudart_enter(&device);
  if (status == OPENREG_OK)
    status = openreg_capture_refuse_unsafe("cudaHostAlloc");
  *pHost = NULL;
  if (status != OPENREG_OK || size == 0)
    return cudart_return(status);
  size_t bytes = round_to_pages(size);
  void *pages = bytes < size
                    ? MAP_FAILED
                    : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    return cudart_fail(cudaErrorMemoryAllocation,
                       "cudaHostAlloc: the system has no %zu bytes of host memory", size);
  const openreg_host_range range = {pages, bytes, flags | WAS_ALLOCATED};
  status = openreg_host_register(&range);
  if (status == OPENREG_OK) {
    *pHost = pages;
    cudart_report_memory(OPENREG_OPERATION_PINNED, device, pages, bytes);
  } else {
    munmap(pages, bytes);
  }
  return cudart_return(status);
}

cudaError_t cudaMallocHost(void **ptr, size_t size) {
  return cudaHostAlloc(ptr, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *ptr) {
  openreg_host_range range;
  if (ptr == NULL)
    return cudaSuccess;
  if (!openreg_host_find(ptr, &range) || range.address != ptr || !(range.flags & WAS_ALLOCATED))
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaFreeHost: no memory of cudaHostAlloc starts at %p", ptr);
  openreg_status status = cudart_drain_all();
  if (status == OPENREG_OK)
    cudart_report_memory(OPENREG_OPERATION_UNPIN, -1, range.address, range.bytes);
  if (status == OPENREG_OK)
    status = openreg_host_unregister(ptr);
  if (status == OPENREG_OK)
    munmap(range.address, range.bytes);
  return cudart_return(status);
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags) {
  enum {
    KNOWN = cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterIoMemory |
            cudaHostRegisterReadOnly
  };
  if (ptr == NULL || size == 0)
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaHostRegister: expected an address and 1 byte or more");
  if ((flags & ~(unsigned)KNOWN) != 0)
    return cudart_fail(cudaErrorInvalidValue, "cudaHostRegister: invalid flags 0x%x", flags);
  if (openreg_arena_device_of(ptr) >= 0)
    return cudart_fail(cudaErrorInvalidValue, "cudaHostRegister: %p is device memory", ptr);
  int device;
  openreg_status status = cudart_enter(&device);
  if (status == OPENREG_OK)
    status = openreg_capture_refuse_unsafe("cudaHostRegister");
  if (status != OPENREG_OK)
    return cudart_return(status);
  const openreg_host_range range = {ptr, size, flags};
  return cudart_return_as(openreg_host_register(&range), OPENREG_NOT_PERMITTED,
                          cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void *ptr) {
  openreg_host_range range;
  if (ptr == NULL)
    return cudart_fail_null(__func__, "ptr");
  if (!openreg_host_find(ptr, &range) || range.address != ptr || (range.flags & WAS_ALLOCATED))
    return cudart_fail(cudaErrorHostMemoryNotRegistered,
                       "cudaHostUnregister: no registered memory starts at %p", ptr);
  openreg_status status = cudart_drain_all();
  if (status == OPENREG_OK)
    status = openreg_host_unregister(ptr);
  return cudart_return(status);
}

/* A simulated device reaches host memory by the host's own addresses. */
cudaError_t cudaHostGetDevicePointer(void **pDevice, void *pHost, unsigned int flags) {
  if (pDevice == NULL || pHost == NULL || flags != 0)
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaHostGetDevicePointer: expected two addresses, and flags 0");
  if (!openreg_pinned_contains(pHost))
    return cudart_fail(cudaErrorInvalidValue, "cudaHostGetDevicePointer: %p is not pinned", pHost);
  *pDevice = pHost;
  return cudaSuccess;
}

cudaError_t cudaHostGetFlags(unsigned int *pFlags, void *pHost) {
  openreg_host_range range;
  if (pFlags == NULL)
    return cudart_fail_null(__func__, "pFlags");
  if (!openreg_host_find(pHost, &range))
    return cudart_fail(cudaErrorInvalidValue, "cudaHostGetFlags: %p is not pinned", pHost);
  *pFlags = (range.flags & ~(unsigned)WAS_ALLOCATED) | cudaHostAllocMapped;
  return cudaSuccess;
}

/* ---- pointers -------------------------------------------------------------------------------- */

/* Any address in the arena of a device counts as device memory, allocated or not. */
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr) {
  if (attributes == NULL)
    return cudart_fail_null(__func__, "attributes");
  int current;
  openreg_status status = cudart_enter(&current);
  if (status != OPENREG_OK)
    return cudart_return(status);
  memset(attributes, 0, sizeof *attributes);
  int device = cudart_plan_contains(ptr) ? current : openreg_arena_device_of(ptr);
  if (device >= 0) {
    struct cudart_allocation found;
    bool is_managed = cudart_find_allocation(ptr, &found) && found.is_managed;
    attributes->type = is_managed ? cudaMemoryTypeManaged : cudaMemoryTypeDevice;
    attributes->device = device;
    attributes->devicePointer = (void *)(uintptr_t)ptr;
    attributes->hostPointer = is_managed ? attributes->devicePointer : NULL;
  } else if (openreg_pinned_contains(ptr)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->device = current;
    attributes->devicePointer = attributes->hostPointer = (void *)(uintptr_t)ptr;
  } else {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = (void *)(uintptr_t)ptr;
  }
  return cudaSuccess;
}
