/* ipc.c: device memory of other processes.
 *
 * A handle stands for a whole piece of memory, and opening it gives the piece's first address. Each
 * handle of openreg is to be opened once: if several processes need the memory, each needs a handle
 * of its own (docs/cuda-runtime.md).
 */
#include "cudart/internal.h"

#include <string.h>

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(openreg_ipc_handle), "handles have 64 bytes");

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *devPtr) {
  if (handle == NULL || devPtr == NULL)
    return cudart_fail_null(__func__, handle == NULL ? "handle" : "devPtr");
  struct cudart_allocation found;
  if (!cudart_find_allocation(devPtr, &found) || found.pool != NULL || found.is_managed)
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaIpcGetMemHandle: %p is not in memory of cudaMalloc", devPtr);
  openreg_ipc_handle exported;
  openreg_status status =
      openreg_ipc_export(found.address, found.bytes, OPENREG_STREAM_DEFAULT, &exported);
  if (status != OPENREG_OK)
    return cudart_return(status);
  cudart_mark_exported(found.address);
  memcpy(handle, &exported, sizeof exported);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **devPtr, cudaIpcMemHandle_t handle, unsigned int flags) {
  if (devPtr == NULL)
    return cudart_fail_null(__func__, "devPtr");
  if (flags != cudaIpcMemLazyEnablePeerAccess)
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaIpcOpenMemHandle: flags is 0x%x: expected "
                       "cudaIpcMemLazyEnablePeerAccess (1)",
                       flags);
  openreg_ipc_handle exported;
  memcpy(&exported, &handle, sizeof exported);
  int device;
  size_t bytes;
  openreg_status status = cudart_enter(&device);
  if (status == OPENREG_OK)
    status = openreg_ipc_open(&exported, OPENREG_STREAM_DEFAULT, devPtr, &bytes, &device);
  return cudart_return_as(status, OPENREG_INVALID_ARGUMENT, cudaErrorInvalidResourceHandle);
}

/* Waits for this process's work, which may use the memory. */
cudaError_t cudaIpcCloseMemHandle(void *devPtr) {
  if (devPtr == NULL)
    return cudart_fail_null(__func__, "devPtr");
  openreg_status status = openreg_require_no_bad_fork();
  if (status == OPENREG_OK)
    status = cudart_drain_all();
  if (status == OPENREG_OK)
    status = openreg_ipc_close(devPtr);
  return cudart_return(status);
}
