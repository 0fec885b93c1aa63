/* test_debug_figures.c: with OPENREG_DEBUG_MEMORY=1, how red zones change the statistics, and that
 * a correct program causes no report. test_debug.c has the reports. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

enum { ALL = OPENREG_POOL_ALL };

/* ---- statistics ------------------------------------------------------------------------------ */

static void red_zones_are_in_all_statistics_except_requested_bytes(void **state) {
  (void)state;
  enum { BLOCKS = 4096 };
  static openreg_block *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    blocks[i] = take(0, 0, 500);
    assert_int_equal(blocks[i]->bytes, 1024);
    assert_int_equal(blocks[i]->requested_bytes, 500);
  }
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.allocation[ALL].current, BLOCKS);
  assert_int_equal(stats.allocated_bytes[ALL].current, BLOCKS * 1024);
  assert_int_equal(stats.active_bytes[ALL].current, BLOCKS * 1024);
  assert_int_equal(stats.requested_bytes[ALL].current, BLOCKS * 500);
  assert_int_equal(stats.reserved_bytes[ALL].current, BLOCKS * 1024);
  assert_true(openreg_memory_is_valid(0));
  for (int i = 0; i < BLOCKS; i++)
    openreg_block_free(blocks[i]);
  stats = stats_of(0);
  assert_int_equal(stats.allocated_bytes[ALL].peak, BLOCKS * 1024);
  assert_int_equal(stats.allocated_bytes[ALL].freed, BLOCKS * 1024);
  assert_clean(0);
}

/* With a red zone a request of 1 MiB belongs to the large pool. */
static void the_red_zone_counts_in_the_choice_of_a_pool(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, MIB);
  assert_int_equal(block->bytes, MIB + 512);
  assert_int_equal(stats_of(0).reserved_bytes[OPENREG_POOL_LARGE].current, 20 * MIB);
  openreg_block_free(block);
}

/* With a red zone, 10 MiB minus 512 bytes get a segment of their own, and 12 MiB one of 14. */
static void the_red_zone_counts_in_the_size_of_a_segment(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 10 * MIB - 512));
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 10 * MIB);
  openreg_block_free(take(0, 0, 12 * MIB));
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 24 * MIB);
}

static void the_red_zone_counts_in_an_out_of_memory_error(void **state) {
  (void)state;
  openreg_out_of_memory_info refusal = refused(0, 0, CAPACITY);
  assert_int_equal(refusal.rounded_bytes, CAPACITY + 512);
  assert_int_equal(refusal.tried_bytes, CAPACITY + 2 * MIB);
}

/* The size is rounded without the red zone, so steps between powers of two do not change. */
static void the_red_zone_is_added_to_the_rounded_size(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.roundup_power2_divisions[1] = 4;
  set_settings(settings);
  openreg_block *block = take(0, 0, 2 * MIB + 1);
  assert_int_equal(block->bytes, 2 * MIB + 512 * KIB + 512);
  openreg_block_free(block);
}

/* ---- no false alarms ------------------------------------------------------------------------- */

static uint32_t seed = 1;

static uint32_t random_below(uint32_t bound) {
  seed = seed * 1664525 + 1013904223; /* Knuth and Lewis, Numerical Recipes 7.1 */
  return (seed >> 8) % bound;
}

/* A correct program that writes to all its memory causes no report. */
static void leave_a_correct_program_alone(void) {
  enum { HELD = 64, ROUNDS = 20000 };
  openreg_block *held[HELD] = {NULL};
  for (int round = 0; round < ROUNDS; round++) {
    openreg_block **slot = &held[random_below(HELD)];
    if (*slot) {
      openreg_block_free(*slot);
      *slot = NULL;
    } else {
      size_t bytes = 1 + random_below(random_below(8) ? 3000 : 1 << 20);
      *slot = take((int)random_below(2), (int)random_below(3), bytes);
      assert_filled((*slot)->address, bytes < 64 ? bytes : 64, OPENREG_DEBUG_FRESH);
      memset(memory((*slot)->address), (int)random_below(256), bytes);
      if (random_below(10) == 0)
        assert_ok(openreg_block_record_stream(*slot, 4));
    }
    if (random_below(500) == 0)
      assert_ok(openreg_cache_empty((int)random_below(2)));
    if (random_below(500) == 0)
      for (int device = 0; device < TEST_DEVICES; device++) {
        assert_true(openreg_memory_is_valid(device));
        assert_clean(device);
      }
  }
  for (int i = 0; i < HELD; i++)
    openreg_block_free(held[i]);
  assert_clean(0);
  assert_clean(1);
}

static void a_correct_program_causes_no_report(void **state) {
  (void)state;
  leave_a_correct_program_alone();
}

static void a_correct_program_with_expandable_segments_causes_no_report(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = true;
  set_settings(settings);
  leave_a_correct_program_alone();
}

int main(void) {
  configure();
  setenv("OPENREG_DEBUG_MEMORY", "1", 1);
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(red_zones_are_in_all_statistics_except_requested_bytes),
      ON_EMPTY_DEVICES(the_red_zone_counts_in_the_choice_of_a_pool),
      ON_EMPTY_DEVICES(the_red_zone_counts_in_the_size_of_a_segment),
      ON_EMPTY_DEVICES(the_red_zone_counts_in_an_out_of_memory_error),
      ON_EMPTY_DEVICES(the_red_zone_is_added_to_the_rounded_size),
      ON_EMPTY_DEVICES(a_correct_program_causes_no_report),
      ON_EMPTY_DEVICES(a_correct_program_with_expandable_segments_causes_no_report),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
