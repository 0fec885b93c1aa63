/* nvml.h: the part of NVML's interface that this project's libnvidia-ml.so.1 implements.
 *
 * Programs such as nvidia-smi, pynvml and torch.cuda.device_count use NVML to find the GPUs of a
 * machine. This library has the names, structs and numbers of NVML's public ABI, written from its
 * documentation. It describes the simulated devices of this process's group (device/device.h): the
 * devices that the processes of the group share or, if the group has no processes, those that a
 * process started now would find. Programs load the library by its name, without modification. Only
 * the library and its tests include this header.
 *
 * As in NVML:
 *
 * - Each function returns one of the codes below. It writes its results only with SUCCESS, or with
 *   INSUFFICIENT_SIZE, which tells how much space is needed.
 * - All functions may be called from any thread.
 * - Before nvmlInit and after the last nvmlShutdown, all functions except nvmlErrorString return
 *   UNINITIALIZED.
 * - A handle is valid as long as the process lives.
 * - Devices are numbered by group index. CUDA_VISIBLE_DEVICES has no effect.
 *
 * Queries initialize no device, join no group and reserve nothing.
 *
 * Properties that simulated devices lack (temperatures, fans, power, clocks, error correction,
 * links) return NOT_SUPPORTED: NVML_UNSUPPORTED_LIST. NVML functions in neither of the two lists do
 * not exist here; callers treat this like an older driver.
 */
#ifndef OPENREG_NVML_H
#define OPENREG_NVML_H

#include <stdint.h>

/* ---- codes ----------------------------------------------------------------------------------- */

/* X(name, number, message) */
#define NVML_CODE_LIST(X)                                                                          \
  X(SUCCESS, 0, "success")                                                                         \
  X(ERROR_UNINITIALIZED, 1,                                                                        \
    "the library is not initialized: nvmlInit was not called, or nvmlShutdown was called since")   \
  X(ERROR_INVALID_ARGUMENT, 2, "invalid argument")                                                 \
  X(ERROR_NOT_SUPPORTED, 3, "simulated devices do not support this")                               \
  X(ERROR_NO_PERMISSION, 4, "this user has no permission for this operation")                      \
  X(ERROR_ALREADY_INITIALIZED, 5, "the library was already initialized")                           \
  X(ERROR_NOT_FOUND, 6, "not found")                                                               \
  X(ERROR_INSUFFICIENT_SIZE, 7, "the result does not fit into the memory that was provided")       \
  X(ERROR_INSUFFICIENT_POWER, 8, "the device lacks external power")                                \
  X(ERROR_DRIVER_NOT_LOADED, 9,                                                                    \
    "no devices: an OPENREG_ variable has an invalid value; `openreg smi` names it")               \
  X(ERROR_TIMEOUT, 10, "the operation timed out")                                                  \
  X(ERROR_IRQ_ISSUE, 11, "interrupts of the device are not delivered")                             \
  X(ERROR_LIBRARY_NOT_FOUND, 12, "a shared library was not found")                                 \
  X(ERROR_FUNCTION_NOT_FOUND, 13, "this library does not have that function")                      \
  X(ERROR_CORRUPTED_INFOROM, 14, "the device's infoROM is corrupt")                                \
  X(ERROR_GPU_IS_LOST, 15, "the group no longer has this device")                                  \
  X(ERROR_RESET_REQUIRED, 16, "the device must be reset first")                                    \
  X(ERROR_OPERATING_SYSTEM, 17, "the operating system rejected the request")                       \
  X(ERROR_LIB_RM_VERSION_MISMATCH, 18, "the versions of library and driver do not match")          \
  X(ERROR_IN_USE, 19, "the device is in use")                                                      \
  X(ERROR_MEMORY, 20, "out of host memory")                                                        \
  X(ERROR_NO_DATA, 21, "no data is available")                                                     \
  X(ERROR_VGPU_ECC_NOT_SUPPORTED, 22, "not supported with error correction")                       \
  X(ERROR_INSUFFICIENT_RESOURCES, 23, "a required resource has run out")                           \
  X(ERROR_FREQ_NOT_SUPPORTED, 24, "the device does not support this frequency")                    \
  X(ERROR_ARGUMENT_VERSION_MISMATCH, 25, "the version of an argument's struct is not supported")   \
  X(ERROR_DEPRECATED, 26, "this function is no longer supported")                                  \
  X(ERROR_NOT_READY, 27, "the device is not ready")                                                \
  X(ERROR_GPU_NOT_FOUND, 28, "no GPU was found")                                                   \
  X(ERROR_INVALID_STATE, 29, "not allowed in this state")                                          \
  X(ERROR_RESET_TYPE_NOT_SUPPORTED, 30, "the device does not support this kind of reset")          \
  X(ERROR_UNKNOWN, 999, "unknown error")

