/* Launching: order, completion, waiting, a full queue, and blocking mode. */
#include "device/streams/stream.h"
#include "gate.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MS = 1000000 };

/* Counts threads by name, because a sanitizer may have its own. A worker that did work has its
 * name. */
static int count_workers(void) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  REQUIRE(tasks != NULL);
  for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
    char path[300], name[16] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    FILE *file = fopen(path, "r");
    if (file == NULL) /* "." and ".." */
      continue;
    /* A joined thread may be listed a moment longer, without a name. */
    bool is_there = fgets(name, sizeof name, file) != NULL;
    fclose(file);
    count += is_there && strncmp(name, "openreg ", 8) == 0;
  }
  closedir(tasks);
  return count;
}

CHILD_TEST(only_queued_work_starts_a_thread) {
  openreg_event *event;
  int stream;
  _Atomic int counter = 0;
  REQUIRE_OK(openreg_event_create(0, true, &event));
  for (int i = 0; i < 2 * OPENREG_STREAMS_PER_DEVICE; i++) {
    REQUIRE_OK(openreg_stream_from_pool(0, i % 2 ? -1 : 0, &stream));
    REQUIRE_OK(openreg_event_record(event, stream));
    REQUIRE_OK(openreg_stream_wait_event(0, 0, event));
    REQUIRE_OK(openreg_stream_try_begin_inline(0, stream));
    openreg_stream_end_inline(0, stream);
    REQUIRE_OK(openreg_stream_synchronize(0, stream));
  }
  REQUIRE(count_workers() == 0);
  for (int i = 0; i < 10; i++)
    REQUIRE_OK(openreg_stream_launch(0, 3, count_up, &counter));
  REQUIRE_OK(openreg_stream_synchronize(0, 3));
  REQUIRE(counter == 10);
  REQUIRE(count_workers() == 1);
  openreg_event_destroy(event);
}

enum { MANY = 3 * OPENREG_STREAM_QUEUE_LENGTH };

static int seen[MANY], seen_count;

static openreg_status append(void *number) {
  seen[seen_count++] = (int)(intptr_t)number;
  return OPENREG_OK;
}

CHILD_TEST(work_is_done_in_the_order_of_the_calls) {
  for (intptr_t i = 0; i < MANY; i++)
    REQUIRE_OK(openreg_stream_launch(0, 0, append, (void *)i));
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  REQUIRE(seen_count == MANY);
  for (int i = 0; i < MANY; i++)
    REQUIRE(seen[i] == i);
}

CHILD_TEST(finished_means_that_the_function_has_returned) {
  gate gate = GATE_CLOSED;
  gate_close_stream(&gate, 1, 4);
  REQUIRE(openreg_stream_query(1, 4) == OPENREG_NOT_READY);
  REQUIRE(!openreg_stream_is_idle(1, 4));
  REQUIRE(openreg_stream_synchronize_for(1, 4, 0) == OPENREG_NOT_READY);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(1, 4));
  REQUIRE_OK(openreg_stream_query(1, 4));
  REQUIRE(openreg_stream_is_idle(1, 4));
}

CHILD_TEST(not_ready_sets_no_message) {
  gate gate = GATE_CLOSED;
  openreg_fail(OPENREG_SYSTEM, "kept");
  gate_close_stream(&gate, 0, 0);
  REQUIRE(openreg_stream_query(0, 0) == OPENREG_NOT_READY);
  REQUIRE(openreg_stream_synchronize_for(0, 0, MS) == OPENREG_NOT_READY);
  REQUIRE(openreg_device_synchronize_for(0, MS) == OPENREG_NOT_READY);
  REQUIRE(openreg_stream_try_begin_inline(0, 0) == OPENREG_NOT_READY);
  REQUIRE(strcmp(openreg_last_error(), "kept") == 0);
  gate_open(&gate);
  REQUIRE_OK(openreg_device_synchronize_for(0, UINT64_MAX));
}

