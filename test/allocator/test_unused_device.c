/* test_unused_device.c: functions that work before the first use of a device, and without one. */
#include "support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void observe(const openreg_memory_event *event) {
  (void)event;
}

static void queries_do_not_initialize(void **state) {
  (void)state;
  openreg_memory_stats stats, zeros;
  double fraction = 0;
  memset(&stats, 0x5A, sizeof stats);
  memset(&zeros, 0, sizeof zeros);
  assert_ok(openreg_memory_get_stats(1, &stats));
  assert_memory_equal(&stats, &zeros, sizeof stats);
  assert_ok(openreg_memory_get_fraction(1, &fraction));
  assert_true(fraction == 1);
  assert_ok(openreg_memory_reset_peak(1));
  assert_ok(openreg_memory_reset_accumulated(1));
  assert_ok(openreg_cache_empty(1));
  assert_true(openreg_memory_is_valid(1));
  openreg_out_of_memory_info refusal;
  openreg_memory_last_out_of_memory(&refusal);
  assert_int_equal(refusal.bytes, 0);
  openreg_memory_settings settings;
  openreg_memory_get_settings(&settings);
  assert_ok(openreg_memory_set_settings(&settings));
  openreg_mempool_stats *accounts = &(openreg_mempool_stats){0};
  size_t count = 7;
  assert_ok(openreg_mempool_get_stats(1, &accounts, &count));
  assert_null(accounts);
  assert_int_equal(count, 0);
  uint64_t mempool, current;
  openreg_memory_snapshot snapshot;
  assert_ok(openreg_mempool_create(true, NULL, &mempool));
  assert_ok(openreg_mempool_set_current(1, mempool));
  assert_ok(openreg_mempool_current(1, &current));
  assert_int_equal(current, mempool);
  assert_ok(openreg_mempool_set_current(1, 0));
  assert_int_equal(openreg_mempool_use_count(mempool), 1);
  assert_ok(openreg_mempool_empty(mempool));
  assert_ok(openreg_mempool_release(mempool));
  assert_ok(openreg_memory_collect_shared(1));
  assert_ok(openreg_memory_take_snapshot(1, &snapshot));
  assert_int_equal(snapshot.segment_count, 0);
  openreg_memory_free_snapshot(&snapshot);
  assert_ok(openreg_memory_add_observer(observe));
  openreg_memory_remove_observer(observe);
  assert_null(openreg_block_find(&stats));
  assert_null(openreg_block_find(NULL));
  openreg_block_free(NULL);
  assert_false(openreg_is_initialized());
}

static void bad_arguments_do_not_initialize(void **state) {
  (void)state;
  openreg_block *block;
  assert_status(openreg_block_allocate(TEST_DEVICES, 0, 1, &block), OPENREG_INVALID_DEVICE);
  assert_status(openreg_memory_set_fraction(-1, 1), OPENREG_INVALID_DEVICE);
  assert_false(openreg_is_initialized());
}

/* The configuration is read once per process, so a child that was forked before reads its own. */
static void a_bad_configuration_is_reported_by_all(void **state) {
  (void)state;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    openreg_block *block;
    openreg_memory_stats stats;
    openreg_memory_snapshot snapshot;
    uint64_t mempool;
    double fraction;
    setenv("OPENREG_DEVICE_COUNT", "0", 1);
    bool all = openreg_block_allocate(0, 0, 1, &block) == OPENREG_INVALID_CONFIGURATION &&
               openreg_cache_empty(0) == OPENREG_INVALID_CONFIGURATION &&
               openreg_memory_set_fraction(0, 1) == OPENREG_INVALID_CONFIGURATION &&
               openreg_memory_get_fraction(0, &fraction) == OPENREG_INVALID_CONFIGURATION &&
               openreg_memory_get_stats(0, &stats) == OPENREG_INVALID_CONFIGURATION &&
               openreg_memory_take_snapshot(0, &snapshot) == OPENREG_INVALID_CONFIGURATION &&
               openreg_memory_collect_shared(0) == OPENREG_INVALID_CONFIGURATION &&
               openreg_mempool_current(0, &mempool) == OPENREG_INVALID_CONFIGURATION &&
               openreg_mempool_set_current(0, 0) == OPENREG_INVALID_CONFIGURATION &&
               openreg_memory_reset_peak(0) == OPENREG_INVALID_CONFIGURATION &&
               openreg_memory_reset_accumulated(0) == OPENREG_INVALID_CONFIGURATION &&
               !openreg_memory_is_valid(0) &&
               strstr(openreg_last_error(), "OPENREG_DEVICE_COUNT") != NULL;
    _exit(all ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* A child that was forked before initialization has its own devices. */
static void a_process_forked_before_initialization_works(void **state) {
  (void)state;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    openreg_block *block = NULL;
    bool works = openreg_block_allocate(0, 0, 512, &block) == OPENREG_OK &&
                 openreg_block_find(block->address) == block;
    openreg_block_free(block);
    _exit(works && openreg_memory_is_valid(0) ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void setting_the_fraction_comes_before_the_first_block(void **state) {
  (void)state;
  openreg_block *none;
  double fraction;
  assert_ok(openreg_memory_set_fraction(1, 0.5));
  assert_ok(openreg_memory_get_fraction(1, &fraction));
  assert_true(fraction == 0.5);
  assert_status(openreg_block_allocate(1, 0, 33 * MIB, &none), OPENREG_OUT_OF_MEMORY);
}

int main(void) {
  configure();
  /* In this order: the last one initializes. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_bad_configuration_is_reported_by_all),
      cmocka_unit_test(a_process_forked_before_initialization_works),
      cmocka_unit_test(bad_arguments_do_not_initialize),
      cmocka_unit_test(queries_do_not_initialize),
      cmocka_unit_test(setting_the_fraction_comes_before_the_first_block),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
