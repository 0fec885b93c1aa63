/* visible.h: which devices of the group this process sees, and in which order.
 *
 * A device is known by two numbers. All of this process, its callers and its own tables, counts the
 * devices that it sees: 0 to openreg_device_count - 1, a `device` everywhere. What processes share
 * counts the devices of the group, as the configuration does, whoever sees them: the control file,
 * handles, placement and UUIDs go by a device's number in the group, a `number` here.
 */
#ifndef OPENREG_DEVICE_PROCESS_VISIBLE_H
#define OPENREG_DEVICE_PROCESS_VISIBLE_H

#include "device/device.h"

#pragma GCC visibility push(hidden)

/*     device_of[number_of[device]] == device      for 0 <= device < count */
struct openreg_visible {
  int count;
  int number_of[OPENREG_MAX_DEVICES]; /* of each device */
  int device_of[OPENREG_MAX_DEVICES]; /* of each number in the group; -1: not visible */
  const char *variable;               /* the one that chose */
};

/* Fills `visible` from OPENREG_VISIBLE_DEVICES, or with OPENREG_DEVICE_TYPE=cuda from
 * CUDA_VISIBLE_DEVICES, as `lookup` gives them (NULL: the process environment). Pure. */
void openreg_visible_read(openreg_getenv lookup, const openreg_config *config,
                          struct openreg_visible *visible);

/* The process's own, read once, on first use. Errors: INVALID_CONFIGURATION. */
openreg_status openreg_visible_get(const struct openreg_visible **visible);

/* The number of a device that exists. */
int openreg_visible_number(int device);

/* The device that a number stands for in this process; -1 when it sees none of that number. */
int openreg_visible_device(int number);

#pragma GCC visibility pop
#endif
