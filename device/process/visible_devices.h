/* visible_devices.h: which devices of the group this process sees, and in which order.
 *
 * A device has two numbers. A `device` is an index among the devices that this process sees, 0 to
 * openreg_device_count - 1. This process and its callers use it everywhere. A group index counts
 * all devices of the group, as the configuration does. Everything that processes share uses group
 * indices: the control file, handles, placement and UUIDs.
 */
#ifndef OPENREG_DEVICE_PROCESS_VISIBLE_DEVICES_H
#define OPENREG_DEVICE_PROCESS_VISIBLE_DEVICES_H

#include "device/device.h"

#pragma GCC visibility push(hidden)

/* device_of[group_index_of[device]] == device      for 0 <= device < count */
struct openreg_visible {
  int count;
  int group_index_of[OPENREG_MAX_DEVICES]; /* by device */
  int device_of[OPENREG_MAX_DEVICES];      /* by group index; -1: not visible */
  const char *variable;                    /* the variable that selected the devices */
};

/* Fills `visible` from OPENREG_VISIBLE_DEVICES or, with OPENREG_DEVICE_TYPE=cuda, from
 * CUDA_VISIBLE_DEVICES. `lookup` reads a variable (NULL: the process environment). Pure. */
void openreg_visible_read(openreg_getenv lookup, const openreg_config *config,
                          struct openreg_visible *visible);

/* The visible devices of this process, read on first use. Errors: INVALID_CONFIGURATION. */
openreg_status openreg_visible_get(const struct openreg_visible **visible);

/* The group index of a device that exists. */
int openreg_visible_group_index(int device);

/* The device with a group index; -1 if this process does not see it. */
int openreg_visible_device(int index);

#pragma GCC visibility pop
#endif
