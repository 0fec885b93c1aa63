/* support.c: see support.h. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void configure(void) {
  char group[32];
  snprintf(group, sizeof group, "test-allocator-%d", (int)getpid());
  setenv("OPENREG_GROUP", group, 1);
  setenv("OPENREG_DEVICE_COUNT", "2", 1);
  setenv("OPENREG_DEVICE_MEMORY", "64M", 1);
  unsetenv("OPENREG_PROFILE");
}

void check_status(openreg_status status, openreg_status expected, const char *call,
                  const char *file, int line) {
  if (status == expected)
    return;
  print_error("%s\n  gave %s, not %s; last error: %s\n", call, openreg_status_name(status),
              openreg_status_name(expected), openreg_last_error());
  _fail(file, line);
}

void assert_sentence(const char *part) {
  if (strstr(openreg_last_error(), part))
    return;
  print_error("\"%s\" is not in \"%s\"\n", part, openreg_last_error());
  fail();
}

int devices_reset(void **state) {
  (void)state;
  for (int device = 0; device < TEST_DEVICES; device++) {
    assert_ok(openreg_cache_empty(device));
    assert_ok(openreg_memory_set_fraction(device, 1));
    assert_ok(openreg_memory_reset_peak(device));
    assert_ok(openreg_memory_reset_accumulated(device));
    assert_int_equal(stats_of(device).reserved_bytes[OPENREG_POOL_ALL].current, 0);
    assert_int_equal(ledger_free(device), CAPACITY);
  }
  return 0;
}

int devices_check(void **state) {
  (void)state;
  for (int device = 0; device < TEST_DEVICES; device++) {
    if (!openreg_memory_is_valid(device))
      fail_msg("%s", openreg_last_error());
    assert_int_equal(stats_of(device).active[OPENREG_POOL_ALL].current, 0);
  }
  return 0;
}

openreg_block *take(int device, int stream, size_t bytes) {
  openreg_block *block = NULL;
  assert_ok(openreg_block_allocate(device, stream, bytes, &block));
  assert_non_null(block);
  return block;
}

openreg_memory_stats stats_of(int device) {
  openreg_memory_stats stats;
  assert_ok(openreg_memory_get_stats(device, &stats));
  return stats;
}

uint64_t ledger_free(int device) {
  uint64_t free_bytes, total_bytes;
  assert_ok(openreg_ledger_query(device, &free_bytes, &total_bytes));
  return free_bytes;
}
