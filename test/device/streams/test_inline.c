/* Inline work: runs in the order of its stream, and never concurrently with other work of the
 * stream.
 */
#include "device/streams/stream.h"
#include "gate.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

CHILD_TEST(inline_work_begins_on_an_idle_stream_only) {
  gate gate = GATE_CLOSED;
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 2));
  REQUIRE(!openreg_stream_is_idle(0, 2));
  openreg_stream_end_inline(0, 2);
  REQUIRE(openreg_stream_is_idle(0, 2));
  gate_close_stream(&gate, 0, 2);
  REQUIRE(openreg_stream_try_begin_inline(0, 2) == OPENREG_NOT_READY);
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 3)); /* work of another stream does not matter */
  openreg_stream_end_inline(0, 3);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(0, 2));
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 2));
  openreg_stream_end_inline(0, 2);
}

CHILD_TEST(inline_work_begins_on_the_current_stream_of_the_thread) {
  gate gate = GATE_CLOSED;
  int stream = -1;
  REQUIRE_OK(openreg_stream_set_current(1, 5));
  REQUIRE_OK(openreg_stream_try_begin_current(1, &stream));
  REQUIRE(stream == 5);
  REQUIRE(openreg_stream_query(1, 5) == OPENREG_NOT_READY);
  openreg_stream_end_inline(1, 5);
  REQUIRE_OK(openreg_stream_query(1, 5));
  REQUIRE_OK(
      openreg_stream_try_begin_current(0, &stream)); /* each device has its own current stream */
  REQUIRE(stream == OPENREG_STREAM_DEFAULT);
  openreg_stream_end_inline(0, OPENREG_STREAM_DEFAULT);
  gate_close_stream(&gate, 1, 5);
  stream = -1;
  REQUIRE(openreg_stream_try_begin_current(1, &stream) == OPENREG_NOT_READY);
  REQUIRE(stream == 5);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(1, 5));
  REQUIRE(openreg_stream_try_begin_current(64, &stream) == OPENREG_INVALID_DEVICE);
}

static void *launch_and_synchronize(void *counter) {
  REQUIRE(openreg_stream_try_begin_inline(0, 0) == OPENREG_NOT_READY);
  REQUIRE_OK(openreg_stream_launch(0, 0, count_up, counter));
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  return NULL;
}

/* First with a worker that is not started yet, then with a sleeping one. */
CHILD_TEST(work_submitted_meanwhile_runs_after_inline_work) {
  struct stream *stream = &openreg_streams[0][0];
  for (int i = 0; i < 100; i++) {
    _Atomic int counter = 0;
    pthread_t other;
    uint64_t point = stream->timeline.submitted;
    REQUIRE_OK(openreg_stream_try_begin_inline(0, 0));
    REQUIRE(pthread_create(&other, NULL, launch_and_synchronize, &counter) == 0);
    while (atomic_load(&stream->timeline.submitted) != point + 2 ||
           atomic_load(&stream->queue.asleep) == 0)
      sched_yield();
    REQUIRE(counter == 0);
    openreg_stream_end_inline(0, 0);
    REQUIRE(pthread_join(other, NULL) == 0);
    REQUIRE(counter == 1);
    while (atomic_load(&stream->queue.asleep) == 0)
      sched_yield();
  }
}

CHILD_TEST(inline_work_nests_and_ends_with_the_outermost) {
  REQUIRE_OK(openreg_stream_try_begin_inline(1, 0));
  REQUIRE_OK(openreg_stream_try_begin_inline(1, 0));
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 0)); /* on several streams at once */
  openreg_stream_end_inline(1, 0);
  REQUIRE(openreg_stream_query(1, 0) == OPENREG_NOT_READY);
  openreg_stream_end_inline(0, 0);
  openreg_stream_end_inline(1, 0);
  REQUIRE_OK(openreg_stream_query(1, 0));
  REQUIRE_OK(openreg_stream_query(0, 0));
}

CHILD_TEST(inside_inline_work_its_stream_accepts_no_work) {
  openreg_event *event, *timing;
  double elapsed;
  REQUIRE_OK(openreg_event_create(0, false, &event));
  REQUIRE_OK(openreg_event_create(0, true, &timing));
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 0));
  REQUIRE(openreg_stream_launch(0, 0, count_up, NULL) == OPENREG_NOT_PERMITTED);
  REQUIRE(strcmp(openreg_last_error(), "openreg: cannot submit work to stream 0 of device 0 from "
                                       "inside inline work on that stream") == 0);
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  REQUIRE_OK(openreg_device_synchronize(0));
  REQUIRE_OK(openreg_event_record(event, 0));
  REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
  REQUIRE(openreg_event_synchronize(event) == OPENREG_NOT_PERMITTED);
  REQUIRE_OK(openreg_event_record(timing, 0));
  REQUIRE(openreg_event_elapsed_ms(timing, timing, &elapsed) == OPENREG_NOT_READY);
  openreg_stream_end_inline(0, 0);
  REQUIRE_OK(openreg_event_synchronize(event));
  REQUIRE_OK(openreg_event_elapsed_ms(timing, timing, &elapsed));
  openreg_event_destroy(event);
  openreg_event_destroy(timing);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { THREADS = 4, BEGINNINGS = 5000 };
#else
enum { THREADS = 4, BEGINNINGS = 100000 };
#endif

static int not_atomic; /* incremented by all work of the stream */

static openreg_status count_queued(void *unused) {
  (void)unused;
  not_atomic++;
  return OPENREG_OK;
}

static void *begin_or_launch(void *unused) {
  for (int i = 0; i < BEGINNINGS; i++) {
    openreg_status status = openreg_stream_try_begin_inline(0, 0);
    if (status == OPENREG_OK) {
      not_atomic++;
      openreg_stream_end_inline(0, 0);
    } else {
      REQUIRE(status == OPENREG_NOT_READY);
      if (i % 100 == 0)
        REQUIRE_OK(openreg_stream_launch(0, 0, count_queued, NULL));
      else
        i--; /* try again, so that the threads contend */
    }
  }
  return unused;
}

CHILD_TEST(only_one_thread_at_a_time_owns_the_stream) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    REQUIRE(pthread_create(&threads[i], NULL, begin_or_launch, NULL) == 0);
  for (int i = 0; i < THREADS; i++)
    REQUIRE(pthread_join(threads[i], NULL) == 0);
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  REQUIRE(not_atomic == THREADS * BEGINNINGS);
}

static void *synchronize_stream(void *argument) {
  (void)argument;
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  return NULL;
}

CHILD_TEST(the_end_of_inline_work_wakes_waiters) {
  for (int i = 0; i < 100; i++) {
    pthread_t other;
    REQUIRE_OK(openreg_stream_try_begin_inline(0, 0));
    REQUIRE(pthread_create(&other, NULL, synchronize_stream, NULL) == 0);
    while (atomic_load(&openreg_streams[0][0].timeline.wake_at) == 0)
      sched_yield();
    openreg_stream_end_inline(0, 0);
    REQUIRE(pthread_join(other, NULL) == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(inline_work_begins_on_an_idle_stream_only),
      cmocka_unit_test(inline_work_begins_on_the_current_stream_of_the_thread),
      cmocka_unit_test(work_submitted_meanwhile_runs_after_inline_work),
      cmocka_unit_test(inline_work_nests_and_ends_with_the_outermost),
      cmocka_unit_test(inside_inline_work_its_stream_accepts_no_work),
      cmocka_unit_test(only_one_thread_at_a_time_owns_the_stream),
      cmocka_unit_test(the_end_of_inline_work_wakes_waiters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
