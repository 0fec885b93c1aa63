/* state.c: where this process stands. One word, which is written while forks are held and read
 * without a lock. */
#include "device/process/state.h"

#include <stdatomic.h>

static _Atomic int state = OPENREG_PROCESS_NEW;

enum openreg_process_state openreg_process_state(void) {
  return (enum openreg_process_state)atomic_load_explicit(&state, memory_order_acquire);
}

void openreg_process_set_state(enum openreg_process_state next) {
  atomic_store_explicit(&state, (int)next, memory_order_release);
}

bool openreg_is_initialized(void) {
  return openreg_process_state() == OPENREG_PROCESS_READY;
}

bool openreg_in_bad_fork(void) {
  return openreg_process_state() == OPENREG_PROCESS_FORKED;
}

openreg_status openreg_require_no_bad_fork(void) {
  if (openreg_in_bad_fork())
    return openreg_fail(OPENREG_BAD_FORK,
                        "openreg: devices were initialized before this process was forked, so it "
                        "has none: start it with the 'spawn' method");
  return OPENREG_OK;
}

openreg_status openreg_device_count(int *count) {
  const openreg_config *config;
  openreg_status status = openreg_config_get(&config);
  if (status == OPENREG_OK)
    *count = config->device_count;
  return status;
}

openreg_status openreg_require_device(int device) {
  static _Atomic int known_count; /* 0: not asked yet. Every launch comes by here */
  if (device >= 0 && device < atomic_load_explicit(&known_count, memory_order_relaxed))
    return OPENREG_OK;
  int count;
  openreg_status status = openreg_device_count(&count);
  if (status != OPENREG_OK)
    return status;
  atomic_store_explicit(&known_count, count, memory_order_relaxed);
  if (device < 0 || device >= count)
    return openreg_fail(OPENREG_INVALID_DEVICE,
                        "openreg: invalid device ordinal %d: expected 0 to %d", device, count - 1);
  return OPENREG_OK;
}

openreg_status openreg_require_ready(int device) {
  openreg_status status = openreg_require_device(device);
  return status == OPENREG_OK ? openreg_initialize() : status;
}
