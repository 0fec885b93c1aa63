/* looks.c: how busy the devices were between two looks at a control file. See control.h.
 *
 * What a meter says grows for ever; a share of time needs two looks. They lie in the control file,
 * so that those who look once and go, as `watch nvidia-smi` starts them, have the earlier look of
 * another. Of the two that are kept the first is what is compared with:
 *
 *     looks[0].at <= looks[1].at <= now
 *     a look becomes looks[1], and looks[1] becomes looks[0], when looks[1] is a second old
 *
 * so whoever looks often sees the last one to two seconds, and whoever looks rarely, what was since
 * the last look. Looks before which inline work was not counted for a while are forgotten.
 */
#include "device/ledger/control.h"

#include <string.h>

#include "base/futex.h"
#include "device/streams/busy_time.h"

#define TICKS(ns) ((int64_t)(ns) / 1024)

#define SECOND_NS   INT64_C(1000000000)
#define WATCHED_NS  (10 * SECOND_NS) /* of nobody else's looks: a person's patience */
#define SHORTEST_NS (SECOND_NS / 10) /* to say anything of it */

/* What work has been done since the control file was made, and is running. */
static int64_t busy_ticks(const struct control_file *file, int device, int64_t now_ticks) {
  const struct control *control = file->control;
  uint64_t sum = (uint64_t)control->busy_ticks_before[device];
  int used = openreg_control_used_slots(file);
  for (int i = 0; i < used; i++) {
    int64_t meter = atomic_load(&control->processes[i].meters[device]);
    if (meter != 0)
      sum += (uint64_t)openreg_busy_ticks(meter, now_ticks);
  }
  return (int64_t)sum;
}

static int percent(uint64_t busy, uint64_t ticks) {
  if ((int64_t)busy <= 0)
    return 0;
  return busy < ticks ? (int)(busy * 100 / ticks) : 100;
}

static void take_look(struct control_look *look, int device_count, const int64_t busy[],
                      int64_t now_ticks) {
  look->at_ticks = now_ticks;
  memcpy(look->busy_ticks, busy, (size_t)device_count * sizeof *busy);
}

/* Rolls the looks on, and tells whether the first of them is old enough to be compared with. */
static bool roll_looks(struct control *control, int device_count, const int64_t busy[],
                       int64_t now_ticks, bool was_watched) {
  struct control_look *looks = control->looks;
  bool is_sound = looks[0].at_ticks > 0 && looks[0].at_ticks <= looks[1].at_ticks &&
                  looks[1].at_ticks <= now_ticks;
  if (!was_watched || !is_sound) {
    take_look(&looks[0], device_count, busy, now_ticks);
    take_look(&looks[1], device_count, busy, now_ticks);
    return false;
  }
  if (now_ticks - looks[1].at_ticks >= TICKS(SECOND_NS)) {
    looks[0] = looks[1];
    take_look(&looks[1], device_count, busy, now_ticks);
  }
  return now_ticks - looks[0].at_ticks >= TICKS(SHORTEST_NS);
}

void openreg_control_look(struct control_file *file, int busy_percent[OPENREG_MAX_DEVICES]) {
  struct control *control = file->control;
  int device_count = (int)control->header.device_count;
  int64_t now_ns = openreg_now_ns(), now_ticks = openreg_busy_now_ticks();
  int64_t busy[OPENREG_MAX_DEVICES];
  for (int i = 0; i < device_count; i++)
    busy[i] = busy_ticks(file, i, now_ticks);
  bool was_watched = atomic_load(&control->watched_until_ns) >= now_ns;
  atomic_store(&control->watched_until_ns, now_ns + WATCHED_NS);
  bool can_compare = roll_looks(control, device_count, busy, now_ticks, was_watched);
  const struct control_look *since = &control->looks[0];
  for (int i = 0; i < device_count; i++)
    busy_percent[i] = !can_compare ? -1
                                   : percent((uint64_t)busy[i] - (uint64_t)since->busy_ticks[i],
                                             (uint64_t)(now_ticks - since->at_ticks));
}

/* When it ended nobody knows: work that it had running counts until now. */
void openreg_control_settle(struct control_file *file, int slot) {
  struct control *control = file->control;
  int64_t now_ticks = openreg_busy_now_ticks();
  for (int i = 0; i < OPENREG_MAX_DEVICES; i++) {
    _Atomic int64_t *meter = &control->processes[slot].meters[i];
    int64_t said = atomic_exchange(meter, 0);
    if (said != 0)
      control->busy_ticks_before[i] = (int64_t)((uint64_t)control->busy_ticks_before[i] +
                                                (uint64_t)openreg_busy_ticks(said, now_ticks));
  }
}
