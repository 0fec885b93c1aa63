/* The ledger: never reserves more than the capacity. */
#include "devices.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

CHILD_TEST(everything_is_free_at_first) {
  REQUIRE(free_on(0) == 64 * MIB);
  REQUIRE(free_on(1) == 64 * MIB);
}

CHILD_TEST(reserved_memory_is_missing_on_that_device_until_released) {
  REQUIRE_OK(openreg_ledger_reserve(1, 10 * MIB));
  REQUIRE(free_on(0) == 64 * MIB);
  REQUIRE(free_on(1) == 54 * MIB);
  openreg_ledger_release(1, 4 * MIB);
  REQUIRE(free_on(1) == 58 * MIB);
  openreg_ledger_release(1, 6 * MIB);
  REQUIRE(free_on(1) == 64 * MIB);
}

CHILD_TEST(the_last_byte_can_be_reserved_but_not_one_more) {
  REQUIRE_OK(openreg_ledger_reserve(0, 64 * MIB - 1));
  REQUIRE(openreg_ledger_reserve(0, 2) == OPENREG_OUT_OF_MEMORY);
  REQUIRE(strcmp(openreg_last_error(), "openreg: device 0 is out of memory: 2 bytes were "
                                       "requested, but only 1 of 67108864 are free") == 0);
  REQUIRE(free_on(0) == 1);
  REQUIRE_OK(openreg_ledger_reserve(0, 1));
  REQUIRE_OK(openreg_ledger_reserve(0, 0));
  REQUIRE(openreg_ledger_reserve(0, UINT64_MAX) == OPENREG_OUT_OF_MEMORY);
  REQUIRE(free_on(0) == 0);
}

CHILD_TEST(devices_that_do_not_exist_have_no_ledger) {
  uint64_t free_bytes = 1, total_bytes = 2;
  REQUIRE(openreg_ledger_reserve(2, 1) == OPENREG_INVALID_DEVICE);
  REQUIRE(openreg_ledger_reserve(-1, 1) == OPENREG_INVALID_DEVICE);
  REQUIRE(openreg_ledger_query(2, &free_bytes, &total_bytes) == OPENREG_INVALID_DEVICE);
  REQUIRE(free_bytes == 1 && total_bytes == 2);
}

/* ---- many threads ---------------------------------------------------------------------------- */

enum { THREADS = 4, PIECE = 4096, PIECES = 64 * MIB / PIECE };

static pthread_barrier_t together;

static void *take_until_empty(void *count) {
  pthread_barrier_wait(&together);
  while (openreg_ledger_reserve(0, PIECE) == OPENREG_OK)
    ++*(int *)count;
  return NULL;
}

static void *take_and_give(void *count) {
  pthread_barrier_wait(&together);
  for (int i = 0; i < 10000; i++) {
    if (openreg_ledger_reserve(0, 48 * MIB) == OPENREG_OK) {
      ++*(int *)count;
      openreg_ledger_release(0, 48 * MIB);
    }
  }
  return NULL;
}

static int run_threads(void *(*body)(void *)) {
  pthread_t threads[THREADS];
  int counts[THREADS] = {0}, total = 0;
  REQUIRE(pthread_barrier_init(&together, NULL, THREADS) == 0);
  for (int i = 0; i < THREADS; i++)
    REQUIRE(pthread_create(&threads[i], NULL, body, &counts[i]) == 0);
  for (int i = 0; i < THREADS; i++) {
    REQUIRE(pthread_join(threads[i], NULL) == 0);
    total += counts[i];
  }
  pthread_barrier_destroy(&together);
  return total;
}

CHILD_TEST(threads_together_reserve_exactly_the_capacity) {
  REQUIRE(run_threads(take_until_empty) == PIECES);
  REQUIRE(free_on(0) == 0);
}

CHILD_TEST(threads_that_release_leave_everything_free) {
  REQUIRE(run_threads(take_and_give) > 0);
  REQUIRE(free_on(0) == 64 * MIB);
}

/* ---- misuse ---------------------------------------------------------------------------------- */

static void in_forked_child(void) {
  uint64_t free_bytes, total_bytes;
  REQUIRE(openreg_ledger_reserve(0, 1) == OPENREG_BAD_FORK);
  REQUIRE(openreg_ledger_query(0, &free_bytes, &total_bytes) == OPENREG_BAD_FORK);
}

CHILD_TEST(a_forked_child_has_no_ledger) {
  REQUIRE_OK(openreg_ledger_reserve(0, 1));
  child_fork_and_require(in_forked_child);
}

#ifndef NDEBUG
static void give_too_much(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 5));
  openreg_ledger_release(0, 6);
}

static void releasing_more_than_was_reserved_is_asserted_against(void **state) {
  (void)state;
  child_result result;
  child_expect_signal(&result, SIGABRT, give_too_much, SMALL_DEVICES);
  assert_non_null(strstr(result.errors, "ledger.c"));
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(everything_is_free_at_first),
      cmocka_unit_test(reserved_memory_is_missing_on_that_device_until_released),
      cmocka_unit_test(the_last_byte_can_be_reserved_but_not_one_more),
      cmocka_unit_test(devices_that_do_not_exist_have_no_ledger),
      cmocka_unit_test(threads_together_reserve_exactly_the_capacity),
      cmocka_unit_test(threads_that_release_leave_everything_free),
      cmocka_unit_test(a_forked_child_has_no_ledger),
#ifndef NDEBUG
      cmocka_unit_test(releasing_more_than_was_reserved_is_asserted_against),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
