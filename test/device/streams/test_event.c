/* Events on idle streams: reached when recorded, with times in order. */
#include "child.h"
#include "device/device.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static openreg_event *create(int device) {
  openreg_event *event = NULL;
  REQUIRE_OK(openreg_event_create(device, true, &event));
  REQUIRE(event != NULL);
  return event;
}

CHILD_TEST(an_event_is_done_before_it_is_recorded_and_after_on_an_idle_stream) {
  openreg_event *event = create(1);
  REQUIRE(openreg_event_device(event) == 1);
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(openreg_event_query(event));
    REQUIRE_OK(openreg_event_synchronize(event));
    REQUIRE_OK(openreg_stream_wait_event(0, 3, event));
    REQUIRE_OK(openreg_event_record(event, 7));
  }
  openreg_event_destroy(event);
}

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Lets the clock advance, so that a wrong unit shows. The exact duration does not matter. */
static void wait_until_ms(double goal) {
  while (now_ms() < goal) {
  }
}

/* 1 us of tolerance, because doubles of milliseconds since boot are not exact. */
CHILD_TEST(elapsed_time_is_that_between_the_records) {
  openreg_event *start = create(0), *end = create(0);
  double before = now_ms(), elapsed = -1;
  REQUIRE_OK(openreg_event_record(start, 0));
  double between = now_ms(), goal = between + 2;
  wait_until_ms(goal);
  REQUIRE_OK(openreg_event_record(end, 5));
  REQUIRE_OK(openreg_event_elapsed_ms(start, end, &elapsed));
  REQUIRE(elapsed >= goal - between - 1e-3 && elapsed <= now_ms() - before + 1e-3);
  REQUIRE_OK(openreg_event_elapsed_ms(end, start, &elapsed));
  REQUIRE(elapsed < 0);
  REQUIRE_OK(openreg_event_elapsed_ms(start, start, &elapsed));
  REQUIRE(elapsed == 0);
  openreg_event_destroy(start);
  openreg_event_destroy(end);
}

CHILD_TEST(recording_again_moves_the_event) {
  openreg_event *fixed = create(0), *moved = create(0);
  double first = 0, second = 0;
  REQUIRE_OK(openreg_event_record(fixed, 0));
  REQUIRE_OK(openreg_event_record(moved, 0));
  REQUIRE_OK(openreg_event_elapsed_ms(fixed, moved, &first));
  wait_until_ms(now_ms() + 1);
  REQUIRE_OK(openreg_event_record(moved, 0));
  REQUIRE_OK(openreg_event_elapsed_ms(fixed, moved, &second));
  REQUIRE(second > first);
  openreg_event_destroy(fixed);
  openreg_event_destroy(moved);
}

CHILD_TEST(time_from_or_to_an_event_never_recorded_is_refused) {
  openreg_event *recorded = create(0), *never = create(0);
  double elapsed = 123;
  REQUIRE_OK(openreg_event_record(recorded, 0));
  REQUIRE(openreg_event_elapsed_ms(never, recorded, &elapsed) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strcmp(openreg_last_error(), "openreg: the first event was never recorded") == 0);
  REQUIRE(openreg_event_elapsed_ms(recorded, never, &elapsed) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strcmp(openreg_last_error(), "openreg: the second event was never recorded") == 0);
  REQUIRE(elapsed == 123);
  openreg_event_destroy(recorded);
  openreg_event_destroy(never);
}

CHILD_TEST(time_between_devices_is_refused) {
  openreg_event *one = create(0), *other = create(1);
  double elapsed = 123;
  REQUIRE_OK(openreg_event_record(one, 0));
  REQUIRE_OK(openreg_event_record(other, 0));
  REQUIRE(openreg_event_elapsed_ms(one, other, &elapsed) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "different devices, 0 and 1") != NULL);
  REQUIRE(elapsed == 123);
  openreg_event_destroy(one);
  openreg_event_destroy(other);
}

CHILD_TEST(devices_and_streams_that_do_not_exist_are_refused) {
  openreg_event *event = NULL;
  REQUIRE(openreg_event_create(-1, true, &event) == OPENREG_INVALID_DEVICE);
  REQUIRE(openreg_event_create(2, true, &event) == OPENREG_INVALID_DEVICE);
  REQUIRE(event == NULL);
  event = create(0);
  REQUIRE(openreg_event_record(event, -1) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_event_record(event, OPENREG_STREAMS_PER_DEVICE) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_stream_wait_event(2, 0, event) == OPENREG_INVALID_DEVICE);
  REQUIRE(openreg_stream_wait_event(0, -1, event) == OPENREG_INVALID_ARGUMENT);
  openreg_event_destroy(event);
}

CHILD_TEST(null_is_no_event) {
  double elapsed;
  openreg_event *event = create(0);
  openreg_event_destroy(NULL);
  REQUIRE(openreg_event_record(NULL, 0) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_event_query(NULL) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_event_synchronize(NULL) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_stream_wait_event(0, 0, NULL) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_event_elapsed_ms(NULL, event, &elapsed) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_event_elapsed_ms(event, NULL, &elapsed) == OPENREG_INVALID_ARGUMENT);
  openreg_event_destroy(event);
}

static openreg_event *parents_event;

static void in_forked_child(void) {
  double elapsed;
  REQUIRE(openreg_event_record(parents_event, 0) == OPENREG_BAD_FORK);
  REQUIRE(openreg_event_query(parents_event) == OPENREG_BAD_FORK);
  REQUIRE(openreg_event_synchronize(parents_event) == OPENREG_BAD_FORK);
  REQUIRE(openreg_stream_wait_event(0, 0, parents_event) == OPENREG_BAD_FORK);
  REQUIRE(openreg_event_elapsed_ms(parents_event, parents_event, &elapsed) == OPENREG_BAD_FORK);
  openreg_event_destroy(parents_event);
}

CHILD_TEST(a_forked_child_can_only_destroy_events) {
  parents_event = create(0);
  REQUIRE_OK(openreg_event_record(parents_event, 0));
  REQUIRE_OK(openreg_initialize());
  child_fork_and_require(in_forked_child);
  openreg_event_destroy(parents_event);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_event_is_done_before_it_is_recorded_and_after_on_an_idle_stream),
      cmocka_unit_test(elapsed_time_is_that_between_the_records),
      cmocka_unit_test(recording_again_moves_the_event),
      cmocka_unit_test(time_from_or_to_an_event_never_recorded_is_refused),
      cmocka_unit_test(time_between_devices_is_refused),
      cmocka_unit_test(devices_and_streams_that_do_not_exist_are_refused),
      cmocka_unit_test(null_is_no_event),
      cmocka_unit_test(a_forked_child_can_only_destroy_events),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