typedef enum nvmlReturn_t {
#define X(name, number, message) NVML_##name = number,
  NVML_CODE_LIST(X)
#undef X
} nvmlReturn_t;

/* ---- numbers --------------------------------------------------------------------------------- */

enum {
  NVML_INIT_FLAG_NO_GPUS = 1,   /* having no devices is not a failure */
  NVML_INIT_FLAG_NO_ATTACH = 2, /* do not wake devices; has no effect here */
  NVML_INIT_FLAG_FORCE_INIT = 4,
};

enum { NVML_FEATURE_DISABLED = 0, NVML_FEATURE_ENABLED = 1 };
enum { NVML_COMPUTEMODE_DEFAULT = 0 }; /* any number of processes may use a device */
enum { NVML_PCI_BUS_ID_BYTES = 32, NVML_PCI_BUS_ID_V2_BYTES = 16 };

enum {
  NVML_BRAND_UNKNOWN = 0,
  NVML_BRAND_TESLA = 2,
  NVML_BRAND_NVIDIA = 14,
  NVML_BRAND_GEFORCE_RTX = 15,
};

enum {
  NVML_DEVICE_ARCH_VOLTA = 5,
  NVML_DEVICE_ARCH_TURING = 6,
  NVML_DEVICE_ARCH_AMPERE = 7,
  NVML_DEVICE_ARCH_ADA = 8,
  NVML_DEVICE_ARCH_HOPPER = 9,
  NVML_DEVICE_ARCH_BLACKWELL = 10,
};
#define NVML_DEVICE_ARCH_UNKNOWN 0xffffffffu

enum {
  NVML_TOPOLOGY_INTERNAL = 0, /* a device and itself */
  NVML_TOPOLOGY_NODE = 40,    /* on the same NUMA node */
  NVML_TOPOLOGY_SYSTEM = 50,
};

enum {
  NVML_P2P_CAPS_INDEX_READ = 0,
  NVML_P2P_CAPS_INDEX_WRITE = 1,
  NVML_P2P_CAPS_INDEX_NVLINK = 2,
  NVML_P2P_CAPS_INDEX_ATOMICS = 3,
  NVML_P2P_CAPS_INDEX_PCI = 4,
  NVML_P2P_CAPS_INDEX_UNKNOWN = 5,
};
enum { NVML_P2P_STATUS_OK = 0, NVML_P2P_STATUS_NOT_SUPPORTED = 5 };

/* Versioned structs begin with their size and a version in the top byte. */
#define NVML_STRUCT_VERSION(type, version) ((unsigned)sizeof(type) | (unsigned)(version) << 24)

/* ---- structs --------------------------------------------------------------------------------- */

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct nvmlPciInfo_v2_t {
  char busId[NVML_PCI_BUS_ID_V2_BYTES]; /* "0000:01:00.0" */
  unsigned domain, bus, device;
  unsigned pciDeviceId; /* device << 16 | vendor */
  unsigned pciSubSystemId;
  unsigned reserved[4];
} nvmlPciInfo_v2_t;

