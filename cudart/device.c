/* device.c: counting, choosing and configuring devices; versions; peers. */
#include "cudart/internal.h"

#include <stdatomic.h>
#include <string.h>

enum { LIMITS = cudaLimitPersistingL2CacheSize + 1 };

/* Settings that a program may change and read back. They change nothing else. */
static struct {
  _Atomic unsigned flags;
  _Atomic size_t limits[LIMITS]; /* plus 1; 0: the default */
  _Atomic int cache_config, shared_mem_config;
  _Atomic uint64_t peers; /* bit: access to this device was enabled */
} settings[OPENREG_MAX_DEVICES];

static const size_t default_limits[LIMITS] = {
    [cudaLimitStackSize] = 1024,
    [cudaLimitPrintfFifoSize] = 1 << 20,
    [cudaLimitMallocHeapSize] = 8 << 20,
    [cudaLimitDevRuntimeSyncDepth] = 2,
    [cudaLimitDevRuntimePendingLaunchCount] = 2048,
    [cudaLimitMaxL2FetchGranularity] = 64,
    [cudaLimitPersistingL2CacheSize] = 0,
};

/* ---- shared functions ------------------------------------------------------------------------ */

openreg_status cudart_enter(int *device) {
  openreg_status status = openreg_initialize();
  *device = openreg_device_current();
  if (status == OPENREG_OK)
    status = cudart_use_device(*device);
  return status == OPENREG_OK ? openreg_device_create_context(*device) : status;
}

cudaError_t cudart_check_device(int device) {
  int count;
  openreg_status status = openreg_device_count(&count);
  if (status != OPENREG_OK)
    return cudart_return(status);
  if (device >= 0 && device < count)
    return cudaSuccess;
  if (count == 0)
    return cudart_fail(cudaErrorNoDevice, "openreg: this process sees no device");
  return cudart_fail(cudaErrorInvalidDevice, "openreg: invalid device %d: expected 0 to %d", device,
                     count - 1);
}

openreg_status cudart_drain_all(void) {
  int count = 0;
  openreg_status status = OPENREG_OK;
  if (!openreg_is_initialized() || openreg_in_bad_fork())
    return status;
  status = openreg_device_count(&count);
  for (int i = 0; status == OPENREG_OK && i < count; i++) {
    cudart_report_sync(i);
    status = openreg_device_drain(i);
  }
  return status;
}

/* ---- versions -------------------------------------------------------------------------------- */

cudaError_t cudaRuntimeGetVersion(int *runtimeVersion) {
  if (runtimeVersion == NULL)
    return cudart_fail_null(__func__, "runtimeVersion");
  *runtimeVersion = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *driverVersion) {
  enum { DRIVER_VERSION = 13000 }; /* as libnvidia-ml.so.1 of this project reports */
  if (driverVersion == NULL)
    return cudart_fail_null(__func__, "driverVersion");
  *driverVersion = DRIVER_VERSION;
  return cudaSuccess;
}

cudaError_t cudaProfilerStart(void) {
  return cudaSuccess;
}

cudaError_t cudaProfilerStop(void) {
  return cudaSuccess;
}

/* The planner's driver: every function succeeds. */
static int succeed(void) {
  return 0;
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **funcPtr, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *driverStatus) {
  (void)flags;
  if (symbol == NULL || funcPtr == NULL)
    return cudart_fail_null(__func__, symbol == NULL ? "symbol" : "funcPtr");
  *funcPtr = cudart_is_planning() ? (void *)(uintptr_t)succeed : NULL;
  if (driverStatus != NULL)
    *driverStatus =
        *funcPtr != NULL ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  if (*funcPtr != NULL)
    return cudaSuccess;
  return cudart_fail(cudaErrorNotSupported,
                     "openreg: there is no CUDA driver, and so no function %s of it", symbol);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **funcPtr,
                                             unsigned int cudaVersion, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *driverStatus) {
  (void)cudaVersion;
  return cudaGetDriverEntryPoint(symbol, funcPtr, flags, driverStatus);
}

