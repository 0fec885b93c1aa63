/* utilization.c: how busy the devices were between two samples of a control file. See control.h.
 *
 * Busy counters only grow, so utilization needs two samples. They are stored in the control file: a
 * program that samples once and exits, such as nvidia-smi started by `watch`, then finds the
 * earlier sample of another one. Two samples are kept, and the first one is compared with the
 * present:
 *
 *     samples[0].at_ticks <= samples[1].at_ticks <= now
 *     when samples[1] is a second old, it becomes samples[0], and a new sample becomes samples[1]
 *
 * So a program that samples often sees the last one to two seconds, and a program that samples
 * rarely sees the time since the last sample. Samples are discarded if inline work was not counted
 * all the time since then.
 */
#include "device/ledger/control.h"

#include <string.h>

#include "base/futex.h"
#include "device/streams/busy_time.h"

#define TICKS(ns) ((int64_t)(ns) / OPENREG_BUSY_TICK_NS)

#define SECOND_NS       INT64_C(1000000000)
#define SAMPLING_NS     (10 * SECOND_NS) /* without a further sample; a person's patience */
#define MIN_INTERVAL_NS (SECOND_NS / 10) /* shortest meaningful interval */

/* Busy ticks of finished and running work since the control file was created. */
static int64_t busy_ticks(const struct control_file *file, int device, int64_t now_ticks) {
  const struct control *control = file->control;
  uint64_t sum = (uint64_t)control->exited_busy_ticks[device];
  int used = openreg_control_used_slots(file);
  for (int i = 0; i < used; i++) {
    int64_t counter = atomic_load(&control->processes[i].busy_counters[device]);
    if (counter != 0)
      sum += (uint64_t)openreg_busy_ticks(counter, now_ticks);
  }
  return (int64_t)sum;
}

static int percent(uint64_t busy, uint64_t ticks) {
  if ((int64_t)busy <= 0)
    return 0;
  return busy < ticks ? (int)(busy * 100 / ticks) : 100;
}

static void store_sample(struct utilization_sample *sample, int device_count, const int64_t busy[],
                         int64_t now_ticks) {
  sample->at_ticks = now_ticks;
  memcpy(sample->busy_ticks, busy, (size_t)device_count * sizeof *busy);
}

/* Updates the samples. Returns whether the first one is old enough to compare with. */
static bool roll_samples(struct control *control, int device_count, const int64_t busy[],
                         int64_t now_ticks, bool was_sampling) {
  struct utilization_sample *samples = control->samples;
  bool is_valid = samples[0].at_ticks > 0 && samples[0].at_ticks <= samples[1].at_ticks &&
                  samples[1].at_ticks <= now_ticks;
  if (!was_sampling || !is_valid) {
    store_sample(&samples[0], device_count, busy, now_ticks);
    store_sample(&samples[1], device_count, busy, now_ticks);
    return false;
  }
  if (now_ticks - samples[1].at_ticks >= TICKS(SECOND_NS)) {
    samples[0] = samples[1];
    store_sample(&samples[1], device_count, busy, now_ticks);
  }
  return now_ticks - samples[0].at_ticks >= TICKS(MIN_INTERVAL_NS);
}

void openreg_control_sample_utilization(struct control_file *file,
                                        int busy_percent[OPENREG_MAX_DEVICES]) {
  struct control *control = file->control;
  int device_count = (int)file->header.device_count;
  int64_t now_ns = openreg_now_ns(), now_ticks = openreg_busy_now_ticks();
  int64_t busy[OPENREG_MAX_DEVICES];
  for (int i = 0; i < device_count; i++)
    busy[i] = busy_ticks(file, i, now_ticks);
  bool was_sampling = atomic_load(&control->sampled_until_ns) >= now_ns;
  atomic_store(&control->sampled_until_ns, now_ns + SAMPLING_NS);
  bool can_compare = roll_samples(control, device_count, busy, now_ticks, was_sampling);
  const struct utilization_sample *since = &control->samples[0];
  for (int i = 0; i < device_count; i++)
    busy_percent[i] = !can_compare ? -1
                                   : percent((uint64_t)busy[i] - (uint64_t)since->busy_ticks[i],
                                             (uint64_t)(now_ticks - since->at_ticks));
}

/* Nobody knows when the process ended: work that it was running counts until now. */
void openreg_control_fold_counters(struct control_file *file, int slot) {
  struct control *control = file->control;
  int64_t now_ticks = openreg_busy_now_ticks();
  for (int i = 0; i < OPENREG_MAX_DEVICES; i++) {
    _Atomic int64_t *counter = &control->processes[slot].busy_counters[i];
    int64_t value = atomic_exchange(counter, 0);
    if (value != 0)
      control->exited_busy_ticks[i] = (int64_t)((uint64_t)control->exited_busy_ticks[i] +
                                                (uint64_t)openreg_busy_ticks(value, now_ticks));
  }
}
