/* state.h: where this process stands, and what functions require of it.
 *
 * A process has no devices until openreg_initialize made them, and a child that is forked after
 * that has none ever.
 */
#ifndef OPENREG_DEVICE_PROCESS_STATE_H
#define OPENREG_DEVICE_PROCESS_STATE_H

#include "device/device.h"

#pragma GCC visibility push(hidden)

enum openreg_process_state { OPENREG_PROCESS_NEW, OPENREG_PROCESS_READY, OPENREG_PROCESS_FORKED };

enum openreg_process_state openreg_process_state(void);

/* While forks are held, or in a child that is being forked. */
void openreg_process_set_state(enum openreg_process_state state);

/* OK when this process has this device; any device. Initializes nothing.
 * Errors: INVALID_CONFIGURATION, INVALID_DEVICE. */
openreg_status openreg_require_device(int device);
openreg_status openreg_require_any_device(void);

/* OK when the device exists and everything is initialized, which it does if need be.
 * Errors: as openreg_require_device, and those of openreg_initialize. */
openreg_status openreg_require_ready(int device);

/* The same, with this process's context on the device, which it takes if need be: for whatever
 * reaches the device. Errors: as openreg_device_take_context. */
openreg_status openreg_require_context(int device);

/* Notes that this process has its context on the device, or needs none. */
void openreg_process_set_context(int device);

/* Errors: BAD_FORK. */
openreg_status openreg_require_no_bad_fork(void);

/* ---- device.c -------------------------------------------------------------------------------- */

/* For a device that this process's context is not noted of. */
openreg_status openreg_context_open(int device);

#pragma GCC visibility pop
#endif