/* ---- choosing -------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count) {
  if (count == NULL)
    return cudart_fail_null(__func__, "count");
  *count = 0;
  openreg_status status = openreg_require_no_bad_fork();
  if (status == OPENREG_OK)
    status = openreg_device_count(count);
  if (status != OPENREG_OK)
    return cudart_return(status);
  return *count > 0 ? cudaSuccess
                    : cudart_fail(cudaErrorNoDevice, "openreg: this process sees no device");
}

cudaError_t cudaGetDevice(int *device) {
  if (device == NULL)
    return cudart_fail_null(__func__, "device");
  cudaError_t error = cudart_check_device(0);
  if (error == cudaSuccess)
    *device = openreg_device_current();
  return error;
}

cudaError_t cudaSetDevice(int device) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status == OPENREG_OK)
    status = openreg_device_set_current(device);
  return cudart_return(status == OPENREG_OK ? cudart_enter(&device) : status);
}

cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags) {
  cudaError_t error = cudart_check_device(device);
  if (error != cudaSuccess)
    return error;
  if (flags == cudaInitDeviceFlagsAreValid)
    atomic_store(&settings[device].flags, deviceFlags);
  openreg_status status = openreg_initialize();
  if (status == OPENREG_OK)
    status = openreg_device_create_context(device);
  return cudart_return(status);
}

cudaError_t cudaSetValidDevices(int *device_arr, int len) {
  if (device_arr == NULL && len != 0)
    return cudart_fail_null(__func__, "device_arr");
  for (int i = 0; i < len; i++) {
    cudaError_t error = cudart_check_device(device_arr[i]);
    if (error != cudaSuccess)
      return error;
  }
  return cudaSuccess;
}

/* Prefers the device that has at least what `prop` asks for, field by field as CUDA's documentation
 * names them: capability, then memory. */
cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *prop) {
  if (device == NULL || prop == NULL)
    return cudart_fail_null(__func__, device == NULL ? "device" : "prop");
  int count;
  cudaError_t error = cudaGetDeviceCount(&count);
  int best = 0, best_score = -1;
  for (int i = 0; error == cudaSuccess && i < count; i++) {
    openreg_device_properties have;
    error = cudart_return(openreg_device_get_properties(i, &have));
    int score =
        2 * (10 * have.profile.major + have.profile.minor >= 10 * prop->major + prop->minor) +
        (have.total_memory_bytes >= prop->totalGlobalMem);
    if (error == cudaSuccess && score > best_score) {
      best = i;
      best_score = score;
    }
  }
  if (error == cudaSuccess)
    *device = best;
  return error;
}

/* ---- settings -------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceFlags(unsigned int *flags) {
  if (flags == NULL)
    return cudart_fail_null(__func__, "flags");
  cudaError_t error = cudart_check_device(0);
  if (error == cudaSuccess)
    *flags = atomic_load(&settings[openreg_device_current()].flags) | cudaDeviceMapHost;
  return error;
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  unsigned schedule = flags & cudaDeviceScheduleMask;
  if ((flags & ~(unsigned)cudaDeviceMask) != 0 || (schedule & (schedule - 1)) != 0)
    return cudart_fail(cudaErrorInvalidValue, "cudaSetDeviceFlags: invalid flags 0x%x", flags);
  cudaError_t error = cudart_check_device(0);
  if (error == cudaSuccess)
    atomic_store(&settings[openreg_device_current()].flags, flags);
  return error;
}

static cudaError_t check_limit(enum cudaLimit limit) {
  return (unsigned)limit < LIMITS
             ? cudart_check_device(0)
             : cudart_fail(cudaErrorUnsupportedLimit, "openreg: unknown limit %d", (int)limit);
}

cudaError_t cudaDeviceGetLimit(size_t *pValue, enum cudaLimit limit) {
  if (pValue == NULL)
    return cudart_fail_null(__func__, "pValue");
  cudaError_t error = check_limit(limit);
  if (error != cudaSuccess)
    return error;
  size_t set = atomic_load(&settings[openreg_device_current()].limits[limit]);
  *pValue = set != 0 ? set - 1 : default_limits[limit];
  return cudaSuccess;
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value) {
  cudaError_t error = check_limit(limit);
  if (error == cudaSuccess)
    atomic_store(&settings[openreg_device_current()].limits[limit], value + 1);
  return error;
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *pCacheConfig) {
  if (pCacheConfig == NULL)
    return cudart_fail_null(__func__, "pCacheConfig");
  cudaError_t error = cudart_check_device(0);
  if (error == cudaSuccess)
    *pCacheConfig =
        (enum cudaFuncCache)atomic_load(&settings[openreg_device_current()].cache_config);
  return error;
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache cacheConfig) {
  cudaError_t error = cudart_check_device(0);
  if (error == cudaSuccess)
    atomic_store(&settings[openreg_device_current()].cache_config, (int)cacheConfig);
  return error;
}

cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *pConfig) {
  if (pConfig == NULL)
    return cudart_fail_null(__func__, "pConfig");
  cudaError_t error = cudart_check_device(0);
  if (error == cudaSuccess)
    *pConfig = (enum cudaSharedMemConfig)atomic_load(
        &settings[openreg_device_current()].shared_mem_config);
  return error;
}

cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config) {
  cudaError_t error = cudart_check_device(0);
  if (error == cudaSuccess)
    atomic_store(&settings[openreg_device_current()].shared_mem_config, (int)config);
  return error;
}

/* ---- waiting and resetting ------------------------------------------------------------------- */

