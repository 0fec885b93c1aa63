/* view.h: whether the library is initialized, and the current state of the devices.
 */
#ifndef OPENREG_NVML_VIEW_H
#define OPENREG_NVML_VIEW_H

#include "device/device.h"
#include "nvml/nvml.h"

#include <stdbool.h>

#pragma GCC visibility push(hidden)

/* A handle is the address of one of these. */
struct nvmlDevice_st {
  char unused;
};
extern struct nvmlDevice_st openreg_nvml_devices[OPENREG_MAX_DEVICES];

/* SUCCESS or UNINITIALIZED. */
nvmlReturn_t openreg_nvml_require_initialized(void);

/* Returns SUCCESS and the device's index, UNINITIALIZED, or INVALID_ARGUMENT if `device` is not a
 * handle. */
nvmlReturn_t openreg_nvml_require_device(nvmlDevice_t device, int *index);

/* The devices and processes of this process's group. If the group has no processes, a preview of
 * its devices. */
struct openreg_nvml_view {
  const openreg_ledger_snapshot *group;
  openreg_ledger_snapshot *owned; /* NULL for a preview */
  int index;                      /* index of the requested device */
  const openreg_ledger_device *device;
};

/* Take a view, which the caller closes after SUCCESS. `with_utilization`: see
 * openreg_ledger_find_own. view_device selects one device and fails with GPU_IS_LOST if the group
 * no longer has it. */
nvmlReturn_t openreg_nvml_view(bool with_utilization, struct openreg_nvml_view *view);
nvmlReturn_t openreg_nvml_view_device(nvmlDevice_t device, bool with_utilization,
                                      struct openreg_nvml_view *view);
void openreg_nvml_close(struct openreg_nvml_view *view);

/* Copies text for a caller with space for `length` characters. Errors: INVALID_ARGUMENT,
 * INSUFFICIENT_SIZE. */
nvmlReturn_t openreg_nvml_copy_text(const char *text, char *to, unsigned length);

#pragma GCC visibility pop
#endif
