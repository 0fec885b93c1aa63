/* Exit of a process whose streams have work, and forks of such a process. */
#include "device/streams/stream.h"
#include "gate.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static openreg_status run_until_shut_down(void *unused) {
  (void)unused;
  while (!openreg_streams_are_shut_down())
    sched_yield();
  return OPENREG_OK;
}

static _Atomic bool is_running, has_returned;

static openreg_status run_on_after_shut_down(void *unused) {
  is_running = true;
  run_until_shut_down(unused);
  for (int i = 0; i < 1000; i++)
    sched_yield();
  has_returned = true;
  return OPENREG_OK;
}

CHILD_TEST(shutting_down_waits_for_running_work) {
  REQUIRE_OK(openreg_stream_launch(0, 0, run_on_after_shut_down, NULL));
  while (!is_running)
    sched_yield();
  openreg_streams_shut_down();
  REQUIRE(has_returned);
}

static openreg_status must_not_run(void *unused) {
  (void)unused;
  child_give_up(__FILE__, __LINE__, "work that was dropped is not done");
}

CHILD_TEST(exit_drops_queued_work_and_waits_for_running_work) {
  openreg_event *event;
  atexit(openreg_streams_shut_down);
  REQUIRE_OK(openreg_event_create(0, false, &event));
  REQUIRE_OK(openreg_stream_launch(0, 0, run_until_shut_down, NULL));
  REQUIRE_OK(openreg_event_record(event, 0));
  for (int stream = 0; stream < 3; stream++) {
    REQUIRE_OK(openreg_stream_wait_event(1, stream, event));
    for (int i = 0; i < 100; i++)
      REQUIRE_OK(openreg_stream_launch(1, stream, must_not_run, NULL));
  }
  for (int i = 0; i < 100; i++)
    REQUIRE_OK(openreg_stream_launch(0, 0, must_not_run, NULL));
  openreg_event_destroy(event);
}

CHILD_TEST(exit_without_shutting_down_neither_hangs_nor_crashes) {
  static gate never = GATE_CLOSED;
  gate_close_stream(&never, 0, 0);
  REQUIRE_OK(openreg_stream_launch(0, 0, must_not_run, NULL));
}

CHILD_TEST(after_shutting_down_work_is_done_at_once_by_the_caller) {
  _Atomic int counter = 0;
  double milliseconds = -1;
  openreg_event *event;
  REQUIRE_OK(openreg_event_create(0, true, &event));
  REQUIRE_OK(openreg_stream_launch(0, 0, run_until_shut_down, NULL));
  REQUIRE_OK(openreg_event_record(event, 0));
  openreg_streams_shut_down();
  REQUIRE_OK(openreg_stream_query(0, 0)); /* dropped work counts as finished */
  REQUIRE_OK(openreg_event_query(event));
  REQUIRE_OK(openreg_event_elapsed_ms(event, event, &milliseconds));
  REQUIRE_OK(openreg_stream_launch(0, 0, count_up, &counter));
  REQUIRE(counter == 1);
  openreg_streams_shut_down(); /* a second time */
  REQUIRE_OK(openreg_device_synchronize(0));
  openreg_event_destroy(event);
}

static _Atomic int done, launched;
static _Atomic bool returned;

static openreg_status note_if_late(void *producer) {
  if (returned && !pthread_equal(*(pthread_t *)producer, pthread_self()))
    must_not_run(NULL);
  return count_up(&done);
}

static void *produce(void *unused) {
  (void)unused;
  pthread_t thread_tag = pthread_self();
  for (int i = 0; i < 20000; i++) {
    REQUIRE_OK(openreg_stream_launch(0, 0, note_if_late, &thread_tag));
    atomic_fetch_add(&launched, 1);
  }
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  return NULL;
}

CHILD_TEST(producers_and_shutting_down_at_the_same_time) {
  pthread_t threads[3];
  for (int i = 0; i < 3; i++)
    REQUIRE(pthread_create(&threads[i], NULL, produce, NULL) == 0);
  while (launched < 1000)
    sched_yield();
  openreg_streams_shut_down();
  returned = true;
  for (int i = 0; i < 3; i++)
    REQUIRE(pthread_join(threads[i], NULL) == 0);
  REQUIRE_OK(openreg_stream_query(0, 0));
}

static openreg_status shut_down_here(void *unused) {
  (void)unused;
  openreg_streams_shut_down();
  return OPENREG_OK;
}

CHILD_TEST(shutting_down_on_a_worker_does_not_wait_for_itself) {
  REQUIRE_OK(openreg_stream_launch(0, 0, shut_down_here, NULL));
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  REQUIRE(openreg_streams_are_shut_down());
}

static void forked_body(void) {
  _Atomic int counter = 0;
  openreg_streams_shut_down();
  REQUIRE(openreg_stream_launch(0, 0, count_up, &counter) == OPENREG_BAD_FORK);
  REQUIRE(openreg_stream_try_begin_inline(0, 1) == OPENREG_BAD_FORK);
  REQUIRE(openreg_stream_query(0, 0) == OPENREG_BAD_FORK);
  REQUIRE(openreg_stream_synchronize(0, 0) == OPENREG_BAD_FORK);
  REQUIRE(openreg_stream_synchronize_for(0, 0, 0) == OPENREG_BAD_FORK);
  REQUIRE(openreg_device_synchronize(0) == OPENREG_BAD_FORK);
  REQUIRE(openreg_device_synchronize_for(0, 0) == OPENREG_BAD_FORK);
  REQUIRE(counter == 0);
}

CHILD_TEST(a_child_forked_while_work_is_pending_does_not_hang) {
  gate gate = GATE_CLOSED;
  _Atomic int counter = 0;
  gate_close_stream(&gate, 0, 0);
  REQUIRE_OK(openreg_stream_launch(0, 0, count_up, &counter));
  child_fork_and_require(forked_body);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(0, 0)); /* and the parent continues */
  REQUIRE(counter == 1);
}

static void exit_in_fork(void) {
  exit(0); /* through the handlers that it inherited */
}

CHILD_TEST(a_forked_child_exits_while_its_parent_has_work) {
  gate gate = GATE_CLOSED;
  atexit(openreg_streams_shut_down);
  gate_close_stream(&gate, 0, 0);
  child_fork_and_require(exit_in_fork);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exit_drops_queued_work_and_waits_for_running_work),
      cmocka_unit_test(exit_without_shutting_down_neither_hangs_nor_crashes),
      cmocka_unit_test(shutting_down_waits_for_running_work),
      cmocka_unit_test(after_shutting_down_work_is_done_at_once_by_the_caller),
      cmocka_unit_test(producers_and_shutting_down_at_the_same_time),
      cmocka_unit_test(shutting_down_on_a_worker_does_not_wait_for_itself),
      cmocka_unit_test(a_child_forked_while_work_is_pending_does_not_hang),
      cmocka_unit_test(a_forked_child_exits_while_its_parent_has_work),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