CHILD_TEST(streams_do_not_wait_for_each_other) {
  gate gates[4] = {GATE_CLOSED, GATE_CLOSED, GATE_CLOSED, GATE_CLOSED};
  for (int i = 0; i < 4; i++) /* returns only when the function is running */
    gate_close_stream(&gates[i], i % 2, i / 2 * 40);
  for (int i = 0; i < 4; i++) {
    REQUIRE(openreg_stream_query(i % 2, i / 2 * 40) == OPENREG_NOT_READY);
    gate_open(&gates[i]);
    REQUIRE_OK(openreg_stream_synchronize(i % 2, i / 2 * 40));
  }
}

CHILD_TEST(device_synchronize_waits_only_for_the_devices_streams) {
  gate mine = GATE_CLOSED, others = GATE_CLOSED;
  gate_close_stream(&mine, 0, 64);
  gate_close_stream(&others, 1, 0);
  REQUIRE(openreg_device_synchronize_for(0, MS) == OPENREG_NOT_READY);
  gate_open(&mine);
  REQUIRE_OK(openreg_device_synchronize(0));
  REQUIRE(openreg_device_synchronize_for(1, 0) == OPENREG_NOT_READY);
  gate_open(&others);
  REQUIRE_OK(openreg_device_synchronize(1));
}

static void *launch_too_many(void *counter) {
  for (int i = 0; i < MANY; i++)
    REQUIRE_OK(openreg_stream_launch(0, 0, count_up, counter));
  return NULL;
}

CHILD_TEST(a_full_queue_holds_the_producer_back) {
  gate gate = GATE_CLOSED;
  _Atomic int counter = 0;
  pthread_t producer;
  const struct timeline *timeline = &openreg_streams[0][0].timeline;
  gate_close_stream(&gate, 0, 0);
  REQUIRE(pthread_create(&producer, NULL, launch_too_many, &counter) == 0);
  while (atomic_load(&timeline->wake_at) == 0) /* it has begun to wait for space */
    sched_yield();
  /* The gate, a full ring, and the submission that finds no space. */
  REQUIRE(atomic_load(&timeline->submitted) == OPENREG_STREAM_QUEUE_LENGTH + 1);
  REQUIRE(atomic_load(&timeline->finished) == 0);
  REQUIRE(counter == 0);
  gate_open(&gate);
  REQUIRE(pthread_join(producer, NULL) == 0);
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  REQUIRE(counter == MANY);
}

CHILD_TEST(waiting_for_space_in_a_queue_has_a_timeout) {
  gate gate = GATE_CLOSED;
  _Atomic int counter = 0;
  gate_close_stream(&gate, 0, 0);
  for (int i = 1; i < OPENREG_STREAM_QUEUE_LENGTH; i++) { /* the gate occupies a slot too */
    REQUIRE_OK(openreg_stream_await_room_for(0, 0, 0));
    REQUIRE_OK(openreg_stream_launch(0, 0, count_up, &counter));
  }
  REQUIRE(openreg_stream_await_room_for(0, 0, 0) == OPENREG_NOT_READY);
  REQUIRE(openreg_stream_await_room_for(0, 0, MS) == OPENREG_NOT_READY);
  REQUIRE_OK(openreg_stream_await_room_for(0, 1, 0)); /* another stream's queue does not matter */
  REQUIRE(openreg_stream_await_room_for(0, -1, 0) == OPENREG_INVALID_ARGUMENT);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_await_room_for(0, 0, OPENREG_NEVER));
  REQUIRE_OK(openreg_stream_launch(0, 0, count_up, &counter));
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  REQUIRE(counter == OPENREG_STREAM_QUEUE_LENGTH);
}

/* Puts the worker to sleep before each launch, and the waiter before each end. */
static openreg_status return_when_waited_for(void *stream) {
  while (atomic_load(&((struct stream *)stream)->timeline.wake_at) == 0)
    sched_yield();
  return OPENREG_OK;
}

