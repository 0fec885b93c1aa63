/* test_pinned_settings.c: which pinned blocks are rounded up and cached, which are reused if sizes
 * differ, and how that is counted. */
#include "support.h"

#include <string.h>

/* CUDA's defaults. */
static const openreg_pinned_settings defaults = {.max_round_bytes = SIZE_MAX,
                                                 .max_cached_bytes = SIZE_MAX};

static void round_up_to(size_t bytes) {
  openreg_pinned_settings settings = defaults;
  settings.max_round_bytes = bytes;
  set_pinned_settings(settings);
}

static void cache_up_to(size_t bytes) {
  openreg_pinned_settings settings = defaults;
  settings.max_cached_bytes = bytes;
  set_pinned_settings(settings);
}

static int begin(void **state) {
  set_pinned_settings(defaults);
  return pinned_reset(state);
}

/* ---- setting --------------------------------------------------------------------------------- */

/* Runs first, before anything is set. */
static void the_first_settings_are_cudas_defaults(void **state) {
  (void)state;
  openreg_pinned_settings settings;
  memset(&settings, 1, sizeof settings);
  openreg_pinned_get_settings(&settings);
  assert_true(settings.max_round_bytes == SIZE_MAX);
  assert_true(settings.max_cached_bytes == SIZE_MAX);
  assert_int_equal(settings.reserved_segment_bytes, 0);
}

static void get_returns_the_settings(void **state) {
  (void)state;
  openreg_pinned_settings settings = {1, 2, 4096, true}, got;
  set_pinned_settings(settings);
  openreg_pinned_get_settings(&got);
  assert_memory_equal(&got, &settings, sizeof got);
}

static void assert_refused(const openreg_pinned_settings *settings, const char *message) {
  openreg_pinned_settings got;
  assert_status(openreg_pinned_set_settings(settings), OPENREG_INVALID_ARGUMENT);
  assert_error(message);
  openreg_pinned_get_settings(&got);
  assert_memory_equal(&got, &defaults, sizeof got);
}

static void bad_settings_are_refused_and_change_nothing(void **state) {
  (void)state;
  openreg_pinned_settings settings = {1, 1, 4097, false};
  assert_refused(NULL, "openreg_pinned_set_settings: settings is NULL");
  assert_refused(&settings, "reserved_segment_bytes=4097: expected a multiple of 4096");
  settings.reserved_segment_bytes = SIZE_MAX;
  assert_refused(&settings, "expected a multiple of 4096");
}

/* ---- rounding -------------------------------------------------------------------------------- */

static void assert_rounded(size_t request, size_t bytes) {
  char *address = pin(request);
  assert_int_equal(pinned_stats().active_bytes.current, bytes);
  assert_int_equal(pinned_stats().allocated_bytes.current, bytes);
  assert_true(openreg_pinned_contains(address + bytes - 1));
  assert_false(openreg_pinned_contains(address + bytes));
  memset(address, 1, request);
  openreg_pinned_free(address);
  assert_ok(openreg_pinned_empty_cache());
}

static void requests_above_the_limit_are_not_rounded(void **state) {
  (void)state;
  round_up_to(3 * MIB);
  assert_rounded(100, 128);
  assert_rounded(3 * MIB, 4 * MIB);
  assert_rounded(3 * MIB + 1, 3 * MIB + 1);
  round_up_to(0);
  assert_rounded(3, 3);
}

static void requests_that_are_not_to_be_cached_are_not_rounded(void **state) {
  (void)state;
  cache_up_to(3 * MIB);
  assert_rounded(3 * MIB, 4 * MIB);
  assert_rounded(3 * MIB + 1, 3 * MIB + 1);
  openreg_pinned_settings settings = {8 * MIB, MIB, 0, false};
  set_pinned_settings(settings);
  assert_rounded(MIB + 1, MIB + 1);
}

/* ---- caching --------------------------------------------------------------------------------- */

static void blocks_above_the_limit_are_released_when_they_are_freed(void **state) {
  (void)state;
  cache_up_to(MIB);
  char *cached = pin(MIB), *gone = pin(MIB + 1);
  openreg_pinned_free(cached);
  openreg_pinned_free(gone);
  assert_true(is_mapped(cached));
  assert_false(is_mapped(gone));
  openreg_pinned_stats stats = pinned_stats();
  assert_stat(stats.active_requests, 0, 2, 2, 2);
  assert_stat(stats.active_bytes, 0, 2 * MIB + 1, 2 * MIB + 1, 2 * MIB + 1);
  assert_stat(stats.allocations, 1, 2, 2, 1);
  assert_stat(stats.allocated_bytes, MIB, 2 * MIB + 1, 2 * MIB + 1, MIB + 1);
  assert_int_equal(stats.host_alloc_time.count, 2);
  assert_int_equal(stats.host_free_time.count, 1);
}

static void a_block_that_was_rounded_up_above_the_limit_goes_back(void **state) {
  (void)state;
  cache_up_to(3 * MIB);
  char *address = pin(2 * MIB + 1);
  assert_int_equal(pinned_stats().allocated_bytes.current, 4 * MIB);
  openreg_pinned_free(address);
  assert_false(is_mapped(address));
}

static void nothing_at_all_can_be_cached(void **state) {
  (void)state;
  cache_up_to(0);
  openreg_pinned_free(pin(1));
  assert_stat(pinned_stats().allocated_bytes, 0, 1, 1, 1);
}

