/* Priorities: work at the head of a stream begins before work of streams of lower priority. */
#include "device/streams/stream.h"
#include "gate.h"

#include <sched.h>
#include <stdlib.h>

CHILD_TEST(the_priority_of_a_stream_is_that_of_its_pool) {
  int stream, priority = 9;
  REQUIRE_OK(openreg_stream_priority(0, OPENREG_STREAM_DEFAULT, &priority));
  REQUIRE(priority == 0);
  for (int i = 0; i < OPENREG_STREAMS_PER_POOL; i++) {
    for (int expected = 0; expected > -OPENREG_STREAM_PRIORITIES; expected--) {
      REQUIRE_OK(openreg_stream_from_pool(0, expected, &stream));
      REQUIRE_OK(openreg_stream_priority(0, stream, &priority));
      REQUIRE(priority == expected);
    }
  }
  REQUIRE(openreg_stream_priority(2, 0, &priority) == OPENREG_INVALID_DEVICE);
  REQUIRE(openreg_stream_priority(0, OPENREG_STREAMS_PER_DEVICE, &priority) ==
          OPENREG_INVALID_ARGUMENT);
}

enum { NORMAL = 1, HIGH = 40, HIGHER = 70, HIGHEST = 100 };

/* The test acts as a worker that was given work and has not got a core yet. */
CHILD_TEST(work_of_other_streams_waits_while_high_priority_work_has_not_begun) {
  _Atomic int normal = 0, high = 0, elsewhere = 0;
  openreg_priority_add(0, 1);
  REQUIRE_OK(openreg_stream_launch(0, NORMAL, count_up, &normal));
  while (openreg_priority_yielding(0) == 0)
    sched_yield();
  REQUIRE_OK(openreg_stream_launch(1, NORMAL, count_up, &elsewhere));
  REQUIRE_OK(openreg_stream_synchronize(1, NORMAL)); /* each device separately */
  REQUIRE_OK(openreg_stream_launch(0, HIGH, count_up, &high));
  REQUIRE_OK(openreg_stream_synchronize(0, HIGH));
  REQUIRE(high == 1 && elsewhere == 1 && normal == 0);
  openreg_priority_remove(0, 1);
  REQUIRE_OK(openreg_stream_synchronize(0, NORMAL));
  REQUIRE(normal == 1);
}

CHILD_TEST(work_waits_for_that_of_higher_priority_only) {
  _Atomic int high = 0, highest = 0;
  openreg_priority_add(0, 2);
  REQUIRE_OK(openreg_stream_launch(0, HIGH, count_up, &high));
  while (openreg_priority_yielding(0) == 0)
    sched_yield();
  REQUIRE_OK(openreg_stream_launch(0, HIGHER, count_up, &highest));
  REQUIRE_OK(openreg_stream_synchronize(0, HIGHER));
  REQUIRE_OK(openreg_stream_launch(0, HIGHEST, count_up, &highest));
  REQUIRE_OK(openreg_stream_synchronize(0, HIGHEST));
  REQUIRE(highest == 2 && high == 0);
  openreg_priority_remove(0, 2);
  REQUIRE_OK(openreg_stream_synchronize(0, HIGH));
  REQUIRE(high == 1);
}

/* Otherwise two functions on different streams that wait for each other would deadlock. */
CHILD_TEST(running_high_priority_work_does_not_delay_other_streams) {
  gate gate = GATE_CLOSED;
  _Atomic int normal = 0, high = 0;
  gate_close_stream(&gate, 0, HIGH);
  REQUIRE_OK(openreg_stream_launch(0, HIGH, count_up, &high));
  REQUIRE_OK(openreg_stream_launch(0, NORMAL, count_up, &normal));
  REQUIRE_OK(openreg_stream_synchronize(0, NORMAL));
  REQUIRE(normal == 1 && high == 0);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(0, HIGH));
}

CHILD_TEST(work_is_not_blocked_while_priorities_change) {
  _Atomic int counter = 0;
  for (int i = 0; i < 20000; i++) {
    REQUIRE_OK(openreg_stream_launch(0, NORMAL, count_up, &counter));
    REQUIRE_OK(openreg_stream_launch(0, HIGH + 30 * (i % 3), count_up, &counter));
  }
  REQUIRE_OK(openreg_device_synchronize(0));
  REQUIRE(counter == 40000);
  REQUIRE(openreg_priority_yielding(0) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_priority_of_a_stream_is_that_of_its_pool),
      cmocka_unit_test(work_of_other_streams_waits_while_high_priority_work_has_not_begun),
      cmocka_unit_test(work_waits_for_that_of_higher_priority_only),
      cmocka_unit_test(running_high_priority_work_does_not_delay_other_streams),
      cmocka_unit_test(work_is_not_blocked_while_priorities_change),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