cudaError_t cudaDeviceSynchronize(void) {
  int device;
  openreg_status status = cudart_enter(&device);
  if (status == OPENREG_OK) {
    cudart_report_sync(device);
    status = openreg_device_synchronize(device);
  }
  if (status == OPENREG_OK)
    cudart_trim_pools(device);
  return cudart_return(status);
}

/* Memory and pools of this library are freed, and a failure is forgotten. Memory of openreg's
 * caching allocator belongs to other libraries of the process and stays. */
cudaError_t cudaDeviceReset(void) {
  int device = openreg_device_current();
  cudart_forget_failure(device);
  openreg_status status = cudart_enter(&device);
  if (status == OPENREG_OK) {
    cudart_report_sync(device);
    status = openreg_device_drain(device);
  }
  if (status != OPENREG_OK)
    return cudart_return(status);
  cudart_release_device(device);
  cudart_reset_pools(device);
  memset(&settings[device], 0, sizeof settings[device]);
  return cudaSuccess;
}

/* ---- peers ----------------------------------------------------------------------------------- */

cudaError_t cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice) {
  if (canAccessPeer == NULL)
    return cudart_fail_null(__func__, "canAccessPeer");
  bool can_access;
  openreg_status status = openreg_device_can_access_peer(device, peerDevice, &can_access);
  if (status == OPENREG_OK)
    *canAccessPeer = can_access;
  return cudart_return(status);
}

/* Returns the current device in `device` if it can be a peer of `peer`. */
static cudaError_t find_pair(int peer, int *device) {
  openreg_status status = cudart_enter(device);
  if (status != OPENREG_OK)
    return cudart_return(status);
  cudaError_t error = cudart_check_device(peer);
  if (error == cudaSuccess && peer == *device)
    error = cudart_fail(cudaErrorInvalidDevice, "openreg: device %d is no peer of itself", peer);
  return error;
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  if (flags != 0)
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaDeviceEnablePeerAccess: flags is 0x%x: expected 0", flags);
  int device;
  cudaError_t error = find_pair(peerDevice, &device);
  if (error != cudaSuccess)
    return error;
  uint64_t bit = (uint64_t)1 << peerDevice;
  return (atomic_fetch_or(&settings[device].peers, bit) & bit) == 0
             ? cudaSuccess
             : cudart_fail(cudaErrorPeerAccessAlreadyEnabled,
                           "openreg: device %d has access to device %d already", device,
                           peerDevice);
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
  int device;
  cudaError_t error = find_pair(peerDevice, &device);
  if (error != cudaSuccess)
    return error;
  uint64_t bit = (uint64_t)1 << peerDevice;
  return (atomic_fetch_and(&settings[device].peers, ~bit) & bit) != 0
             ? cudaSuccess
             : cudart_fail(cudaErrorPeerAccessNotEnabled,
                           "openreg: device %d has no access to device %d", device, peerDevice);
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr, int srcDevice,
                                      int dstDevice) {
  if (value == NULL)
    return cudart_fail_null(__func__, "value");
  bool can_access;
  openreg_status status = openreg_device_can_access_peer(srcDevice, dstDevice, &can_access);
  if (status != OPENREG_OK)
    return cudart_return(status);
  if (attr < cudaDevP2PAttrPerformanceRank || attr > cudaDevP2PAttrCudaArrayAccessSupported)
    return cudart_fail(cudaErrorInvalidValue, "cudaDeviceGetP2PAttribute: unknown attribute %d",
                       (int)attr);
  if (srcDevice == dstDevice)
    return cudart_fail(cudaErrorInvalidDevice, "openreg: device %d is no peer of itself",
                       srcDevice);
  *value = attr == cudaDevP2PAttrAccessSupported || attr == cudaDevP2PAttrNativeAtomicSupported;
  return cudaSuccess;
}
