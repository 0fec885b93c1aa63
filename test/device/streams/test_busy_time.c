/* Busy counters: what counts as work, and how counters are read. Nothing is timed: whether work is
 * counted shows in whether the counter is running.
 */
#include "device/streams/stream.h"
#include "gate.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int64_t busy_counters[OPENREG_MAX_DEVICES];
static _Atomic int64_t sampled_until_ns;

/* Uses counters that the test can read instead of those in the control file. */
static void use_own_meters(bool watched) {
  REQUIRE_OK(openreg_initialize());
  atomic_store(&sampled_until_ns, watched ? OPENREG_NEVER : 0);
  openreg_busy_publish(busy_counters, &sampled_until_ns);
}

static int64_t ticks_after(int device, int64_t ticks) {
  return openreg_busy_ticks(atomic_load(&busy_counters[device]), openreg_busy_now_ticks() + ticks) -
         openreg_busy_ticks(atomic_load(&busy_counters[device]), openreg_busy_now_ticks());
}

/* How many streams run work: each adds its share of the time. Evaluated for a time far in the
 * future, so that the clock's progress does not matter. */
static int running(int device) {
  const int64_t far = (int64_t)1 << 40;
  return (int)((ticks_after(device, far) + far / 2) / far);
}

static void await_running(int device, int count) {
  while (running(device) != count)
    sched_yield();
}

/* ---- what counts ----------------------------------------------------------------------------- */

CHILD_TEST(queued_work_counts_while_it_is_running) {
  gate gate = GATE_CLOSED;
  use_own_meters(false);
  gate_close_stream(&gate, 1, 2);
  REQUIRE(running(0) == 0 && running(1) == 1);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(1, 2));
  await_running(1, 0);
}

CHILD_TEST(each_stream_counts) {
  gate gates[3] = {GATE_CLOSED, GATE_CLOSED, GATE_CLOSED};
  use_own_meters(false);
  for (int i = 0; i < 3; i++) {
    gate_close_stream(&gates[i], 0, i);
    REQUIRE(running(0) == i + 1);
  }
  for (int i = 0; i < 3; i++)
    gate_open(&gates[i]);
  REQUIRE_OK(openreg_device_synchronize(0));
  await_running(0, 0);
}

CHILD_TEST(work_counts_for_the_devices_group_index) {
  gate gate = GATE_CLOSED;
  setenv("OPENREG_VISIBLE_DEVICES", "1", 1);
  use_own_meters(false);
  gate_close_stream(&gate, 0, 2);
  REQUIRE(running(0) == 0 && running(1) == 1);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(0, 2));
  await_running(1, 0);
}

CHILD_TEST(a_stream_that_waits_for_another_does_not_count) {
  gate gate = GATE_CLOSED;
  openreg_event *event;
  _Atomic int counter = 0;
  use_own_meters(false);
  REQUIRE_OK(openreg_event_create(0, false, &event));
  gate_close_stream(&gate, 0, 1);
  REQUIRE_OK(openreg_event_record(event, 1));
  REQUIRE_OK(openreg_stream_launch(1, 1, count_up, &counter));
  REQUIRE_OK(openreg_stream_wait_event(1, 1, event));
  REQUIRE_OK(openreg_stream_launch(1, 1, count_up, &counter));
  while (atomic_load(&counter) < 1)
    sched_yield();
  await_running(1, 0);
  REQUIRE(running(0) == 1 && counter == 1);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(1, 1));
  await_running(1, 0);
  openreg_event_destroy(event);
}

CHILD_TEST(inline_work_counts_while_utilization_is_sampled) {
  use_own_meters(true);
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 0));
  REQUIRE(running(0) == 1);
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 0)); /* nested: the same work */
  openreg_stream_end_inline(0, 0);
  REQUIRE(running(0) == 1);
  openreg_stream_end_inline(0, 0);
  REQUIRE(running(0) == 0 && running(1) == 0);
}

CHILD_TEST(inline_work_is_not_counted_otherwise) {
  use_own_meters(false);
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 0));
  atomic_store(&sampled_until_ns, OPENREG_NEVER); /* work that has begun does not count */
  REQUIRE(busy_counters[0] == 0);
  openreg_stream_end_inline(0, 0);
  REQUIRE(busy_counters[0] == 0);
}

CHILD_TEST(old_samples_are_discarded) {
  use_own_meters(false);
  atomic_store(&sampled_until_ns, 1); /* expired long ago */
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 0));
  REQUIRE(busy_counters[0] == 0 && sampled_until_ns == 0);
  openreg_stream_end_inline(0, 0);
}

/* ---- what is read ---------------------------------------------------------------------------- */

CHILD_TEST(a_busy_counter_measures_the_time_of_work) {
  const int64_t began = 1000, ended = 1700, running_one = (int64_t)1 << 54;
  REQUIRE(openreg_busy_ticks(0, 5000) == 0);
  REQUIRE(openreg_busy_ticks(running_one - began, 1700) == 700);
  REQUIRE(openreg_busy_ticks(ended - began, 5000) == 700);
  REQUIRE(openreg_busy_ticks(2 * running_one - 1000 - 1200 + 700, 2000) == 1000 + 800 + 700);
}

CHILD_TEST(all_streams_of_a_device_fit_into_a_busy_counter) {
  const int64_t year = INT64_C(365) * 24 * 3600 * 1000000000 / OPENREG_BUSY_TICK_NS;
  int64_t counter = 0, now = 4 * year;
  for (int i = 0; i < OPENREG_STREAMS_PER_DEVICE; i++)
    counter += ((int64_t)1 << 54) - now;
  REQUIRE(openreg_busy_ticks(counter, now + 10) == 10 * OPENREG_STREAMS_PER_DEVICE);
}

/* As in a corrupt control file. */
CHILD_TEST(busy_time_is_never_negative_for_any_counter) {
  uint64_t counter = 1;
  for (int i = 0; i < 100000; i++) {
    counter = counter * 6364136223846793005u + 1442695040888963407u;
    REQUIRE(openreg_busy_ticks((int64_t)counter, (int64_t)(counter >> 8)) >= 0);
  }
  REQUIRE(openreg_busy_ticks(INT64_MIN, INT64_MAX) >= 0);
  REQUIRE(openreg_busy_ticks(INT64_MAX, INT64_MAX) >= 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(queued_work_counts_while_it_is_running),
      cmocka_unit_test(each_stream_counts),
      cmocka_unit_test(work_counts_for_the_devices_group_index),
      cmocka_unit_test(a_stream_that_waits_for_another_does_not_count),
      cmocka_unit_test(inline_work_counts_while_utilization_is_sampled),
      cmocka_unit_test(inline_work_is_not_counted_otherwise),
      cmocka_unit_test(old_samples_are_discarded),
      cmocka_unit_test(a_busy_counter_measures_the_time_of_work),
      cmocka_unit_test(all_streams_of_a_device_fit_into_a_busy_counter),
      cmocka_unit_test(busy_time_is_never_negative_for_any_counter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
