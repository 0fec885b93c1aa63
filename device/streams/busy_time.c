/* busy.c: the meter's arithmetic, which is in busy.h. */
#include "device/streams/busy_time.h"

#include "base/futex.h"
#include "device/process/visible_devices.h"

enum { TICK_BITS = 10, RUNNING_BITS = 54 };

#define RUNNING ((int64_t)1 << RUNNING_BITS)

static _Atomic int64_t own_meters[OPENREG_MAX_DEVICES];
static _Atomic int64_t nobody_watches;

struct openreg_meters openreg_meters = {own_meters, &nobody_watches};

void openreg_busy_publish(_Atomic int64_t of_number[], _Atomic int64_t *watched_until_ns) {
  atomic_store(&openreg_meters.of_number, of_number != NULL ? of_number : own_meters);
  atomic_store(&openreg_meters.watched_until_ns,
               watched_until_ns != NULL ? watched_until_ns : &nobody_watches);
}

int64_t openreg_busy_now_ticks(void) {
  return openreg_now_ns() >> TICK_BITS;
}

static void add(int device, int64_t ticks) {
  _Atomic int64_t *meters = atomic_load_explicit(&openreg_meters.of_number, memory_order_relaxed);
  atomic_fetch_add_explicit(&meters[openreg_visible_number(device)], ticks, memory_order_relaxed);
}

void openreg_busy_begin(int device) {
  add(device, RUNNING - openreg_busy_now_ticks());
}

void openreg_busy_end(int device) {
  add(device, openreg_busy_now_ticks() - RUNNING);
}

bool openreg_busy_begin_if_watched(int device) {
  _Atomic int64_t *until = atomic_load(&openreg_meters.watched_until_ns);
  int64_t until_ns = atomic_load(until), now_ns = openreg_now_ns();
  if (now_ns > until_ns) { /* nobody has looked for long */
    atomic_compare_exchange_strong(until, &until_ns, 0);
    return false;
  }
  add(device, RUNNING - (now_ns >> TICK_BITS));
  return true;
}

/* Without signs: a meter that is corrupt may overflow them. */
int64_t openreg_busy_ticks(int64_t meter, int64_t now_ticks) {
  int64_t running =
      (int64_t)((uint64_t)meter + ((uint64_t)1 << (RUNNING_BITS - 1))) >> RUNNING_BITS;
  if (running < 0 || running > OPENREG_STREAMS_PER_DEVICE)
    return 0;
  uint64_t rest = (uint64_t)meter - ((uint64_t)running << RUNNING_BITS);
  int64_t ticks = (int64_t)(rest + (uint64_t)running * (uint64_t)now_ticks);
  return ticks > 0 ? ticks : 0;
}
