/* test_settings.c: the settings, when they take effect, and invalid values. */
#include "support.h"

#include <math.h>
#include <string.h>

enum { ALL = OPENREG_POOL_ALL };

static void assert_refused(const openreg_memory_settings *settings, const char *sentence) {
  openreg_memory_settings before, after;
  openreg_memory_get_settings(&before);
  assert_status(openreg_memory_set_settings(settings), OPENREG_INVALID_ARGUMENT);
  assert_error(sentence);
  openreg_memory_get_settings(&after);
  assert_memory_equal(&before, &after, sizeof before);
}

/* Runs first, before anything is set. */
static void the_first_settings_are_cudas_defaults(void **state) {
  (void)state;
  openreg_memory_settings settings;
  openreg_memory_get_settings(&settings);
  assert_true(settings.max_split_bytes == SIZE_MAX);
  assert_int_equal(settings.max_non_split_rounding_bytes, 20 * MIB);
  assert_int_equal(settings.large_segment_bytes, 20 * MIB);
  assert_true(settings.garbage_collection_threshold == 0);
  assert_true(settings.memory_fraction == 1);
  assert_false(settings.expandable_segments);
  assert_false(settings.throws_on_oom);
  for (int i = 0; i < OPENREG_ROUNDUP_INTERVALS; i++)
    assert_int_equal(settings.roundup_power2_divisions[i], 0);
}

/* Runs second, on a device that was never used. */
static void a_device_begins_with_the_settings_of_its_first_use(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  double fraction;
  settings.memory_fraction = 0.5;
  settings.max_split_bytes = 30 * MIB;
  set_settings(settings);
  openreg_block *block = take(1, 0, 30 * MIB);
  assert_int_equal(refused(1, 0, 3 * MIB).allowed_bytes, 32 * MIB);
  assert_ok(openreg_memory_get_fraction(1, &fraction));
  assert_true(fraction == 0.5);
  openreg_memory_stats stats = stats_of(1);
  assert_int_equal(stats.max_split_bytes, 30 * MIB);
  assert_int_equal(stats.oversize_allocations.current, 1);
  openreg_block_free(block);
  assert_ok(openreg_cache_empty(1));
}

static void later_settings_change_neither_limit_nor_the_split_that_is_shown(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  double fraction;
  settings.memory_fraction = 0.25;
  settings.max_split_bytes = 40 * MIB;
  set_settings(settings);
  assert_ok(openreg_memory_get_fraction(1, &fraction));
  assert_true(fraction == 1); /* as devices_reset left it */
  assert_int_equal(stats_of(1).max_split_bytes, 30 * MIB);
  openreg_block_free(take(1, 0, 40 * MIB));
  assert_int_equal(stats_of(1).oversize_allocations.allocated, 1);
}

static void settings_are_of_all_devices_at_once(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  openreg_block_free(take(0, 0, 512));
  openreg_block_free(take(1, 0, 512));
  settings.large_segment_bytes = 16 * MIB;
  set_settings(settings);
  for (int device = 0; device < TEST_DEVICES; device++) {
    openreg_block_free(take(device, 0, 3 * MIB));
    assert_int_equal(stats_of(device).reserved_bytes[ALL].current, 18 * MIB);
  }
}

static void get_returns_the_settings(void **state) {
  (void)state;
  openreg_memory_settings settings, got;
  memset(&settings, 0, sizeof settings);
  settings.max_split_bytes = 21 * MIB;
  settings.max_non_split_rounding_bytes = 22 * MIB;
  settings.large_segment_bytes = 14 * MIB;
  settings.roundup_power2_divisions[7] = 64;
  settings.garbage_collection_threshold = 0.75;
  settings.memory_fraction = 0.125;
  settings.expandable_segments = settings.throws_on_oom = true;
  assert_ok(openreg_memory_set_settings(&settings));
  memset(&got, 0, sizeof got);
  openreg_memory_get_settings(&got);
  assert_memory_equal(&settings, &got, sizeof settings);
}

static void a_large_segment_of_10_mebibytes_or_less_is_refused(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  static const size_t bad[] = {0, 2 * MIB, 10 * MIB, 12 * MIB + 512};
  for (int i = 0; i < 4; i++) {
    settings.large_segment_bytes = bad[i];
    assert_refused(&settings, "large_segment_bytes=");
  }
}

static void a_max_split_below_the_large_segment_is_refused(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.max_split_bytes = 20 * MIB - 1;
  assert_refused(&settings, "max_split_bytes=20971519: expected 20971520 or more");
  settings.max_split_bytes = 20 * MIB;
  settings.large_segment_bytes = 32 * MIB;
  assert_refused(&settings, "max_split_bytes=20971520: expected 33554432 or more");
}

static void divisions_that_are_no_powers_of_two_are_refused(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  static const size_t bad[] = {3, 6, SIZE_MAX};
  for (int i = 0; i < 3; i++) {
    settings.roundup_power2_divisions[i] = bad[i];
    assert_refused(&settings, "roundup_power2_divisions[");
    settings.roundup_power2_divisions[i] = 0;
  }
}

static void fractions_outside_their_bounds_are_refused(void **state) {
  (void)state;
  static const double bad_fractions[] = {-0.1, 1.1, NAN}, bad_thresholds[] = {-0.1, 1, NAN};
  for (int i = 0; i < 3; i++) {
    openreg_memory_settings settings = default_settings();
    settings.memory_fraction = bad_fractions[i];
    assert_refused(&settings, "memory_fraction=");
    settings = default_settings();
    settings.garbage_collection_threshold = bad_thresholds[i];
    assert_refused(&settings, "garbage_collection_threshold=");
  }
}

static void no_settings_are_refused(void **state) {
  (void)state;
  assert_refused(NULL, "settings is NULL");
}

int main(void) {
  configure();
  /* In this order: the first two need an unused process and device. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_first_settings_are_cudas_defaults),
      cmocka_unit_test(a_device_begins_with_the_settings_of_its_first_use),
      ON_EMPTY_DEVICES(later_settings_change_neither_limit_nor_the_split_that_is_shown),
      ON_EMPTY_DEVICES(settings_are_of_all_devices_at_once),
      ON_EMPTY_DEVICES(get_returns_the_settings),
      ON_EMPTY_DEVICES(a_large_segment_of_10_mebibytes_or_less_is_refused),
      ON_EMPTY_DEVICES(a_max_split_below_the_large_segment_is_refused),
      ON_EMPTY_DEVICES(divisions_that_are_no_powers_of_two_are_refused),
      ON_EMPTY_DEVICES(fractions_outside_their_bounds_are_refused),
      ON_EMPTY_DEVICES(no_settings_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
