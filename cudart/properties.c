/* properties.c: what a device says about itself: cudaDeviceProp and attributes.
 *
 * The profile gives the model's numbers. The compute capability determines the rest; the numbers
 * are those of the table of technical specifications in NVIDIA's CUDA programming guide. Textures
 * and surfaces do not exist, so their limits are 0.
 */
#include "cudart/internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
  KIB = 1024,
  KHZ_PER_MHZ = 1000,
  WARP_SIZE = 32,
  THREADS_PER_BLOCK = 1024,
  REGISTERS = 65536, /* of a multiprocessor, and of a block */
  SHARED_PER_BLOCK = 48 * KIB,
  CONST_BYTES = 64 * KIB,
};

static const struct capability {
  int major, minor;
  int shared_kib; /* shared memory of a multiprocessor */
  int max_blocks; /* resident on a multiprocessor */
  int double_ratio;
} capabilities[] = {{7, 0, 96, 32, 2},   {7, 5, 64, 16, 32},  {8, 0, 164, 32, 2},
                    {8, 6, 100, 16, 64}, {8, 9, 100, 24, 64}, {9, 0, 228, 32, 2},
                    {10, 0, 228, 32, 2}, {12, 0, 100, 24, 64}};

static struct capability capability_of(const openreg_profile *profile) {
  for (size_t i = 0; i < sizeof capabilities / sizeof capabilities[0]; i++)
    if (capabilities[i].major == profile->major && capabilities[i].minor == profile->minor)
      return capabilities[i];
  return (struct capability){profile->major, profile->minor, 2 * SHARED_PER_BLOCK / KIB, 32, 2};
}