CHILD_TEST(sleepers_are_woken_each_time) {
  struct stream *stream = &openreg_streams[0][7];
  _Atomic int counter = 0;
  for (int i = 0; i < 3000; i++) {
    REQUIRE_OK(openreg_stream_launch(0, 7, return_when_waited_for, stream));
    REQUIRE_OK(openreg_stream_synchronize(0, 7));
    while (atomic_load(&stream->queue.asleep) == 0)
      sched_yield();
  }
  for (int i = 0; i < 30000; i++) { /* at any moment */
    REQUIRE_OK(openreg_stream_launch(0, 7, count_up, &counter));
    if (i % 3 == 0)
      REQUIRE_OK(openreg_stream_synchronize(0, 7));
  }
  REQUIRE_OK(openreg_stream_synchronize(0, 7));
  REQUIRE(counter == 30000);
}

static openreg_status use_streams(void *argument) {
  openreg_event *const *events = argument;
  REQUIRE(openreg_stream_launch(0, 1, count_up, NULL) == OPENREG_NOT_PERMITTED);
  REQUIRE(
      strcmp(openreg_last_error(),
             "openreg: cannot submit work to a stream from inside work that runs on a stream") ==
      0);
  REQUIRE(openreg_stream_synchronize(0, 1) == OPENREG_NOT_PERMITTED);
  REQUIRE(openreg_device_synchronize(0) == OPENREG_NOT_PERMITTED);
  REQUIRE(openreg_event_record(events[0], 1) == OPENREG_NOT_PERMITTED);
  REQUIRE_OK(openreg_stream_synchronize(0, 2)); /* nothing to wait for */
  return OPENREG_OK;
}

static openreg_status use_own_stream(void *argument) {
  openreg_event *const *events = argument;
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 0));
  openreg_stream_end_inline(0, 0);
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(openreg_event_record(events[i], 0));
    REQUIRE(openreg_event_query(events[i]) == OPENREG_NOT_READY);
  }
  return OPENREG_OK;
}

CHILD_TEST(a_function_on_a_worker_may_use_its_own_stream_but_no_other) {
  gate gate = GATE_CLOSED;
  double elapsed;
  openreg_event *events[2];
  for (int i = 0; i < 2; i++)
    REQUIRE_OK(openreg_event_create(0, true, &events[i]));
  gate_close_stream(&gate, 0, 1);
  REQUIRE_OK(openreg_stream_launch(0, 0, use_streams, events));
  REQUIRE_OK(openreg_stream_launch(0, 0, use_own_stream, events));
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  REQUIRE_OK(openreg_event_elapsed_ms(events[0], events[1], &elapsed));
  gate_open(&gate);
  REQUIRE_OK(openreg_device_synchronize(0));
  openreg_event_destroy(events[0]);
  openreg_event_destroy(events[1]);
}

CHILD_TEST(invalid_launches_are_rejected) {
  REQUIRE(openreg_stream_launch(2, 0, count_up, NULL) == OPENREG_INVALID_DEVICE);
  REQUIRE(openreg_stream_launch(0, OPENREG_STREAMS_PER_DEVICE, count_up, NULL) ==
          OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_stream_launch(0, 0, NULL, NULL) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strcmp(openreg_last_error(), "openreg: the function to launch is NULL") == 0);
  REQUIRE(openreg_stream_try_begin_inline(-1, 0) == OPENREG_INVALID_DEVICE);
  REQUIRE(openreg_stream_try_begin_inline(0, -1) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_stream_is_idle(0, 0));
}