typedef struct nvmlPciInfo_t {
  char busIdLegacy[NVML_PCI_BUS_ID_V2_BYTES];
  unsigned domain, bus, device;
  unsigned pciDeviceId, pciSubSystemId;
  char busId[NVML_PCI_BUS_ID_BYTES]; /* "00000000:01:00.0" */
} nvmlPciInfo_t;

typedef struct nvmlPciInfoExt_v1_t {
  unsigned version;
  unsigned domain, bus, device;
  unsigned pciDeviceId, pciSubSystemId;
  unsigned baseClass, subClass;
  char busId[NVML_PCI_BUS_ID_BYTES];
} nvmlPciInfoExt_v1_t;

/* All in bytes. */
typedef struct nvmlMemory_t {
  unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct nvmlMemory_v2_t {
  unsigned version;
  unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct nvmlProcessInfo_v1_t {
  unsigned pid;
  unsigned long long usedGpuMemory; /* in bytes */
} nvmlProcessInfo_v1_t;

/* Versions 2 and 3 are identical. */
typedef struct nvmlProcessInfo_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId; /* of a partitioned GPU; otherwise all ones */
} nvmlProcessInfo_t;

/* Recent utilization in percent. */
typedef struct nvmlUtilization_t {
  unsigned gpu, memory;
} nvmlUtilization_t;

typedef struct nvmlFieldValue_t {
  unsigned fieldId, scopeId;
  long long timestamp, latencyUsec;
  int valueType;
  nvmlReturn_t nvmlReturn;
  union {
    double number;
    unsigned long long bits;
  } value;
} nvmlFieldValue_t;

_Static_assert(sizeof(nvmlPciInfo_v2_t) == 52, "NVML's ABI");
_Static_assert(sizeof(nvmlPciInfo_t) == 68, "NVML's ABI");
_Static_assert(sizeof(nvmlPciInfoExt_v1_t) == 64, "NVML's ABI");
_Static_assert(sizeof(nvmlMemory_t) == 24 && sizeof(nvmlMemory_v2_t) == 40, "NVML's ABI");
_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16 && sizeof(nvmlProcessInfo_t) == 24, "NVML's ABI");
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "NVML's ABI");

/* ---- functions ------------------------------------------------------------------------------- */

/* X(name, parameters): implemented functions. Text is written with its terminating zero, or not at
 * all. */
