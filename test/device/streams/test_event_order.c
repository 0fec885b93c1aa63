/* Events on busy streams: when they are reached, and what waits for them. */
#include "device/streams/stream.h"
#include "gate.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static openreg_event *create(int device, bool enable_timing) {
  openreg_event *event = NULL;
  REQUIRE_OK(openreg_event_create(device, enable_timing, &event));
  return event;
}

static void reach_with_the_work_before_it(bool enable_timing) {
  gate first = GATE_CLOSED, second = GATE_CLOSED;
  openreg_event *event = create(0, enable_timing);
  gate_close_stream(&first, 0, 1);
  REQUIRE_OK(openreg_event_record(event, 1));
  REQUIRE_OK(openreg_stream_launch(0, 1, gate_pass, &second));
  REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
  REQUIRE(openreg_event_synchronize_for(event, 1000) == OPENREG_NOT_READY);
  gate_open(&first);
  REQUIRE_OK(openreg_event_synchronize(event));
  REQUIRE_OK(openreg_event_query(event));
  REQUIRE(openreg_stream_query(0, 1) ==
          OPENREG_NOT_READY); /* work submitted later does not matter */
  gate_open(&second);
  REQUIRE_OK(openreg_stream_synchronize(0, 1));
  openreg_event_destroy(event);
}

CHILD_TEST(an_event_is_reached_with_the_work_before_it) {
  reach_with_the_work_before_it(false);
  reach_with_the_work_before_it(true);
}

static void wait_on_another_stream(bool enable_timing, int device, int stream) {
  gate gate = GATE_CLOSED;
  _Atomic int counter = 0;
  openreg_event *event = create(0, enable_timing);
  gate_close_stream(&gate, 0, 1);
  REQUIRE_OK(openreg_event_record(event, 1));
  REQUIRE_OK(openreg_stream_wait_event(device, stream, event));
  openreg_event_destroy(event); /* the wait is for a point, not for the event */
  REQUIRE_OK(openreg_stream_launch(device, stream, count_up, &counter));
  while (atomic_load(&openreg_streams[0][1].timeline.wake_at) ==
         0) /* the worker has begun to wait */
    sched_yield();
  REQUIRE(counter == 0);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(device, stream));
  REQUIRE(counter == 1);
}

CHILD_TEST(a_stream_waits_for_an_event_of_another) {
  wait_on_another_stream(false, 0, 2);
  wait_on_another_stream(true, 0, 2);
}

CHILD_TEST(a_stream_waits_for_an_event_of_another_device) {
  wait_on_another_stream(false, 1, 1);
  wait_on_another_stream(true, 1, 40);
}

CHILD_TEST(waiting_is_free_if_reached_or_on_the_same_stream) {
  gate gate = GATE_CLOSED;
  openreg_event *reached = create(0, false), *own = create(1, false);
  REQUIRE_OK(openreg_event_record(reached, 1));
  gate_close_stream(&gate, 1, 6);
  REQUIRE_OK(openreg_event_record(own, 6));
  REQUIRE_OK(openreg_stream_wait_event(1, 6, own));
  REQUIRE_OK(openreg_stream_wait_event(1, 6, reached));
  REQUIRE(atomic_load(&openreg_streams[1][6].timeline.submitted) == 1);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(1, 6));
  openreg_event_destroy(reached);
  openreg_event_destroy(own);
}

/* The event is recorded again behind a second gate and not reached. Work that waited for the first
 * recording continues. */
CHILD_TEST(recording_again_does_not_change_earlier_waits) {
  gate first = GATE_CLOSED, second = GATE_CLOSED;
  _Atomic int counter = 0;
  openreg_event *event = create(0, false);
  gate_close_stream(&first, 0, 1);
  gate_close_stream(&second, 0, 2);
  REQUIRE_OK(openreg_event_record(event, 1));
  REQUIRE_OK(openreg_stream_wait_event(0, 3, event));
  REQUIRE_OK(openreg_stream_launch(0, 3, count_up, &counter));
  REQUIRE_OK(openreg_event_record(event, 2));
  gate_open(&first);
  REQUIRE_OK(openreg_stream_synchronize(0, 3));
  REQUIRE(counter == 1);
  REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
  gate_open(&second);
  REQUIRE_OK(openreg_event_synchronize(event));
  openreg_event_destroy(event);
}

