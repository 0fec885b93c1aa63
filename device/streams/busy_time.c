/* busy_time.c: updates and reads busy counters. See busy_time.h. */
#include "device/streams/busy_time.h"

#include "base/futex.h"
#include "device/process/visible_devices.h"

enum { RUNNING_BITS = 54 };

#define RUNNING ((int64_t)1 << RUNNING_BITS)

static _Atomic int64_t own_counters[OPENREG_MAX_DEVICES];
static _Atomic int64_t never_sampled;

struct openreg_busy_counters openreg_busy_counters = {own_counters, &never_sampled};

void openreg_busy_publish(_Atomic int64_t by_group_index[], _Atomic int64_t *sampled_until_ns) {
  atomic_store(&openreg_busy_counters.by_group_index,
               by_group_index != NULL ? by_group_index : own_counters);
  atomic_store(&openreg_busy_counters.sampled_until_ns,
               sampled_until_ns != NULL ? sampled_until_ns : &never_sampled);
}

int64_t openreg_busy_now_ticks(void) {
  return openreg_now_ns() / OPENREG_BUSY_TICK_NS;
}

static void add(int device, int64_t ticks) {
  _Atomic int64_t *counters =
      atomic_load_explicit(&openreg_busy_counters.by_group_index, memory_order_relaxed);
  atomic_fetch_add_explicit(&counters[openreg_visible_group_index(device)], ticks,
                            memory_order_relaxed);
}

void openreg_busy_begin(int device) {
  add(device, RUNNING - openreg_busy_now_ticks());
}

void openreg_busy_end(int device) {
  add(device, openreg_busy_now_ticks() - RUNNING);
}

bool openreg_busy_begin_if_sampled(int device) {
  _Atomic int64_t *until = atomic_load(&openreg_busy_counters.sampled_until_ns);
  int64_t until_ns = atomic_load(until), now_ns = openreg_now_ns();
  if (now_ns > until_ns) { /* no sample was taken for a long time */
    atomic_compare_exchange_strong(until, &until_ns, 0);
    return false;
  }
  add(device, RUNNING - now_ns / OPENREG_BUSY_TICK_NS);
  return true;
}

/* Unsigned arithmetic, because a corrupt counter may overflow. */
int64_t openreg_busy_ticks(int64_t counter, int64_t now_ticks) {
  int64_t running =
      (int64_t)((uint64_t)counter + ((uint64_t)1 << (RUNNING_BITS - 1))) >> RUNNING_BITS;
  if (running < 0 || running > OPENREG_STREAMS_PER_DEVICE)
    return 0;
  uint64_t rest = (uint64_t)counter - ((uint64_t)running << RUNNING_BITS);
  int64_t ticks = (int64_t)(rest + (uint64_t)running * (uint64_t)now_ticks);
  return ticks > 0 ? ticks : 0;
}
