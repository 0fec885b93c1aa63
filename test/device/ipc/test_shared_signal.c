/* Points that other processes wait for: their order, and numbers that wrap around. */
#include "base/futex.h"
#include "child.h"
#include "device/ipc/shared_signal.h"

#include <pthread.h>
#include <sched.h>

static struct openreg_signal signal_at(struct openreg_shared_signal *shared, uint32_t number) {
  shared->recorded = shared->reached = number;
  return (struct openreg_signal){.shared = shared, .issued = number};
}

static uint32_t begin(struct openreg_signal *signal) {
  uint32_t point = 0;
  assert_int_equal(openreg_signal_begin(signal, &point), OPENREG_OK);
  return point;
}

static void a_signal_that_was_never_recorded_is_reached(void **state) {
  (void)state;
  struct openreg_shared_signal shared = {0};
  assert_true(openreg_shared_signal_reached(&shared, shared.recorded));
  assert_false(openreg_shared_signal_reached(&shared, 1));
}

static void points_are_reached_when_all_before_them_are(void **state) {
  (void)state;
  struct openreg_shared_signal shared;
  struct openreg_signal signal = signal_at(&shared, 0);
  uint32_t one = begin(&signal), two = begin(&signal), three = begin(&signal);
  openreg_signal_end(&signal, two);
  assert_false(openreg_shared_signal_reached(&shared, one));
  assert_false(openreg_shared_signal_reached(&shared, two));
  uint32_t four = openreg_signal_mark(&signal);
  assert_false(openreg_shared_signal_reached(&shared, four));
  openreg_signal_end(&signal, one);
  assert_true(openreg_shared_signal_reached(&shared, two));
  assert_false(openreg_shared_signal_reached(&shared, three));
  openreg_signal_end(&signal, three);
  assert_true(openreg_shared_signal_reached(&shared, four));
  openreg_signal_end(&signal, three); /* ending it again does nothing */
  assert_true(openreg_shared_signal_reached(&shared, begin(&signal) - 1));
  openreg_signal_finish_all(&signal);
}

static void numbers_wrap_around(void **state) {
  (void)state;
  struct openreg_shared_signal shared;
  struct openreg_signal signal = signal_at(&shared, UINT32_MAX - 1);
  uint32_t before = begin(&signal), after = begin(&signal);
  assert_int_equal(after, 0);
  openreg_signal_publish(&signal, before);
  openreg_signal_publish(&signal, after);
  assert_int_equal(shared.recorded, after);
  openreg_signal_publish(&signal, before);
  assert_int_equal(shared.recorded, after);
  assert_false(openreg_shared_signal_reached(&shared, before));
  openreg_signal_end(&signal, before);
  assert_true(openreg_shared_signal_reached(&shared, before));
  assert_false(openreg_shared_signal_reached(&shared, after));
  openreg_signal_end(&signal, after);
  assert_true(openreg_shared_signal_reached(&shared, after));
}

static void finishing_all_points_leaves_none_pending(void **state) {
  (void)state;
  struct openreg_shared_signal shared;
  struct openreg_signal signal = signal_at(&shared, 5);
  uint32_t one = begin(&signal), two = begin(&signal);
  openreg_signal_finish_all(&signal);
  assert_true(openreg_shared_signal_reached(&shared, two));
  assert_int_equal(shared.recorded, two);
  openreg_signal_end(&signal, one); /* does nothing */
  uint32_t three = begin(&signal);
  assert_false(openreg_shared_signal_reached(&shared, three));
  openreg_signal_finish_all(&signal);
}

static void a_wait_ends_at_its_deadline(void **state) {
  (void)state;
  struct openreg_shared_signal shared;
  struct openreg_signal signal = signal_at(&shared, 0);
  uint32_t point = begin(&signal);
  assert_false(openreg_shared_signal_wait(&shared, point, openreg_now_ns()));
  assert_false(openreg_shared_signal_wait(&shared, point, openreg_deadline_ns(1000000)));
  openreg_signal_end(&signal, point);
  assert_true(openreg_shared_signal_wait(&shared, point, openreg_now_ns()));
}

enum { POINTS = 20000, WAITERS = 3 };

static struct openreg_shared_signal raced;

static void *wait_for_all(void *unused) {
  for (uint32_t point = 1; point <= POINTS; point++)
    if (!openreg_shared_signal_wait(&raced, point, OPENREG_NEVER))
      return unused;
  return &raced;
}

static void no_wake_up_is_lost(void **state) {
  (void)state;
  pthread_t waiters[WAITERS];
  struct openreg_signal signal = signal_at(&raced, 0);
  for (int i = 0; i < WAITERS; i++)
    assert_int_equal(pthread_create(&waiters[i], NULL, wait_for_all, NULL), 0);
  for (int i = 0; i < POINTS; i++) {
    openreg_signal_end(&signal, begin(&signal));
    if (i % 64 == 0)
      sched_yield();
  }
  for (int i = 0; i < WAITERS; i++) {
    void *result;
    assert_int_equal(pthread_join(waiters[i], &result), 0);
    assert_ptr_equal(result, &raced);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_signal_that_was_never_recorded_is_reached),
      cmocka_unit_test(points_are_reached_when_all_before_them_are),
      cmocka_unit_test(numbers_wrap_around),
      cmocka_unit_test(finishing_all_points_leaves_none_pending),
      cmocka_unit_test(a_wait_ends_at_its_deadline),
      cmocka_unit_test(no_wake_up_is_lost),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
