/* view.h: what the functions of this library look at: whether it is initialized, and the devices as
 * they are at the moment.
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

/* SUCCESS, or UNINITIALIZED. */
nvmlReturn_t openreg_nvml_require_initialized(void);

/* SUCCESS and its number, UNINITIALIZED, or INVALID_ARGUMENT for what is no handle. */
nvmlReturn_t openreg_nvml_require_device(nvmlDevice_t device, int *number);

/* The devices of this process's group, and its processes; with none of them in it, as they would
 * be. */
struct openreg_nvml_view {
  const openreg_ledger_snapshot *group;
  openreg_ledger_snapshot *owned; /* NULL: it is a preview */
  int number;                     /* of the device that was asked for */
  const openreg_ledger_device *device;
};

/* Takes a view, to be closed when it is SUCCESS. `looks` as in openreg_ledger_find_own. The second
 * is for one device, and fails with GPU_IS_LOST when the group has it no more. */
nvmlReturn_t openreg_nvml_view(bool looks, struct openreg_nvml_view *view);
nvmlReturn_t openreg_nvml_view_device(nvmlDevice_t device, bool looks,
                                      struct openreg_nvml_view *view);
void openreg_nvml_close(struct openreg_nvml_view *view);

/* Gives text to a caller who has room for `length` characters. INVALID_ARGUMENT, INSUFFICIENT_SIZE.
 */
nvmlReturn_t openreg_nvml_give_text(const char *text, char *to, unsigned length);

#pragma GCC visibility pop
#endif