#define NVML_FUNCTION_LIST(X)                                                                      \
  /* library.c. Initializations are counted. They fail with DRIVER_NOT_LOADED if the configuration \
   * is invalid. */                                                                                \
  X(nvmlInit, (void))                                                                              \
  X(nvmlInit_v2, (void))                                                                           \
  X(nvmlInitWithFlags, (unsigned flags))                                                           \
  X(nvmlShutdown, (void))                                                                          \
  X(nvmlSystemGetDriverVersion, (char *version, unsigned length))                                  \
  X(nvmlSystemGetNVMLVersion, (char *version, unsigned length))                                    \
  X(nvmlSystemGetCudaDriverVersion, (int *version))                                                \
  X(nvmlSystemGetCudaDriverVersion_v2, (int *version))                                             \
  X(nvmlSystemGetProcessName, (unsigned pid, char *name, unsigned length))                         \
  X(nvmlUnitGetCount, (unsigned *count))                                                           \
  X(nvmlGetExcludedDeviceCount, (unsigned *count))                                                 \
  /* handles.c. Unknown ids return NOT_FOUND. */                                                   \
  X(nvmlDeviceGetCount, (unsigned *count))                                                         \
  X(nvmlDeviceGetCount_v2, (unsigned *count))                                                      \
  X(nvmlDeviceGetHandleByIndex, (unsigned index, nvmlDevice_t *device))                            \
  X(nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvmlDevice_t *device))                         \
  X(nvmlDeviceGetHandleBySerial, (const char *serial, nvmlDevice_t *device))                       \
  X(nvmlDeviceGetHandleByUUID, (const char *uuid, nvmlDevice_t *device))                           \
  X(nvmlDeviceGetHandleByPciBusId, (const char *bus_id, nvmlDevice_t *device))                     \
  X(nvmlDeviceGetHandleByPciBusId_v2, (const char *bus_id, nvmlDevice_t *device))                  \
  /* identity.c */                                                                                 \
  X(nvmlDeviceGetName, (nvmlDevice_t device, char *name, unsigned length))                         \
  X(nvmlDeviceGetUUID, (nvmlDevice_t device, char *uuid, unsigned length))                         \
  X(nvmlDeviceGetIndex, (nvmlDevice_t device, unsigned *index))                                    \
  X(nvmlDeviceGetMinorNumber, (nvmlDevice_t device, unsigned *number))                             \
  X(nvmlDeviceGetPciInfo, (nvmlDevice_t device, nvmlPciInfo_v2_t * info))                          \
  X(nvmlDeviceGetPciInfo_v2, (nvmlDevice_t device, nvmlPciInfo_v2_t * info))                       \
  X(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t device, nvmlPciInfo_t * info))                          \
  X(nvmlDeviceGetPciInfoExt, (nvmlDevice_t device, nvmlPciInfoExt_v1_t * info))                    \
  X(nvmlDeviceGetBrand, (nvmlDevice_t device, int *brand))                                         \
  X(nvmlDeviceGetArchitecture, (nvmlDevice_t device, unsigned *architecture))                      \
  X(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t device, int *major, int *minor))             \
  X(nvmlDeviceGetNumGpuCores, (nvmlDevice_t device, unsigned *count))                              \
  /* modes.c */                                                                                    \
  X(nvmlDeviceGetPersistenceMode, (nvmlDevice_t device, int *mode))                                \
  X(nvmlDeviceGetComputeMode, (nvmlDevice_t device, int *mode))                                    \
  X(nvmlDeviceGetDisplayMode, (nvmlDevice_t device, int *mode))                                    \
  X(nvmlDeviceGetDisplayActive, (nvmlDevice_t device, int *active))                                \
  X(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t device, unsigned *count))                        \
  X(nvmlDeviceIsMigDeviceHandle, (nvmlDevice_t device, unsigned *is_mig))                          \
  X(nvmlDeviceGetMultiGpuBoard, (nvmlDevice_t device, unsigned *is_multi))                         \
  X(nvmlDeviceOnSameBoard, (nvmlDevice_t device, nvmlDevice_t other, int *same))                   \
  X(nvmlDeviceGetNumaNodeId, (nvmlDevice_t device, unsigned *node))                                \
  X(nvmlDeviceGetCpuAffinity, (nvmlDevice_t device, unsigned words, unsigned long *cpus))          \
  X(nvmlDeviceGetTopologyCommonAncestor, (nvmlDevice_t device, nvmlDevice_t other, int *level))    \
  X(nvmlDeviceGetP2PStatus, (nvmlDevice_t device, nvmlDevice_t other, int what, int *status))      \
  X(nvmlDeviceGetFieldValues, (nvmlDevice_t device, int count, nvmlFieldValue_t *values))          \
  /* usage.c */                                                                                    \
  X(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t * memory))                         \
  X(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t device, nvmlMemory_v2_t * memory))                   \
  X(nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, nvmlUtilization_t * rates))               \
  X(nvmlDeviceGetComputeRunningProcesses,                                                          \
    (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *processes))                       \
  X(nvmlDeviceGetComputeRunningProcesses_v2,                                                       \
    (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *processes))                          \
  X(nvmlDeviceGetComputeRunningProcesses_v3,                                                       \
    (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *processes))                          \
  X(nvmlDeviceGetGraphicsRunningProcesses,                                                         \
    (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *processes))                       \
  X(nvmlDeviceGetGraphicsRunningProcesses_v2,                                                      \
    (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *processes))                          \
  X(nvmlDeviceGetGraphicsRunningProcesses_v3,                                                      \
    (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *processes))                          \
  X(nvmlDeviceGetMPSComputeRunningProcesses,                                                       \
    (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *processes))                       \
  X(nvmlDeviceGetMPSComputeRunningProcesses_v2,                                                    \
    (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *processes))                          \
  X(nvmlDeviceGetMPSComputeRunningProcesses_v3,                                                    \
    (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *processes))