static void the_limit_is_that_of_the_moment_of_freeing(void **state) {
  (void)state;
  char *cached = pin(2 * MIB), *held = pin(2 * MIB);
  openreg_pinned_free(cached);
  cache_up_to(MIB);
  assert_true(is_mapped(cached)); /* and reused */
  assert_ptr_equal(pin(2 * MIB), cached);
  openreg_pinned_free(held);
  assert_false(is_mapped(held));
  set_pinned_settings(defaults);
  openreg_pinned_free(cached);
  assert_true(is_mapped(cached));
}

/* ---- reuse ----------------------------------------------------------------------------------- */

static void a_block_is_reused_for_requests_that_fit(void **state) {
  (void)state;
  round_up_to(0);
  char *address = pin(1500);
  openreg_pinned_free(address);
  assert_ptr_equal(pin(1025), address);
  assert_true(openreg_pinned_contains(address + 1499));
  assert_int_equal(pinned_stats().allocations.allocated, 1);
  openreg_pinned_free(address);
  char *below = pin(1024); /* between other powers of two */
  assert_int_equal(pinned_stats().allocations.allocated, 2);
  openreg_pinned_free(below);
}

static void blocks_that_are_too_small_are_skipped(void **state) {
  (void)state;
  round_up_to(0);
  char *shorter = pin(1100), *longer = pin(1500), *shortest = pin(1050);
  openreg_pinned_free(shorter);
  openreg_pinned_free(longer);
  openreg_pinned_free(shortest);
  assert_ptr_equal(pin(1400), longer);
  char *longest = pin(1400);
  assert_int_equal(pinned_stats().allocations.allocated, 4);
  assert_ptr_equal(pin(1060), shorter);
  assert_ptr_equal(pin(1050), shortest);
  openreg_pinned_free(shorter);
  openreg_pinned_free(shortest);
  openreg_pinned_free(longer);
  openreg_pinned_free(longest);
}

static void a_request_that_is_rounded_up_may_get_a_block_that_was_not(void **state) {
  (void)state;
  round_up_to(0);
  char *address = pin(1500);
  openreg_pinned_free(address);
  round_up_to(MIB);
  assert_ptr_equal(pin(1500), address);
  char *other = pin(1501);
  assert_stat(pinned_stats().allocated_bytes, 3548, 3548, 3548, 0);
  openreg_pinned_free(address);
  openreg_pinned_free(other);
}

/* As in PyTorch before 2.14, where active bytes can become negative too, and stay wrong. */
static void a_block_counts_as_its_request_and_is_freed_as_itself(void **state) {
  (void)state;
  int64_t before = pinned_stats().active_bytes.current;
  round_up_to(0);
  openreg_pinned_free(pin(1500));
  char *address = pin(1100);
  assert_int_equal(pinned_stats().active_bytes.current, before + 1100);
  openreg_pinned_free(address);
  openreg_pinned_stats stats = pinned_stats();
  assert_int_equal(stats.active_bytes.current, before - 400);
  assert_int_equal(stats.active_bytes.allocated, 2600);
  assert_int_equal(stats.active_bytes.freed, 3000);
  assert_stat(stats.active_requests, 0, 1, 2, 2);
  assert_stat(stats.allocated_bytes, 1500, 1500, 1500, 0);
}

static void a_block_may_count_with_its_own_size(void **state) {
  (void)state;
  int64_t before = pinned_stats().active_bytes.current;
  openreg_pinned_settings settings = defaults;
  settings.max_round_bytes = 0;
  settings.counts_whole_blocks = true;
  set_pinned_settings(settings);
  openreg_pinned_free(pin(1500));
  char *address = pin(1100);
  assert_int_equal(pinned_stats().active_bytes.current, before + 1500);
  openreg_pinned_free(address);
  assert_int_equal(pinned_stats().active_bytes.current, before);
}

/* ---- the segment ----------------------------------------------------------------------------- */

static void a_segment_is_not_reserved_after_the_first_block(void **state) {
  (void)state;
  openreg_pinned_free(pin(100));
  openreg_pinned_settings settings = defaults;
  settings.reserved_segment_bytes = MIB;
  set_pinned_settings(settings);
  openreg_pinned_free(pin(200));
  openreg_pinned_stats stats = pinned_stats();
  assert_int_equal(stats.host_alloc_time.count, 2);
  assert_ok(openreg_pinned_empty_cache());
  assert_int_equal(pinned_stats().host_free_time.count, 2);
}

#define ON_EMPTY_POOL(test) cmocka_unit_test_setup_teardown(test, begin, pinned_all_freed)

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_first_settings_are_cudas_defaults),
      ON_EMPTY_POOL(get_returns_the_settings),
      ON_EMPTY_POOL(bad_settings_are_refused_and_change_nothing),
      ON_EMPTY_POOL(requests_above_the_limit_are_not_rounded),
      ON_EMPTY_POOL(requests_that_are_not_to_be_cached_are_not_rounded),
      ON_EMPTY_POOL(blocks_above_the_limit_are_released_when_they_are_freed),
      ON_EMPTY_POOL(a_block_that_was_rounded_up_above_the_limit_goes_back),
      ON_EMPTY_POOL(nothing_at_all_can_be_cached),
      ON_EMPTY_POOL(the_limit_is_that_of_the_moment_of_freeing),
      ON_EMPTY_POOL(a_block_is_reused_for_requests_that_fit),
      ON_EMPTY_POOL(blocks_that_are_too_small_are_skipped),
      ON_EMPTY_POOL(a_request_that_is_rounded_up_may_get_a_block_that_was_not),
      ON_EMPTY_POOL(a_block_counts_as_its_request_and_is_freed_as_itself),
      ON_EMPTY_POOL(a_block_may_count_with_its_own_size),
      ON_EMPTY_POOL(a_segment_is_not_reserved_after_the_first_block),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
