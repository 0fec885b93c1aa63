/* state.c: the state of this process: one word, written while forks are blocked and read without a
 * lock, and one bit for each device on which it has a context. */
#include "device/process/state.h"

#include <stdatomic.h>

#include "device/process/visible_devices.h"

static _Atomic int state = OPENREG_PROCESS_NEW;
static _Atomic uint64_t contexts; /* one bit per device; 0 before initialization */

_Static_assert(OPENREG_MAX_DEVICES <= 64, "one bit for each");

enum openreg_process_state openreg_process_state(void) {
  return (enum openreg_process_state)atomic_load_explicit(&state, memory_order_acquire);
}

void openreg_process_set_state(enum openreg_process_state next) {
  atomic_store_explicit(&state, (int)next, memory_order_release);
  if (next == OPENREG_PROCESS_FORKED)
    atomic_store(&contexts, 0);
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
                        "openreg: this process was forked after its parent initialized devices, so "
                        "it cannot use them; start it with the 'spawn' method");
  return OPENREG_OK;
}

openreg_status openreg_device_count(int *count) {
  const struct openreg_visible *visible;
  openreg_status status = openreg_visible_get(&visible);
  if (status == OPENREG_OK)
    *count = visible->count;
  return status;
}

openreg_status openreg_require_any_device(void) {
  const struct openreg_visible *visible;
  openreg_status status = openreg_visible_get(&visible);
  if (status == OPENREG_OK && visible->count == 0)
    return openreg_fail(OPENREG_INVALID_DEVICE,
                        "openreg: this process sees no devices: %s selects none",
                        visible->variable);
  return status;
}

openreg_status openreg_require_device(int device) {
  static _Atomic int known_count; /* 0: not read yet */
  if (device >= 0 && device < atomic_load_explicit(&known_count, memory_order_relaxed))
    return OPENREG_OK;
  int count;
  openreg_status status = openreg_device_count(&count);
  if (status != OPENREG_OK)
    return status;
  atomic_store_explicit(&known_count, count, memory_order_relaxed);
  if (count == 0)
    return openreg_require_any_device();
  if (device < 0 || device >= count)
    return openreg_fail(OPENREG_INVALID_DEVICE,
                        "openreg: invalid device ordinal %d: expected 0 to %d", device, count - 1);
  return OPENREG_OK;
}

openreg_status openreg_require_ready(int device) {
  openreg_status status = openreg_require_device(device);
  return status == OPENREG_OK ? openreg_initialize() : status;
}

void openreg_process_set_context(int device) {
  atomic_fetch_or_explicit(&contexts, (uint64_t)1 << device, memory_order_release);
}

bool openreg_device_has_context(int device) {
  uint64_t noted = atomic_load_explicit(&contexts, memory_order_acquire);
  return device >= 0 && device < OPENREG_MAX_DEVICES && (noted >> device & 1) != 0;
}

/* Every launch calls this. */
openreg_status openreg_require_context(int device) {
  return openreg_device_has_context(device) ? OPENREG_OK : openreg_context_create(device);
}