/* X(name): features that simulated devices lack, and settings that cannot be changed. They return
 * NOT_SUPPORTED for every device and ignore all other arguments. */
/* clang-format off */
#define NVML_UNSUPPORTED_LIST(X) \
  X(nvmlDeviceClearAccountingPids) X(nvmlDeviceClearCpuAffinity) \
  X(nvmlDeviceClearEccErrorCounts) X(nvmlDeviceClearFieldValues) X(nvmlDeviceCreateGpuInstance) \
  X(nvmlDeviceCreateGpuInstanceWithPlacement) X(nvmlDeviceFreezeNvLinkUtilizationCounter) \
  X(nvmlDeviceGetAPIRestriction) X(nvmlDeviceGetAccountingBufferSize) \
  X(nvmlDeviceGetAccountingMode) X(nvmlDeviceGetAccountingPids) X(nvmlDeviceGetAccountingStats) \
  X(nvmlDeviceGetAccountingStats_v2) X(nvmlDeviceGetActiveVgpus) \
  X(nvmlDeviceGetAdaptiveClockInfoStatus) X(nvmlDeviceGetAdaptiveTgpModeInfo_v1) \
  X(nvmlDeviceGetAddressingMode) X(nvmlDeviceGetApplicationsClock) X(nvmlDeviceGetAttributes_v2) \
  X(nvmlDeviceGetAutoBoostedClocksEnabled) X(nvmlDeviceGetBAR1MemoryInfo) \
  X(nvmlDeviceGetBBXTimeData_v1) X(nvmlDeviceGetBankRemapperStatus_v1) X(nvmlDeviceGetBoardId) \
  X(nvmlDeviceGetBoardPartNumber) X(nvmlDeviceGetBridgeChipInfo) X(nvmlDeviceGetBusType) \
  X(nvmlDeviceGetC2cModeInfoV) X(nvmlDeviceGetCapabilities) X(nvmlDeviceGetClkMonStatus) \
  X(nvmlDeviceGetClock) X(nvmlDeviceGetClockInfo) X(nvmlDeviceGetClockOffsets) \
  X(nvmlDeviceGetComputeInstanceId) X(nvmlDeviceGetConfComputeGpuAttestationReport) \
  X(nvmlDeviceGetConfComputeGpuCertificate) X(nvmlDeviceGetConfComputeMemSizeInfo) \
  X(nvmlDeviceGetConfComputeProtectedMemoryUsage) X(nvmlDeviceGetCoolerInfo) \
  X(nvmlDeviceGetCpuAffinityWithinScope) X(nvmlDeviceGetCreatableVgpus) \
  X(nvmlDeviceGetCurrPcieLinkGeneration) X(nvmlDeviceGetCurrPcieLinkWidth) \
  X(nvmlDeviceGetCurrentClockFreqs) X(nvmlDeviceGetCurrentClocksEventReasons) \
  X(nvmlDeviceGetCurrentClocksThrottleReasons) X(nvmlDeviceGetDecoderUtilization) \
  X(nvmlDeviceGetDefaultApplicationsClock) X(nvmlDeviceGetDefaultEccMode) \
  X(nvmlDeviceGetDetailedEccErrors) X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) \
  X(nvmlDeviceGetDramEncryptionMode) X(nvmlDeviceGetDriverModel) X(nvmlDeviceGetDriverModel_v2) \
  X(nvmlDeviceGetDynamicPstatesInfo) X(nvmlDeviceGetEccMode) X(nvmlDeviceGetEncoderCapacity) \
  X(nvmlDeviceGetEncoderSessions) X(nvmlDeviceGetEncoderStats) \
  X(nvmlDeviceGetEncoderUtilization) X(nvmlDeviceGetEnforcedPowerLimit) \
  X(nvmlDeviceGetFBCSessions) X(nvmlDeviceGetFBCStats) X(nvmlDeviceGetFanControlPolicy_v2) \
  X(nvmlDeviceGetFanSpeed) X(nvmlDeviceGetFanSpeedRPM) X(nvmlDeviceGetFanSpeed_v2) \
  X(nvmlDeviceGetGpcClkMinMaxVfOffset) X(nvmlDeviceGetGpcClkVfOffset) \
  X(nvmlDeviceGetGpuFabricInfo) X(nvmlDeviceGetGpuFabricInfoV) X(nvmlDeviceGetGpuFabricInfo_v4) \
  X(nvmlDeviceGetGpuInstanceById) X(nvmlDeviceGetGpuInstanceId) \
  X(nvmlDeviceGetGpuInstancePossiblePlacements_v2) X(nvmlDeviceGetGpuInstanceProfileInfo) \
  X(nvmlDeviceGetGpuInstanceProfileInfoByIdV) X(nvmlDeviceGetGpuInstanceProfileInfoV) \
  X(nvmlDeviceGetGpuInstanceRemainingCapacity) X(nvmlDeviceGetGpuInstances) \
  X(nvmlDeviceGetGpuMaxPcieLinkGeneration) X(nvmlDeviceGetGpuOperationMode) \
  X(nvmlDeviceGetGridLicensableFeatures_v4) X(nvmlDeviceGetGspFirmwareMode) \
  X(nvmlDeviceGetGspFirmwareVersion) X(nvmlDeviceGetHostVgpuMode) X(nvmlDeviceGetHostname_v1) \
  X(nvmlDeviceGetInforomConfigurationChecksum) X(nvmlDeviceGetInforomImageVersion) \
  X(nvmlDeviceGetInforomVersion) X(nvmlDeviceGetIrqNum) X(nvmlDeviceGetJpgUtilization) \
  X(nvmlDeviceGetLastBBXFlushTime) X(nvmlDeviceGetMarginTemperature) \
  X(nvmlDeviceGetMaxClockInfo) X(nvmlDeviceGetMaxCustomerBoostClock) \
  X(nvmlDeviceGetMaxPcieLinkGeneration) X(nvmlDeviceGetMaxPcieLinkWidth) \
  X(nvmlDeviceGetMemClkMinMaxVfOffset) X(nvmlDeviceGetMemClkVfOffset) \
  X(nvmlDeviceGetMemoryAffinity) X(nvmlDeviceGetMemoryBusWidth) \
  X(nvmlDeviceGetMemoryErrorCounter) X(nvmlDeviceGetMemoryLimits_v1) \
  X(nvmlDeviceGetMigDeviceHandleByIndex) X(nvmlDeviceGetMigMode) \
  X(nvmlDeviceGetMinMaxClockOfPState) X(nvmlDeviceGetMinMaxFanSpeed) X(nvmlDeviceGetModuleId) \
  X(nvmlDeviceGetNumFans) X(nvmlDeviceGetNvLinkCapability) X(nvmlDeviceGetNvLinkErrorCounter) \
  X(nvmlDeviceGetNvLinkInfo) X(nvmlDeviceGetNvLinkRemoteDeviceType) \
  X(nvmlDeviceGetNvLinkRemotePciInfo_v2) X(nvmlDeviceGetNvLinkState) \
  X(nvmlDeviceGetNvLinkTelemetrySamples_v1) X(nvmlDeviceGetNvLinkUtilizationControl) \
  X(nvmlDeviceGetNvLinkUtilizationCounter) X(nvmlDeviceGetNvLinkVersion) \
  X(nvmlDeviceGetNvlinkBwMode) X(nvmlDeviceGetNvlinkSupportedBwModes) \
  X(nvmlDeviceGetOfaUtilization) X(nvmlDeviceGetPcieLinkMaxSpeed) \
  X(nvmlDeviceGetPcieReplayCounter) X(nvmlDeviceGetPcieSpeed) X(nvmlDeviceGetPcieThroughput) \
  X(nvmlDeviceGetPdi) X(nvmlDeviceGetPerformanceModes) X(nvmlDeviceGetPerformanceState) \
  X(nvmlDeviceGetPgpuMetadataString) X(nvmlDeviceGetPlatformInfo) \
  X(nvmlDeviceGetPowerManagementDefaultLimit) X(nvmlDeviceGetPowerManagementLimit) \
  X(nvmlDeviceGetPowerManagementLimitConstraints) X(nvmlDeviceGetPowerManagementMode) \
  X(nvmlDeviceGetPowerMizerMode_v1) X(nvmlDeviceGetPowerSource) X(nvmlDeviceGetPowerState) \
  X(nvmlDeviceGetPowerUsage) X(nvmlDeviceGetProcessUtilization) \
  X(nvmlDeviceGetProcessesUtilizationInfo) X(nvmlDeviceGetRemappedRows) \
  X(nvmlDeviceGetRemappedRows_v2) X(nvmlDeviceGetRepairStatus) X(nvmlDeviceGetRetiredPages) \
  X(nvmlDeviceGetRetiredPagesPendingStatus) X(nvmlDeviceGetRetiredPages_v2) \
  X(nvmlDeviceGetRowRemapperHistogram) X(nvmlDeviceGetRunningProcessDetailList) \
  X(nvmlDeviceGetSamples) X(nvmlDeviceGetSerial) X(nvmlDeviceGetSramEccErrorStatus) \
  X(nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts) \
  X(nvmlDeviceGetSupportedClocksEventReasons) X(nvmlDeviceGetSupportedClocksThrottleReasons) \
  X(nvmlDeviceGetSupportedEventTypes) X(nvmlDeviceGetSupportedGraphicsClocks) \
  X(nvmlDeviceGetSupportedMemoryClocks) X(nvmlDeviceGetSupportedPerformanceStates) \
  X(nvmlDeviceGetSupportedVgpus) X(nvmlDeviceGetTargetFanSpeed) X(nvmlDeviceGetTemperature) \
  X(nvmlDeviceGetTemperatureThreshold) X(nvmlDeviceGetTemperatureV) \
  X(nvmlDeviceGetThermalSettings) X(nvmlDeviceGetTopologyNearestGpus) \
  X(nvmlDeviceGetTotalEccErrors) X(nvmlDeviceGetTotalEnergyConsumption) \
  X(nvmlDeviceGetUnrepairableMemoryFlag_v1) X(nvmlDeviceGetVbiosVersion) \
  X(nvmlDeviceGetVgpuCapabilities) X(nvmlDeviceGetVgpuHeterogeneousMode) \
  X(nvmlDeviceGetVgpuInstancesUtilizationInfo) X(nvmlDeviceGetVgpuMetadata) \
  X(nvmlDeviceGetVgpuProcessUtilization) X(nvmlDeviceGetVgpuProcessesUtilizationInfo) \
  X(nvmlDeviceGetVgpuSchedulerCapabilities) X(nvmlDeviceGetVgpuSchedulerLog) \
  X(nvmlDeviceGetVgpuSchedulerLog_v2) X(nvmlDeviceGetVgpuSchedulerState) \
  X(nvmlDeviceGetVgpuSchedulerState_v2) X(nvmlDeviceGetVgpuTypeCreatablePlacements) \
  X(nvmlDeviceGetVgpuTypeSupportedPlacements) X(nvmlDeviceGetVgpuUtilization) \
  X(nvmlDeviceGetViolationStatus) X(nvmlDeviceGetVirtualizationMode) \
  X(nvmlDevicePerfMetricsGetSamples_v1) X(nvmlDevicePowerSmoothingActivatePresetProfile) \
  X(nvmlDevicePowerSmoothingSetState) X(nvmlDevicePowerSmoothingUpdatePresetProfileParam) \
  X(nvmlDeviceReadPRMCounters_v1) X(nvmlDeviceReadWritePRM_v1) X(nvmlDeviceRegisterEvents) \
  X(nvmlDeviceResetApplicationsClocks) X(nvmlDeviceResetGpuLockedClocks) \
  X(nvmlDeviceResetMemoryLockedClocks) X(nvmlDeviceResetNvLinkErrorCounters) \
  X(nvmlDeviceResetNvLinkUtilizationCounter) X(nvmlDeviceSetAPIRestriction) \
  X(nvmlDeviceSetAccountingMode) X(nvmlDeviceSetAdaptiveTgpMode_v1) \
  X(nvmlDeviceSetApplicationsClocks) X(nvmlDeviceSetAutoBoostedClocksEnabled) \
  X(nvmlDeviceSetClockOffsets) X(nvmlDeviceSetComputeMode) \
  X(nvmlDeviceSetConfComputeUnprotectedMemSize) X(nvmlDeviceSetCpuAffinity) \
  X(nvmlDeviceSetDefaultAutoBoostedClocksEnabled) X(nvmlDeviceSetDefaultFanSpeed_v2) \
  X(nvmlDeviceSetDramEncryptionMode) X(nvmlDeviceSetDriverModel) X(nvmlDeviceSetEccMode) \
  X(nvmlDeviceSetFanControlPolicy) X(nvmlDeviceSetFanSpeed_v2) X(nvmlDeviceSetGpcClkVfOffset) \
  X(nvmlDeviceSetGpuLockedClocks) X(nvmlDeviceSetGpuOperationMode) X(nvmlDeviceSetHostname_v1) \
  X(nvmlDeviceSetMemClkVfOffset) X(nvmlDeviceSetMemoryLimits_v1) \
  X(nvmlDeviceSetMemoryLockedClocks) X(nvmlDeviceSetMigMode) \
  X(nvmlDeviceSetNvLinkDeviceLowPowerThreshold) X(nvmlDeviceSetNvLinkUtilizationControl) \
  X(nvmlDeviceSetNvlinkBwMode) X(nvmlDeviceSetNvlinkBwModeAsync_v1) \
  X(nvmlDeviceSetPersistenceMode) X(nvmlDeviceSetPowerManagementLimit) \
  X(nvmlDeviceSetPowerManagementLimit_v2) X(nvmlDeviceSetPowerMizerMode_v1) \
  X(nvmlDeviceSetRusdSettings_v1) X(nvmlDeviceSetTemperatureThreshold) \
  X(nvmlDeviceSetVgpuCapabilities) X(nvmlDeviceSetVgpuHeterogeneousMode) \
  X(nvmlDeviceSetVgpuSchedulerState) X(nvmlDeviceSetVgpuSchedulerState_v2) \
  X(nvmlDeviceSetVirtualizationMode) X(nvmlDeviceValidateInforom) \
  X(nvmlDeviceVgpuForceGspUnload) X(nvmlDeviceWorkloadPowerProfileClearRequestedProfiles) \
  X(nvmlDeviceWorkloadPowerProfileGetCurrentProfiles) \
  X(nvmlDeviceWorkloadPowerProfileGetProfilesInfo) \
  X(nvmlDeviceWorkloadPowerProfileSetRequestedProfiles) \
  X(nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1)
/* clang-format on */

/* The message of a code; unknown codes have that of ERROR_UNKNOWN. Static storage. */
const char *nvmlErrorString(nvmlReturn_t code);

#define X(name, parameters) nvmlReturn_t name parameters;
NVML_FUNCTION_LIST(X)
#undef X

#define X(name) nvmlReturn_t name(nvmlDevice_t device);
NVML_UNSUPPORTED_LIST(X)
#undef X

#endif
