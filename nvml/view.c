/* view.c: this process's group, from the ledger. See view.h.
 *
 * Each query takes its own snapshot, so no result is older than the query. Only the preview of a
 * group without processes is cached: it depends on the environment, which is read once, and finding
 * the devices' placement takes milliseconds.
 */
#include "nvml/view.h"

#include <pthread.h>
#include <string.h>

struct nvmlDevice_st openreg_nvml_devices[OPENREG_MAX_DEVICES];

static openreg_ledger_snapshot preview;
static openreg_status preview_status;

static void take_preview(void) {
  preview_status = openreg_ledger_preview(&preview);
}

static nvmlReturn_t code_of(openreg_status status) {
  switch (status) {
  case OPENREG_OK:
    return NVML_SUCCESS;
  case OPENREG_INVALID_CONFIGURATION:
    return NVML_ERROR_DRIVER_NOT_LOADED;
  case OPENREG_OUT_OF_MEMORY:
    return NVML_ERROR_MEMORY;
  case OPENREG_SYSTEM:
    return NVML_ERROR_OPERATING_SYSTEM;
  default:
    return NVML_ERROR_UNKNOWN;
  }
}

nvmlReturn_t openreg_nvml_require_device(nvmlDevice_t device, int *index) {
  nvmlReturn_t code = openreg_nvml_require_initialized();
  if (code != NVML_SUCCESS)
    return code;
  for (int i = 0; i < OPENREG_MAX_DEVICES; i++) {
    if (device == &openreg_nvml_devices[i]) {
      *index = i;
      return NVML_SUCCESS;
    }
  }
  return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t openreg_nvml_view(bool with_utilization, struct openreg_nvml_view *view) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  nvmlReturn_t code = openreg_nvml_require_initialized();
  if (code != NVML_SUCCESS)
    return code;
  *view = (struct openreg_nvml_view){.index = -1};
  openreg_status status = openreg_ledger_find_own(with_utilization, &view->owned);
  view->group = view->owned;
  if (status == OPENREG_NOT_READY) {
    pthread_once(&once, take_preview);
    view->group = &preview;
    status = preview_status;
  }
  return code_of(status);
}

nvmlReturn_t openreg_nvml_view_device(nvmlDevice_t device, bool with_utilization,
                                      struct openreg_nvml_view *view) {
  int index;
  nvmlReturn_t code = openreg_nvml_require_device(device, &index);
  if (code == NVML_SUCCESS)
    code = openreg_nvml_view(with_utilization, view);
  if (code != NVML_SUCCESS)
    return code;
  if (index >= view->group->device_count) {
    openreg_nvml_close(view);
    return NVML_ERROR_GPU_IS_LOST;
  }
  view->index = index;
  view->device = &view->group->devices[index];
  return NVML_SUCCESS;
}

void openreg_nvml_close(struct openreg_nvml_view *view) {
  openreg_ledger_free_snapshots(view->owned, 1);
}

nvmlReturn_t openreg_nvml_copy_text(const char *text, char *to, unsigned length) {
  size_t needed = strlen(text) + 1;
  if (to == NULL)
    return NVML_ERROR_INVALID_ARGUMENT;
  if (length < needed)
    return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(to, text, needed);
  return NVML_SUCCESS;
}