static void describe(const openreg_device_properties *device, struct cudaDeviceProp *prop) {
  const openreg_profile *profile = &device->profile;
  struct capability capability = capability_of(profile);
  int reserved = profile->major >= 8 ? KIB : 0;
  memset(prop, 0, sizeof *prop);
  snprintf(prop->name, sizeof prop->name, "%s", profile->name);
  memcpy(prop->uuid.bytes, device->uuid, sizeof prop->uuid.bytes);
  prop->totalGlobalMem = device->total_memory_bytes;
  prop->sharedMemPerBlock = SHARED_PER_BLOCK;
  prop->regsPerBlock = prop->regsPerMultiprocessor = REGISTERS;
  prop->warpSize = WARP_SIZE;
  prop->memPitch = INT32_MAX;
  prop->maxThreadsPerBlock = THREADS_PER_BLOCK;
  prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
  prop->maxThreadsDim[2] = 64;
  prop->maxGridSize[0] = INT32_MAX;
  prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
  prop->totalConstMem = CONST_BYTES;
  prop->major = profile->major;
  prop->minor = profile->minor;
  prop->textureAlignment = 512;
  prop->texturePitchAlignment = 32;
  prop->surfaceAlignment = 512;
  prop->multiProcessorCount = profile->multiprocessor_count;
  prop->canMapHostMemory = 1;
  prop->concurrentKernels = 1;
  prop->pciBusID = openreg_device_pci_bus(device->group_index);
  prop->asyncEngineCount = 2;
  prop->unifiedAddressing = 1;
  prop->memoryBusWidth = profile->memory_bus_bits;
  prop->l2CacheSize = profile->l2_cache_mib * KIB * KIB;
  prop->maxThreadsPerMultiProcessor = profile->max_threads_per_multiprocessor;
  prop->streamPrioritiesSupported = 1;
  prop->globalL1CacheSupported = prop->localL1CacheSupported = 1;
  prop->sharedMemPerMultiprocessor = (size_t)capability.shared_kib * KIB;
  prop->sharedMemPerBlockOptin = prop->sharedMemPerMultiprocessor - (size_t)reserved;
  prop->reservedSharedMemPerBlock = (size_t)reserved;
  prop->computePreemptionSupported = 1;
  prop->canUseHostPointerForRegisteredMem = 1;
  prop->managedMemory = prop->concurrentManagedAccess = 1;
  prop->cooperativeLaunch = 1;
  prop->maxBlocksPerMultiProcessor = capability.max_blocks;
  prop->hostRegisterSupported = 1;
  prop->memoryPoolsSupported = 1;
  prop->ipcEventSupported = 1;
  prop->clusterLaunch = profile->major >= 9;
  prop->unifiedFunctionPointers = 1;
#if CUDART_VERSION >= 13000
  prop->hostNumaId = device->numa_node;
  prop->deviceNumaId = -1;
#else
  prop->clockRate = profile->clock_mhz * KHZ_PER_MHZ;
  prop->memoryClockRate = profile->memory_clock_mhz * KHZ_PER_MHZ;
  prop->deviceOverlap = 1;
  prop->singleToDoublePrecisionPerfRatio = capability.double_ratio;
#endif
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
  if (prop == NULL)
    return cudart_fail_null("cudaGetDeviceProperties", "prop");
  openreg_device_properties properties;
  openreg_status status = openreg_device_get_properties(device, &properties);
  if (status == OPENREG_OK)
    describe(&properties, prop);
  return cudart_return(status);
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* X(attribute, field of cudaDeviceProp) */
/* clang-format off */
#define FIELD_LIST(X)                                                      \
  X(cudaDevAttrMaxThreadsPerBlock, maxThreadsPerBlock)                     \
  X(cudaDevAttrMaxBlockDimX, maxThreadsDim[0])                             \
  X(cudaDevAttrMaxBlockDimY, maxThreadsDim[1])                             \
  X(cudaDevAttrMaxBlockDimZ, maxThreadsDim[2])                             \
  X(cudaDevAttrMaxGridDimX, maxGridSize[0])                                \
  X(cudaDevAttrMaxGridDimY, maxGridSize[1])                                \
  X(cudaDevAttrMaxGridDimZ, maxGridSize[2])                                \
  X(cudaDevAttrMaxSharedMemoryPerBlock, sharedMemPerBlock)                 \
  X(cudaDevAttrTotalConstantMemory, totalConstMem)                         \
  X(cudaDevAttrWarpSize, warpSize)                                         \
  X(cudaDevAttrMaxPitch, memPitch)                                         \
  X(cudaDevAttrMaxRegistersPerBlock, regsPerBlock)                         \
  X(cudaDevAttrTextureAlignment, textureAlignment)                         \
  X(cudaDevAttrTexturePitchAlignment, texturePitchAlignment)               \
  X(cudaDevAttrSurfaceAlignment, surfaceAlignment)                         \
  X(cudaDevAttrMultiProcessorCount, multiProcessorCount)                   \
  X(cudaDevAttrIntegrated, integrated)                                     \
  X(cudaDevAttrCanMapHostMemory, canMapHostMemory)                         \
  X(cudaDevAttrConcurrentKernels, concurrentKernels)                       \
  X(cudaDevAttrEccEnabled, ECCEnabled)                                     \
  X(cudaDevAttrPciBusId, pciBusID)                                         \
  X(cudaDevAttrPciDeviceId, pciDeviceID)                                   \
  X(cudaDevAttrPciDomainId, pciDomainID)                                   \
  X(cudaDevAttrTccDriver, tccDriver)                                       \
  X(cudaDevAttrAsyncEngineCount, asyncEngineCount)                         \
  X(cudaDevAttrUnifiedAddressing, unifiedAddressing)                       \
  X(cudaDevAttrGlobalMemoryBusWidth, memoryBusWidth)                       \
  X(cudaDevAttrL2CacheSize, l2CacheSize)                                   \
  X(cudaDevAttrMaxThreadsPerMultiProcessor, maxThreadsPerMultiProcessor)   \
  X(cudaDevAttrComputeCapabilityMajor, major)                              \
  X(cudaDevAttrComputeCapabilityMinor, minor)                              \
  X(cudaDevAttrStreamPrioritiesSupported, streamPrioritiesSupported)       \
  X(cudaDevAttrGlobalL1CacheSupported, globalL1CacheSupported)             \
  X(cudaDevAttrLocalL1CacheSupported, localL1CacheSupported)               \
  X(cudaDevAttrMaxSharedMemoryPerMultiprocessor, sharedMemPerMultiprocessor) \
  X(cudaDevAttrMaxRegistersPerMultiprocessor, regsPerMultiprocessor)       \
  X(cudaDevAttrManagedMemory, managedMemory)                               \
  X(cudaDevAttrConcurrentManagedAccess, concurrentManagedAccess)           \
  X(cudaDevAttrComputePreemptionSupported, computePreemptionSupported)     \
  X(cudaDevAttrCanUseHostPointerForRegisteredMem, canUseHostPointerForRegisteredMem) \
  X(cudaDevAttrCooperativeLaunch, cooperativeLaunch)                       \
  X(cudaDevAttrMaxSharedMemoryPerBlockOptin, sharedMemPerBlockOptin)       \
  X(cudaDevAttrMaxBlocksPerMultiprocessor, maxBlocksPerMultiProcessor)     \
  X(cudaDevAttrReservedSharedMemoryPerBlock, reservedSharedMemPerBlock)    \
  X(cudaDevAttrHostRegisterSupported, hostRegisterSupported)               \
  X(cudaDevAttrMemoryPoolsSupported, memoryPoolsSupported)                 \
  X(cudaDevAttrIpcEventSupport, ipcEventSupported)                         \
  X(cudaDevAttrClusterLaunch, clusterLaunch)
/* clang-format on */

/* All other attributes are 0: the device lacks what they describe. */
static int attribute_of(const openreg_device_properties *device, enum cudaDeviceAttr attr) {
  struct cudaDeviceProp prop;
  describe(device, &prop);
  switch ((int)attr) {
#define X(attribute, field)                                                                        \
  case attribute:                                                                                  \
    return (int)prop.field;
    FIELD_LIST(X)
#undef X
  case cudaDevAttrClockRate:
    return device->profile.clock_mhz * KHZ_PER_MHZ;
  case cudaDevAttrMemoryClockRate:
    return device->profile.memory_clock_mhz * KHZ_PER_MHZ;
  case cudaDevAttrGpuOverlap:
  case cudaDevAttrMemSyncDomainCount:
    return 1;
  case cudaDevAttrSingleToDoublePrecisionPerfRatio:
    return capability_of(&device->profile).double_ratio;
  case cudaDevAttrHostNumaId:
    return device->numa_node;
  case cudaDevAttrNumaId:
    return -1;
  default:
    return 0;
  }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device) {
  enum { LAST_ATTRIBUTE = cudaDevAttrOnlyPartialHostNativeAtomicSupported };
  if (value == NULL)
    return cudart_fail_null(__func__, "value");
  if ((int)attr < cudaDevAttrMaxThreadsPerBlock || (int)attr > LAST_ATTRIBUTE)
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaDeviceGetAttribute: attribute %d: expected %d "
                       "to %d",
                       (int)attr, cudaDevAttrMaxThreadsPerBlock, LAST_ATTRIBUTE);
  openreg_device_properties properties;
  openreg_status status = openreg_device_get_properties(device, &properties);
  if (status == OPENREG_OK)
    *value = attribute_of(&properties, attr);
  return cudart_return(status);
}

