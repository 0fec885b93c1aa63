/* state.h: the state of this process, and checks that functions make before they use a device.
 *
 * A process has no devices until openreg_initialize succeeds. A child that is forked after that
 * never has any.
 */
#ifndef OPENREG_DEVICE_PROCESS_STATE_H
#define OPENREG_DEVICE_PROCESS_STATE_H

#include "device/device.h"

#pragma GCC visibility push(hidden)

enum openreg_process_state { OPENREG_PROCESS_NEW, OPENREG_PROCESS_READY, OPENREG_PROCESS_FORKED };

enum openreg_process_state openreg_process_state(void);

/* Call it while forks are blocked, or in the child of a fork. */
void openreg_process_set_state(enum openreg_process_state state);

/* Return OK if this process sees the device, or any device. Initialize nothing. Errors:
 * INVALID_CONFIGURATION, INVALID_DEVICE. */
openreg_status openreg_require_device(int device);
openreg_status openreg_require_any_device(void);

/* Returns OK if the device exists; initializes devices if necessary. Errors: as
 * openreg_require_device and openreg_initialize. */
openreg_status openreg_require_ready(int device);

/* The same, and creates this process's context on the device if necessary. For functions that
 * access the device. Errors: as openreg_device_create_context. */
openreg_status openreg_require_context(int device);

/* Records that this process has its context on the device, or needs none. */
void openreg_process_set_context(int device);

/* ---- device.c -------------------------------------------------------------------------------- */

/* Slow path of openreg_require_context. */
openreg_status openreg_context_create(int device);

#pragma GCC visibility pop
#endif
