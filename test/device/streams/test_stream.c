/* Streams: numbers, pools, and the current stream. */
#include "child.h"
#include "device/device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int from_pool(int device, int priority) {
  int stream = -1;
  REQUIRE_OK(openreg_stream_from_pool(device, priority, &stream));
  return stream;
}

CHILD_TEST(pools_are_handed_out_in_turn_and_start_again) {
  for (int i = 0; i < 2 * OPENREG_STREAMS_PER_POOL; i++) {
    REQUIRE(from_pool(0, 0) == 1 + i % OPENREG_STREAMS_PER_POOL);
    REQUIRE(from_pool(0, -1) == 1 + OPENREG_STREAMS_PER_POOL + i % OPENREG_STREAMS_PER_POOL);
  }
}

CHILD_TEST(priorities_below_zero_are_high_and_others_normal) {
  REQUIRE(from_pool(0, -5) == 1 + 3 * OPENREG_STREAMS_PER_POOL);
  REQUIRE(from_pool(0, 3) == 1);
}

CHILD_TEST(each_device_has_its_own_pools) {
  REQUIRE(from_pool(0, 0) == 1);
  REQUIRE(from_pool(0, 0) == 2);
  REQUIRE(from_pool(1, 0) == 1);
}

CHILD_TEST(the_current_stream_is_kept_for_each_device) {
  int stream = -1;
  REQUIRE_OK(openreg_stream_current(1, &stream));
  REQUIRE(stream == OPENREG_STREAM_DEFAULT);
  REQUIRE_OK(openreg_stream_set_current(1, OPENREG_STREAMS_PER_DEVICE - 1));
  REQUIRE_OK(openreg_stream_current(1, &stream));
  REQUIRE(stream == OPENREG_STREAMS_PER_DEVICE - 1);
  REQUIRE_OK(openreg_stream_current(0, &stream));
  REQUIRE(stream == OPENREG_STREAM_DEFAULT);
}

static void *current_in_thread(void *seen) {
  REQUIRE_OK(openreg_stream_current(0, seen));
  REQUIRE_OK(openreg_stream_set_current(0, 9));
  return NULL;
}

CHILD_TEST(each_thread_has_its_own_current_stream) {
  pthread_t thread;
  int seen = -1, stream = -1;
  REQUIRE_OK(openreg_stream_set_current(0, 5));
  REQUIRE(pthread_create(&thread, NULL, current_in_thread, &seen) == 0);
  REQUIRE(pthread_join(thread, NULL) == 0);
  REQUIRE(seen == OPENREG_STREAM_DEFAULT);
  REQUIRE_OK(openreg_stream_current(0, &stream));
  REQUIRE(stream == 5);
}

CHILD_TEST(a_stream_without_work_is_idle) {
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++) {
    REQUIRE_OK(openreg_stream_query(1, stream));
    REQUIRE_OK(openreg_stream_synchronize(1, stream));
  }
  REQUIRE_OK(openreg_device_synchronize(0));
}

CHILD_TEST(streams_initialize_nothing) {
  int stream;
  REQUIRE_OK(openreg_stream_from_pool(0, 0, &stream));
  REQUIRE_OK(openreg_stream_set_current(0, stream));
  REQUIRE_OK(openreg_stream_synchronize(0, stream));
  REQUIRE(!openreg_is_initialized());
}

static void require_all_refuse(int device, int stream, openreg_status expected) {
  REQUIRE(openreg_stream_set_current(device, stream) == expected);
  REQUIRE(openreg_stream_query(device, stream) == expected);
  REQUIRE(openreg_stream_synchronize(device, stream) == expected);
}

CHILD_TEST(devices_that_do_not_exist_have_no_streams) {
  static const int bad[] = {-1, 2, 1000000};
  for (int i = 0; i < 3; i++) {
    int stream = 77;
    require_all_refuse(bad[i], 0, OPENREG_INVALID_DEVICE);
    REQUIRE(openreg_stream_from_pool(bad[i], 0, &stream) == OPENREG_INVALID_DEVICE);
    REQUIRE(openreg_stream_current(bad[i], &stream) == OPENREG_INVALID_DEVICE);
    REQUIRE(openreg_device_synchronize(bad[i]) == OPENREG_INVALID_DEVICE);
    REQUIRE(stream == 77);
  }
}

CHILD_TEST(streams_that_do_not_exist_are_refused) {
  require_all_refuse(0, -1, OPENREG_INVALID_ARGUMENT);
  require_all_refuse(0, OPENREG_STREAMS_PER_DEVICE, OPENREG_INVALID_ARGUMENT);
  REQUIRE(strcmp(openreg_last_error(), "openreg: invalid stream 129: expected 0 to 128") == 0);
  int stream = -1;
  REQUIRE_OK(openreg_stream_current(0, &stream));
  REQUIRE(stream == OPENREG_STREAM_DEFAULT);
}

static void in_forked_child(void) {
  REQUIRE(openreg_stream_query(0, 0) == OPENREG_BAD_FORK);
  REQUIRE(openreg_stream_synchronize(0, 0) == OPENREG_BAD_FORK);
  REQUIRE(openreg_device_synchronize(0) == OPENREG_BAD_FORK);
}

CHILD_TEST(a_forked_child_has_no_work_to_wait_for) {
  REQUIRE_OK(openreg_initialize());
  child_fork_and_require(in_forked_child);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pools_are_handed_out_in_turn_and_start_again),
      cmocka_unit_test(priorities_below_zero_are_high_and_others_normal),
      cmocka_unit_test(each_device_has_its_own_pools),
      cmocka_unit_test(the_current_stream_is_kept_for_each_device),
      cmocka_unit_test(each_thread_has_its_own_current_stream),
      cmocka_unit_test(a_stream_without_work_is_idle),
      cmocka_unit_test(streams_initialize_nothing),
      cmocka_unit_test(devices_that_do_not_exist_have_no_streams),
      cmocka_unit_test(streams_that_do_not_exist_are_refused),
      cmocka_unit_test(a_forked_child_has_no_work_to_wait_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
