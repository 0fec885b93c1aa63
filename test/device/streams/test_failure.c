/* Failures of work on workers: the device keeps them until a thread synchronizes. */
#include "gate.h"

#include <stdlib.h>
#include <string.h>

static void finish(int device, int stream) {
  while (openreg_stream_query(device, stream) == OPENREG_NOT_READY) {
  }
}

static openreg_status synchronize_stream(void) {
  return openreg_stream_synchronize(0, 40); /* not the stream that failed */
}

static openreg_status synchronize_device(void) {
  return openreg_device_synchronize(0);
}

static openreg_status synchronize_event(void) {
  openreg_event *event;
  REQUIRE_OK(openreg_event_create(0, false, &event));
  REQUIRE_OK(openreg_event_record(event, 0));
  openreg_status status = openreg_event_synchronize(event);
  openreg_event_destroy(event);
  return status;
}

static openreg_status synchronize_with_time(void) {
  return openreg_device_synchronize_for(0, UINT64_MAX);
}

CHILD_TEST(every_kind_of_synchronize_returns_a_failure_once) {
  openreg_status (*const kinds[])(void) = {synchronize_stream, synchronize_device,
                                           synchronize_event, synchronize_with_time};
  for (int i = 0; i < 4; i++) {
    REQUIRE_OK(openreg_stream_launch(0, 0, fail_with_message, "openreg: it broke"));
    finish(0, 0);
    openreg_fail(OPENREG_SYSTEM, "another");
    REQUIRE(kinds[i]() == OPENREG_LAUNCH_FAILURE);
    REQUIRE(strcmp(openreg_last_error(), "openreg: it broke") == 0);
    REQUIRE_OK(kinds[i]());
  }
}

CHILD_TEST(the_device_works_on_after_a_failure) {
  _Atomic int counter = 0;
  REQUIRE_OK(openreg_stream_launch(0, 0, fail_with_message, "broken"));
  REQUIRE_OK(openreg_stream_launch(0, 0, count_up, &counter));
  REQUIRE(openreg_stream_synchronize(0, 0) == OPENREG_LAUNCH_FAILURE);
  REQUIRE(counter == 1);
  REQUIRE_OK(openreg_stream_launch(0, 0, count_up, &counter));
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  REQUIRE(counter == 2);
}

CHILD_TEST(the_first_of_several_failures_is_kept) {
  REQUIRE_OK(openreg_stream_launch(0, 0, fail_with_message, "first"));
  REQUIRE_OK(openreg_stream_launch(0, 0, fail_with_message, "second"));
  REQUIRE(openreg_device_synchronize(0) == OPENREG_LAUNCH_FAILURE);
  REQUIRE(strcmp(openreg_last_error(), "first") == 0);
  REQUIRE_OK(openreg_device_synchronize(0));
}

CHILD_TEST(a_failure_is_of_one_device) {
  REQUIRE_OK(openreg_stream_launch(1, 5, fail_with_message, "of the second"));
  finish(1, 5);
  REQUIRE_OK(openreg_device_synchronize(0));
  REQUIRE(openreg_device_synchronize(1) == OPENREG_LAUNCH_FAILURE);
}

static void *synchronize_in_thread(void *message) {
  REQUIRE(openreg_device_synchronize(0) == OPENREG_LAUNCH_FAILURE);
  strcpy(message, openreg_last_error());
  return NULL;
}

CHILD_TEST(a_failure_is_returned_to_one_thread_only) {
  char message[1024];
  pthread_t thread;
  REQUIRE_OK(openreg_stream_launch(0, 0, fail_with_message, "reported"));
  finish(0, 0);
  REQUIRE(pthread_create(&thread, NULL, synchronize_in_thread, message) == 0);
  REQUIRE(pthread_join(thread, NULL) == 0);
  REQUIRE(strcmp(message, "reported") == 0);
  REQUIRE_OK(openreg_device_synchronize(0));
}

CHILD_TEST(a_synchronize_that_gives_up_leaves_the_failure) {
  gate gate = GATE_CLOSED;
  REQUIRE_OK(openreg_stream_launch(0, 0, fail_with_message, "still there"));
  gate_close_stream(&gate, 0, 0);
  REQUIRE(openreg_stream_synchronize_for(0, 0, 0) == OPENREG_NOT_READY);
  gate_open(&gate);
  REQUIRE(openreg_stream_synchronize(0, 0) == OPENREG_LAUNCH_FAILURE);
}

static openreg_status fail_silently(void *status) {
  return (openreg_status)(intptr_t)status;
}

CHILD_TEST(a_failure_without_a_message_gets_that_of_its_status) {
  REQUIRE_OK(openreg_stream_launch(0, 0, fail_with_message, "an older message"));
  REQUIRE(openreg_stream_synchronize(0, 0) == OPENREG_LAUNCH_FAILURE);
  REQUIRE_OK(openreg_stream_launch(0, 0, fail_silently, (void *)OPENREG_OUT_OF_MEMORY));
  REQUIRE(openreg_stream_synchronize(0, 0) == OPENREG_OUT_OF_MEMORY);
  REQUIRE(strcmp(openreg_last_error(), "openreg: out of memory on device 0") == 0);
}

CHILD_TEST(a_function_that_returns_not_ready_has_failed) {
  REQUIRE_OK(openreg_stream_launch(0, 0, fail_silently, (void *)OPENREG_NOT_READY));
  REQUIRE(openreg_stream_synchronize(0, 0) == OPENREG_LAUNCH_FAILURE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_of_synchronize_returns_a_failure_once),
      cmocka_unit_test(the_device_works_on_after_a_failure),
      cmocka_unit_test(the_first_of_several_failures_is_kept),
      cmocka_unit_test(a_failure_is_of_one_device),
      cmocka_unit_test(a_failure_is_returned_to_one_thread_only),
      cmocka_unit_test(a_synchronize_that_gives_up_leaves_the_failure),
      cmocka_unit_test(a_failure_without_a_message_gets_that_of_its_status),
      cmocka_unit_test(a_function_that_returns_not_ready_has_failed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