CHILD_TEST(the_timestamp_is_taken_when_the_stream_reaches_the_event) {
  gate gate = GATE_CLOSED;
  double to_end, to_here;
  openreg_event *start = create(0, true), *end = create(0, true), *here = create(0, true);
  REQUIRE_OK(openreg_event_record(start, 1));
  gate_close_stream(&gate, 0, 1);
  REQUIRE_OK(openreg_event_record(end, 1));
  REQUIRE(openreg_event_elapsed_ms(start, end, &to_end) == OPENREG_NOT_READY);
  REQUIRE_OK(openreg_event_record(here, 2)); /* an idle stream: recorded now, after `end` */
  gate_open(&gate);
  REQUIRE_OK(openreg_event_synchronize(end));
  REQUIRE_OK(openreg_event_elapsed_ms(start, end, &to_end));
  REQUIRE_OK(openreg_event_elapsed_ms(start, here, &to_here));
  REQUIRE(to_here >= 0 && to_end >= to_here);
  openreg_event_destroy(start);
  openreg_event_destroy(end);
  openreg_event_destroy(here);
}

/* The newer recording is reached first. The timestamp of the older one must not replace the newer
 * one's. */
CHILD_TEST(an_older_recording_never_replaces_the_timestamp_of_a_newer_one) {
  gate gate = GATE_CLOSED;
  double elapsed, again;
  openreg_event *start = create(0, true), *event = create(0, true);
  REQUIRE_OK(openreg_event_record(start, 0));
  gate_close_stream(&gate, 0, 1);
  REQUIRE_OK(openreg_event_record(event, 1));
  REQUIRE_OK(openreg_event_record(event, 2));
  REQUIRE_OK(openreg_event_elapsed_ms(start, event, &elapsed));
  gate_open(&gate);
  REQUIRE_OK(openreg_device_synchronize(0));
  REQUIRE_OK(openreg_event_elapsed_ms(start, event, &again));
  REQUIRE(again == elapsed);
  openreg_event_destroy(start);
  openreg_event_destroy(event);
}

CHILD_TEST(events_are_destroyed_while_their_timestamps_are_queued) {
  gate gate = GATE_CLOSED;
  gate_close_stream(&gate, 0, 1);
  for (int i = 0; i < 100; i++) {
    openreg_event *event = create(0, true);
    REQUIRE_OK(openreg_event_record(event, 1));
    REQUIRE_OK(openreg_event_record(event, 1));
    openreg_event_destroy(event);
  }
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(0, 1)); /* the address sanitizer checks this */
}

static openreg_event *shared;
static _Atomic bool stop;

static void *record_and_ask(void *stream) {
  double elapsed;
  while (!stop) {
    REQUIRE_OK(openreg_event_record(shared, (int)(intptr_t)stream));
    REQUIRE_OK(openreg_event_synchronize(shared));
    openreg_status status = openreg_event_elapsed_ms(shared, shared, &elapsed);
    REQUIRE(status == OPENREG_OK || status == OPENREG_NOT_READY);
  }
  return NULL;
}

CHILD_TEST(threads_may_share_an_event) {
  pthread_t threads[2];
  _Atomic int counter = 0;
  shared = create(0, true);
  for (intptr_t i = 0; i < 2; i++)
    REQUIRE(pthread_create(&threads[i], NULL, record_and_ask, (void *)(i + 1)) == 0);
  for (int i = 0; i < 3000; i++) {
    REQUIRE_OK(openreg_stream_launch(0, 1 + i % 2, count_up, &counter));
    REQUIRE_OK(openreg_stream_wait_event(0, 1 + i % 3, shared));
  }
  stop = true;
  for (int i = 0; i < 2; i++)
    REQUIRE(pthread_join(threads[i], NULL) == 0);
  REQUIRE_OK(openreg_device_synchronize(0));
  REQUIRE(counter == 3000);
  openreg_event_destroy(shared);
}

CHILD_TEST(an_event_without_timing_has_no_time) {
  double elapsed = 123;
  openreg_event *timed = create(0, true), *plain = create(0, false);
  REQUIRE_OK(openreg_event_record(timed, 0));
  REQUIRE_OK(openreg_event_record(plain, 0));
  REQUIRE(openreg_event_elapsed_ms(timed, plain, &elapsed) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strcmp(openreg_last_error(), "openreg: the second event was created without timing") ==
          0);
  REQUIRE(openreg_event_elapsed_ms(plain, timed, &elapsed) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(elapsed == 123);
  openreg_event_destroy(timed);
  openreg_event_destroy(plain);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_event_is_reached_with_the_work_before_it),
      cmocka_unit_test(a_stream_waits_for_an_event_of_another),
      cmocka_unit_test(a_stream_waits_for_an_event_of_another_device),
      cmocka_unit_test(waiting_is_free_if_reached_or_on_the_same_stream),
      cmocka_unit_test(recording_again_does_not_change_earlier_waits),
      cmocka_unit_test(the_timestamp_is_taken_when_the_stream_reaches_the_event),
      cmocka_unit_test(an_older_recording_never_replaces_the_timestamp_of_a_newer_one),
      cmocka_unit_test(events_are_destroyed_while_their_timestamps_are_queued),
      cmocka_unit_test(threads_may_share_an_event),
      cmocka_unit_test(an_event_without_timing_has_no_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
