/* usage.c: what is in use of a device, by whom, and how busy it is. */
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

/* No driver keeps any of it for itself. */
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

/* A process that ended, whose memory others still have, is none any more. */
static bool uses(const openreg_ledger_process *process, int number) {
  return process->bytes[number] > 0 && !process->has_exited;
}

/* Gives a list as NVML does: `count` says for how many there is room, then how many there are. */
typedef void (*give_process)(const openreg_ledger_process *process, int number, unsigned place,
                             void *processes);

static nvmlReturn_t give_processes(nvmlDevice_t device, give_process give, unsigned *count,
                                   void *processes) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_view_device(device, false, &view);
  if (code != NVML_SUCCESS)
    return code;
  unsigned room = count != NULL && processes != NULL ? *count : 0, found = 0;
  for (int i = 0; i < view.group->process_count; i++) {
    const openreg_ledger_process *process = &view.group->processes[i];
    if (!uses(process, view.number))
      continue;
    if (found < room)
      give(process, view.number, found, processes);
    found++;
  }
  openreg_nvml_close(&view);
  if (count == NULL || (processes == NULL && *count > 0))
    return NVML_ERROR_INVALID_ARGUMENT;
  *count = found;
  return found <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static void give_v1(const openreg_ledger_process *process, int number, unsigned place,
                    void *processes) {
  ((nvmlProcessInfo_v1_t *)processes)[place] = (nvmlProcessInfo_v1_t){
      .pid = (unsigned)process->pid, .usedGpuMemory = process->bytes[number]};
}

static void give_v3(const openreg_ledger_process *process, int number, unsigned place,
                    void *processes) {
  ((nvmlProcessInfo_t *)processes)[place] =
      (nvmlProcessInfo_t){.pid = (unsigned)process->pid,
                          .usedGpuMemory = process->bytes[number],
                          .gpuInstanceId = ~0u,
                          .computeInstanceId = ~0u};
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                  nvmlProcessInfo_v1_t *processes) {
  return give_processes(device, give_v1, count, processes);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_t *processes) {
  return give_processes(device, give_v3, count, processes);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_t *processes) {
  return give_processes(device, give_v3, count, processes);
}

/* Graphics, and CUDA's service for many processes: nobody has any. */
static nvmlReturn_t give_none(nvmlDevice_t device, unsigned *count) {
  int number;
  nvmlReturn_t code = openreg_nvml_require_device(device, &number);
  if (code == NVML_SUCCESS && count == NULL)
    code = NVML_ERROR_INVALID_ARGUMENT;
  if (code == NVML_SUCCESS)
    *count = 0;
  return code;
}

#define NONE(name, type)                                                                           \
  nvmlReturn_t name(nvmlDevice_t device, unsigned *count, type *processes) {                       \
    (void)processes;                                                                               \
    return give_none(device, count);                                                               \
  }
NONE(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
NONE(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

/* ---- how busy -------------------------------------------------------------------------------- */

static nvmlReturn_t look(nvmlDevice_t device, int *percent) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_view_device(device, true, &view);
  if (code != NVML_SUCCESS)
    return code;
  *percent = view.device->busy_percent;
  openreg_nvml_close(&view);
  return NVML_SUCCESS;
}

/* Where nobody looked lately it waits for a tenth of a second, which is what it then tells of: the
 * ledger's shortest time. Kernels of the host's processor use memory whenever they run. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
  enum { LOOKS = 100 }; /* a limit, for a clock that does not move */
  int percent = -1;
  nvmlReturn_t code = look(device, &percent);
  for (int i = 0; code == NVML_SUCCESS && percent < 0 && i < LOOKS; i++) {
    nanosleep(&(struct timespec){.tv_nsec = i == 0 ? 100000000 : 1000000}, NULL);
    code = look(device, &percent);
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