static void every_device_works(void) {
  _Atomic int counter = 0;
  gate gates[OPENREG_MAX_DEVICES];
  for (int i = 0; i < OPENREG_MAX_DEVICES; i++) {
    gates[i] = (gate)GATE_CLOSED;
    gate_close_stream(&gates[i], i, i + 1);
    REQUIRE_OK(openreg_stream_launch(i, i + 1, count_up, &counter));
  }
  REQUIRE(counter == 0);
  for (int i = 0; i < OPENREG_MAX_DEVICES; i++) {
    gate_open(&gates[i]);
    REQUIRE_OK(openreg_device_synchronize(i));
    REQUIRE(counter == i + 1);
  }
}

static void sixty_four_devices_work_side_by_side(void **state) {
  (void)state;
  child_expect_pass(every_device_works,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=64", "OPENREG_DEVICE_MEMORY=2M"));
}

static pthread_t runner;

static openreg_status note_thread(void *counter) {
  runner = pthread_self();
  return count_up(counter);
}

static void *block_stream(void *gate) {
  REQUIRE_OK(openreg_stream_launch(0, 0, gate_pass, gate));
  return NULL;
}

static void *launch_behind(void *counter) {
  REQUIRE_OK(openreg_stream_launch(0, 0, note_thread, counter));
  REQUIRE(pthread_equal(runner, pthread_self()));
  return NULL;
}

static void blocking_body(void) {
  _Atomic int counter = 0;
  openreg_event *event;
  REQUIRE_OK(openreg_stream_launch(0, 0, note_thread, &counter));
  REQUIRE(counter == 1 && pthread_equal(runner, pthread_self()));
  REQUIRE_OK(openreg_stream_query(0, 0));
  REQUIRE(openreg_stream_launch(0, 0, fail_with_message, "at once") == OPENREG_LAUNCH_FAILURE);
  REQUIRE(strcmp(openreg_last_error(), "at once") == 0);
  REQUIRE_OK(openreg_device_synchronize(0)); /* it was returned already */

  /* In stream order, behind work of another thread. */
  gate gate = GATE_CLOSED;
  pthread_t first, second;
  REQUIRE(pthread_create(&first, NULL, block_stream, &gate) == 0);
  gate_await(&gate);
  REQUIRE_OK(openreg_event_create(0, true, &event));
  REQUIRE(pthread_create(&second, NULL, launch_behind, &counter) == 0);
  while (atomic_load(&openreg_streams[0][0].timeline.submitted) < 4)
    sched_yield();
  REQUIRE(counter == 1);
  gate_open(&gate);
  REQUIRE_OK(openreg_event_record(event, 0)); /* waits for both, or finds both done */
  REQUIRE_OK(openreg_event_query(event));
  REQUIRE(counter == 2);
  REQUIRE(pthread_join(first, NULL) == 0 && pthread_join(second, NULL) == 0);
  REQUIRE(count_workers() == 0);
  openreg_event_destroy(event);
}

static void blocking_mode_runs_work_on_the_caller_in_turn(void **state) {
  (void)state;
  child_expect_pass(blocking_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=1", "OPENREG_DEVICE_MEMORY=64M",
                                "OPENREG_LAUNCH_BLOCKING=1"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_queued_work_starts_a_thread),
      cmocka_unit_test(work_is_done_in_the_order_of_the_calls),
      cmocka_unit_test(finished_means_that_the_function_has_returned),
      cmocka_unit_test(not_ready_sets_no_message),
      cmocka_unit_test(streams_do_not_wait_for_each_other),
      cmocka_unit_test(device_synchronize_waits_only_for_the_devices_streams),
      cmocka_unit_test(a_full_queue_holds_the_producer_back),
      cmocka_unit_test(waiting_for_space_in_a_queue_has_a_timeout),
      cmocka_unit_test(sleepers_are_woken_each_time),
      cmocka_unit_test(a_function_on_a_worker_may_use_its_own_stream_but_no_other),
      cmocka_unit_test(invalid_launches_are_rejected),
      cmocka_unit_test(sixty_four_devices_work_side_by_side),
      cmocka_unit_test(blocking_mode_runs_work_on_the_caller_in_turn),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
