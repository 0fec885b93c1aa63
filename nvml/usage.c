/* usage.c: memory usage, processes and utilization of a device. */
#include "nvml/view.h"

#include <stddef.h>
#include <time.h>

/* ---- memory ---------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_view_device(device, false, &view);
  if (code != NVML_SUCCESS)
    return code;
  if (memory != NULL)
    *memory = (nvmlMemory_t){.total = view.device->total_bytes,
                             .free = view.device->total_bytes - view.device->used_bytes,
                             .used = view.device->used_bytes};
  openreg_nvml_close(&view);
  return memory != NULL ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* No driver reserves memory. */
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  nvmlMemory_t plain;
  nvmlReturn_t code = nvmlDeviceGetMemoryInfo(device, &plain);
  if (code == NVML_SUCCESS && memory == NULL)
    code = NVML_ERROR_INVALID_ARGUMENT;
  if (code == NVML_SUCCESS && memory->version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2))
    code = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (code == NVML_SUCCESS)
    *memory = (nvmlMemory_v2_t){
        .version = memory->version, .total = plain.total, .free = plain.free, .used = plain.used};
  return code;
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Ended processes whose memory others still use are not listed. */
static bool uses(const openreg_ledger_process *process, int index) {
  return process->bytes[index] > 0 && !process->has_exited;
}

/* Lists processes as NVML does: the caller passes the array's size in `count` and gets the number
 * of processes. */
typedef void (*write_process)(const openreg_ledger_process *process, int index, unsigned place,
                              void *processes);

static nvmlReturn_t list_processes(nvmlDevice_t device, write_process give, unsigned *count,
                                   void *processes) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_view_device(device, false, &view);
  if (code != NVML_SUCCESS)
    return code;
  unsigned room = count != NULL && processes != NULL ? *count : 0, found = 0;
  for (int i = 0; i < view.group->process_count; i++) {
    const openreg_ledger_process *process = &view.group->processes[i];
    if (!uses(process, view.index))
      continue;
    if (found < room)
      give(process, view.index, found, processes);
    found++;
  }
  openreg_nvml_close(&view);
  if (count == NULL || (processes == NULL && *count > 0))
    return NVML_ERROR_INVALID_ARGUMENT;
  *count = found;
  return found <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static void write_process_v1(const openreg_ledger_process *process, int index, unsigned place,
                             void *processes) {
  ((nvmlProcessInfo_v1_t *)processes)[place] =
      (nvmlProcessInfo_v1_t){.pid = (unsigned)process->pid, .usedGpuMemory = process->bytes[index]};
}

static void write_process_v3(const openreg_ledger_process *process, int index, unsigned place,
                             void *processes) {
  ((nvmlProcessInfo_t *)processes)[place] =
      (nvmlProcessInfo_t){.pid = (unsigned)process->pid,
                          .usedGpuMemory = process->bytes[index],
                          .gpuInstanceId = ~0u,
                          .computeInstanceId = ~0u};
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                  nvmlProcessInfo_v1_t *processes) {
  return list_processes(device, write_process_v1, count, processes);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_t *processes) {
  return list_processes(device, write_process_v3, count, processes);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_t *processes) {
  return list_processes(device, write_process_v3, count, processes);
}

/* There are never processes that use graphics or CUDA's Multi-Process Service. */
static nvmlReturn_t list_no_processes(nvmlDevice_t device, unsigned *count) {
  int index;
  nvmlReturn_t code = openreg_nvml_require_device(device, &index);
  if (code == NVML_SUCCESS && count == NULL)
    code = NVML_ERROR_INVALID_ARGUMENT;
  if (code == NVML_SUCCESS)
    *count = 0;
  return code;
}

#define DEFINE_EMPTY_LIST(name, type)                                                              \
  nvmlReturn_t name(nvmlDevice_t device, unsigned *count, type *processes) {                       \
    (void)processes;                                                                               \
    return list_no_processes(device, count);                                                       \
  }
DEFINE_EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
DEFINE_EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t)
DEFINE_EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
DEFINE_EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
DEFINE_EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t)
DEFINE_EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

/* ---- utilization ----------------------------------------------------------------------------- */

static nvmlReturn_t get_busy_percent(nvmlDevice_t device, int *percent) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_view_device(device, true, &view);
  if (code != NVML_SUCCESS)
    return code;
  *percent = view.device->busy_percent;
  openreg_nvml_close(&view);
  return NVML_SUCCESS;
}

/* If nobody sampled utilization recently, waits a tenth of a second, the shortest interval that the
 * ledger supports. `memory` equals `gpu`, because kernels on the host's processor access memory
 * whenever they run. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
  enum { MAX_ATTEMPTS = 100 }; /* limit in case the clock does not advance */
  int percent = -1;
  nvmlReturn_t code = get_busy_percent(device, &percent);
  for (int i = 0; code == NVML_SUCCESS && percent < 0 && i < MAX_ATTEMPTS; i++) {
    nanosleep(&(struct timespec){.tv_nsec = i == 0 ? 100000000 : 1000000}, NULL);
    code = get_busy_percent(device, &percent);
  }
  if (code != NVML_SUCCESS)
    return code;
  if (rates == NULL)
    return NVML_ERROR_INVALID_ARGUMENT;
  if (percent < 0)
    return NVML_ERROR_UNKNOWN;
  *rates = (nvmlUtilization_t){.gpu = (unsigned)percent, .memory = (unsigned)percent};
  return NVML_SUCCESS;
}
