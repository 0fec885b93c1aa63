/* modes.c: modes and placement of a device. Nothing here can be changed. */
#include "nvml/view.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- the same for all devices ---------------------------------------------------------------- */

static nvmlReturn_t answer(nvmlDevice_t device, int value, int *to) {
  int index;
  nvmlReturn_t code = openreg_nvml_require_device(device, &index);
  if (code == NVML_SUCCESS && to == NULL)
    code = NVML_ERROR_INVALID_ARGUMENT;
  if (code == NVML_SUCCESS)
    *to = value;
  return code;
}

/* The first process that uses a device creates it, and the last one removes it. */
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, int *mode) {
  return answer(device, NVML_FEATURE_DISABLED, mode);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, int *mode) {
  return answer(device, NVML_COMPUTEMODE_DEFAULT, mode);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, int *mode) {
  return answer(device, NVML_FEATURE_DISABLED, mode);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, int *active) {
  return answer(device, NVML_FEATURE_DISABLED, active);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
  return answer(device, 0, (int *)count);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
  return answer(device, 0, (int *)is_mig);
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned *is_multi) {
  return answer(device, 0, (int *)is_multi);
}

/* ---- placement ------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned *node) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_view_device(device, false, &view);
  if (code != NVML_SUCCESS)
    return code;
  if (node == NULL)
    code = NVML_ERROR_INVALID_ARGUMENT;
  else if (view.device->numa_node < 0)
    code = NVML_ERROR_NOT_SUPPORTED;
  else
    *node = (unsigned)view.device->numa_node;
  openreg_nvml_close(&view);
  return code;
}

/* Parses hwloc's list format, "0-3,8". Cores beyond `words` are left out. */
static void set_cpus(const char *list, unsigned words, unsigned long *cpus) {
  enum { WORD_BITS = sizeof *cpus * CHAR_BIT };
  memset(cpus, 0, words * sizeof *cpus);
  while (*list != '\0') {
    char *end;
    unsigned long first = strtoul(list, &end, 10), last = first;
    if (end == list)
      return;
    if (*end == '-')
      last = strtoul(end + 1, &end, 10);
    for (unsigned long i = first; i <= last && i / WORD_BITS < words; i++)
      cpus[i / WORD_BITS] |= 1ul << i % WORD_BITS;
    list = *end == ',' ? end + 1 : end;
  }
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned words, unsigned long *cpus) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_view_device(device, false, &view);
  if (code != NVML_SUCCESS)
    return code;
  if (cpus == NULL || words == 0)
    code = NVML_ERROR_INVALID_ARGUMENT;
  else if (view.device->cpuset[0] == '\0')
    code = NVML_ERROR_NOT_SUPPORTED;
  else
    set_cpus(view.device->cpuset, words, cpus);
  openreg_nvml_close(&view);
  return code;
}

/* ---- pairs of devices ------------------------------------------------------------------------ */

static nvmlReturn_t require_pair(nvmlDevice_t device, nvmlDevice_t other, const void *answer) {
  int index;
  nvmlReturn_t code = openreg_nvml_require_device(device, &index);
  if (code == NVML_SUCCESS)
    code = openreg_nvml_require_device(other, &index);
  return code == NVML_SUCCESS && answer == NULL ? NVML_ERROR_INVALID_ARGUMENT : code;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device, nvmlDevice_t other, int *same) {
  nvmlReturn_t code = require_pair(device, other, same);
  if (code == NVML_SUCCESS)
    *same = device == other;
  return code;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other,
                                                 int *level) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = require_pair(device, other, level);
  if (code == NVML_SUCCESS)
    code = openreg_nvml_view_device(device, false, &view);
  if (code != NVML_SUCCESS)
    return code;
  int other_number = (int)(other - openreg_nvml_devices), node = view.device->numa_node;
  bool is_lost = other_number >= view.group->device_count;
  int other_node = view.group->devices[other_number].numa_node;
  openreg_nvml_close(&view);
  if (is_lost)
    return NVML_ERROR_GPU_IS_LOST;
  *level = device == other      ? NVML_TOPOLOGY_INTERNAL
           : node == other_node ? NVML_TOPOLOGY_NODE
                                : NVML_TOPOLOGY_SYSTEM;
  return NVML_SUCCESS;
}

/* Every device can access every other device's memory, with ordinary loads and stores of the
 * host. */
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, int what,
                                    int *status) {
  nvmlReturn_t code = require_pair(device, other, status);
  if (code == NVML_SUCCESS && (device == other || what < 0 || what >= NVML_P2P_CAPS_INDEX_UNKNOWN))
    code = NVML_ERROR_INVALID_ARGUMENT;
  if (code != NVML_SUCCESS)
    return code;
  bool has = what == NVML_P2P_CAPS_INDEX_READ || what == NVML_P2P_CAPS_INDEX_WRITE;
  *status = has ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

/* ---- fields ---------------------------------------------------------------------------------- */

/* Hardware counters, by number. None exists; each field gets its own error code. */
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
  int index;
  nvmlReturn_t code = openreg_nvml_require_device(device, &index);
  if (code == NVML_SUCCESS && (count <= 0 || values == NULL))
    code = NVML_ERROR_INVALID_ARGUMENT;
  for (int i = 0; code == NVML_SUCCESS && i < count; i++)
    values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
  return code;
}

/* ---- what a simulated device does not have --------------------------------------------------- */

#define X(name)                                                                                    \
  nvmlReturn_t name(nvmlDevice_t device) {                                                         \
    int index;                                                                                     \
    nvmlReturn_t code = openreg_nvml_require_device(device, &index);                               \
    return code == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : code;                                 \
  }
NVML_UNSUPPORTED_LIST(X)
#undef X