/* ---- PCI addresses --------------------------------------------------------------------------- */

static void write_address(const openreg_device_properties *device, char *text, size_t size) {
  snprintf(text, size, "0000:%02X:00.0", (unsigned)openreg_device_pci_bus(device->group_index));
}

cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device) {
  char text[32];
  if (pciBusId == NULL)
    return cudart_fail_null(__func__, "pciBusId");
  openreg_device_properties properties;
  openreg_status status = openreg_device_get_properties(device, &properties);
  if (status != OPENREG_OK)
    return cudart_return(status);
  write_address(&properties, text, sizeof text);
  if (len <= (int)strlen(text))
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaDeviceGetPCIBusId: len is %d: expected %zu or more", len,
                       strlen(text) + 1);
  memcpy(pciBusId, text, strlen(text) + 1);
  return cudaSuccess;
}

/* Accepts the address with and without domain and function, as CUDA does. */
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *pciBusId) {
  if (device == NULL || pciBusId == NULL)
    return cudart_fail_null(__func__, device == NULL ? "device" : "pciBusId");
  unsigned domain = 0, bus = 0, slot = 0;
  bool is_address = sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) == 3;
  if (!is_address) {
    domain = 0;
    is_address = sscanf(pciBusId, "%x:%x", &bus, &slot) == 2;
  }
  int count = 0;
  openreg_status status = openreg_device_count(&count);
  for (int i = 0; status == OPENREG_OK && is_address && i < count; i++) {
    openreg_device_properties properties;
    status = openreg_device_get_properties(i, &properties);
    if (status == OPENREG_OK && domain == 0 && slot == 0 &&
        bus == (unsigned)openreg_device_pci_bus(properties.group_index)) {
      *device = i;
      return cudaSuccess;
    }
  }
  return status != OPENREG_OK ? cudart_return(status)
                              : cudart_fail(cudaErrorInvalidValue,
                                            "openreg: no device has the PCI address %s", pciBusId);
}
