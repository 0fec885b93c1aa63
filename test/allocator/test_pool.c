/* test_pool.c: the size of the block that a request gets, and which free block it is. */
#include "support.h"

#include "allocator/internal.h"

enum { ALL = OPENREG_POOL_ALL, SMALL = OPENREG_POOL_SMALL, LARGE = OPENREG_POOL_LARGE };

#define GIB ((size_t)1 << 30)

/* ---- sizes ----------------------------------------------------------------------------------- */

static void sizes_are_rounded_up_to_512_bytes(void **state) {
  (void)state;
  static const size_t requests[] = {1, 511, 512, 513, MIB - 1, MIB + 1, 3 * MIB - 1};
  static const size_t sizes[] = {512, 512, 512, 1024, MIB, MIB + 512, 3 * MIB};
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    openreg_block *block = take(0, 0, requests[i]);
    assert_int_equal(block->bytes, sizes[i]);
    assert_int_equal(block->requested_bytes, requests[i]);
    openreg_block_free(block);
  }
}

static void assert_rounded(const openreg_memory_settings *settings, size_t bytes, size_t rounded) {
  assert_int_equal(openreg_round_size(settings, bytes), rounded);
}

static openreg_memory_settings all_divided_by(size_t divisions) {
  openreg_memory_settings settings = default_settings();
  for (int i = 0; i < OPENREG_ROUNDUP_INTERVALS; i++)
    settings.roundup_power2_divisions[i] = divisions;
  return settings;
}

/* Steps of a quarter of the power of two below: 1 KiB above 4 KiB; 512 KiB above 2 MiB. */
static void divisions_are_steps_between_powers_of_two(void **state) {
  (void)state;
  openreg_memory_settings settings = all_divided_by(4);
  assert_rounded(&settings, 4096, 4096);
  assert_rounded(&settings, 4097, 5120);
  assert_rounded(&settings, 5000, 5120);
  assert_rounded(&settings, 7169, 8192);
  assert_rounded(&settings, 2 * MIB + 1, 2 * MIB + 512 * KIB);
  assert_rounded(&settings, 3 * MIB, 3 * MIB);
}

/* Up to 512 bytes per step, multiples of 512 bytes are as fine. */
static void small_sizes_are_not_divided(void **state) {
  (void)state;
  openreg_memory_settings settings = all_divided_by(4);
  assert_rounded(&settings, 1, 512);
  assert_rounded(&settings, 1200, 1536);
  assert_rounded(&settings, 2048, 2048);
  assert_rounded(&settings, 2049, 2560);
  settings = all_divided_by(16);
  assert_rounded(&settings, 8000, 8192);
  assert_rounded(&settings, 8193, 8704);
}

static void one_division_is_none(void **state) {
  (void)state;
  openreg_memory_settings settings = all_divided_by(1);
  assert_rounded(&settings, 5 * MIB + 1, 5 * MIB + 512);
}

/* The first interval is for all sizes below 2 MiB, the last for all from 32 GiB. */
static void each_interval_of_sizes_has_its_divisions(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.roundup_power2_divisions[0] = 2;
  settings.roundup_power2_divisions[2] = 8;
  settings.roundup_power2_divisions[15] = 4;
  assert_rounded(&settings, 1025, 1536);
  assert_rounded(&settings, 5000, 6144);
  assert_rounded(&settings, 2 * MIB - 1, 2 * MIB);
  assert_rounded(&settings, 2 * MIB + 1, 2 * MIB + 512);
  assert_rounded(&settings, 4 * MIB + 1, 4 * MIB + 512 * KIB);
  assert_rounded(&settings, 8 * MIB + 1, 8 * MIB + 512);
  assert_rounded(&settings, 16 * GIB + 1, 16 * GIB + 512);
  assert_rounded(&settings, 32 * GIB + 1, 40 * GIB);
  assert_rounded(&settings, 300 * GIB, 320 * GIB);
}

static void the_rounded_size_is_that_of_the_block(void **state) {
  (void)state;
  set_settings(all_divided_by(2));
  openreg_block *block = take(0, 0, 2 * MIB + 1);
  assert_int_equal(block->bytes, 3 * MIB);
  assert_int_equal(block->requested_bytes, 2 * MIB + 1);
  openreg_block_free(block);
}

/* ---- pools ----------------------------------------------------------------------------------- */

static void one_mebibyte_is_the_largest_small_request(void **state) {
  (void)state;
  openreg_block *small = take(0, 0, MIB), *large = take(0, 0, MIB + 1);
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.allocation[SMALL], 1, 1, 1, 0);
  assert_stat(stats.allocation[LARGE], 1, 1, 1, 0);
  assert_int_equal(stats.reserved_bytes[SMALL].current, 2 * MIB);
  assert_int_equal(stats.reserved_bytes[LARGE].current, 20 * MIB);
  openreg_block_free(small);
  openreg_block_free(large);
}

static void free_memory_of_one_pool_serves_no_request_of_the_other(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 3 * MIB));
  openreg_block_free(take(0, 0, MIB));
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 22 * MIB);
  assert_int_equal(stats_of(0).device_allocs, 2);
}

static void streams_do_not_use_each_others_free_blocks(void **state) {
  (void)state;
  openreg_block_free(take(0, 1, 4096));
  openreg_block *other = take(0, 2, 4096), *same = take(0, 1, 4096);
  assert_int_equal(place_of(other), 2 * MIB);
  assert_int_equal(place_of(same), 0);
  openreg_block_free(other);
  openreg_block_free(same);
}

/* ---- best fit -------------------------------------------------------------------------------- */

/* Free pieces of these sizes that cannot merge; the blocks between them stay until the end. */
static void the_smallest_free_block_that_fits_is_used(size_t unit) {
  static const size_t sizes[] = {5, 2, 9, 3, 2};
  enum { COUNT = sizeof sizes / sizeof *sizes };
  openreg_block *pieces[COUNT], *between[COUNT];
  size_t places[COUNT];
  for (int i = 0; i < COUNT; i++) {
    pieces[i] = take(0, 0, sizes[i] * unit);
    between[i] = take(0, 0, unit);
    places[i] = place_of(pieces[i]);
  }
  for (int i = 0; i < COUNT; i++)
    openreg_block_free(pieces[i]);
  assert_true(openreg_memory_is_valid(0));
  openreg_block *three = take(0, 0, 3 * unit), *four = take(0, 0, 4 * unit);
  assert_int_equal(place_of(three), places[3]);
  assert_int_equal(place_of(four), places[0]);
  openreg_block *six = take(0, 0, 6 * unit), *rest = take(0, 0, 3 * unit);
  assert_int_equal(place_of(six), places[2]);
  assert_int_equal(place_of(rest), places[2] + 6 * unit); /* the rest of the nine */
  openreg_block *blocks[] = {three, four, six, rest};
  for (int i = 0; i < 4; i++)
    openreg_block_free(blocks[i]);
  for (int i = 0; i < COUNT; i++)
    openreg_block_free(between[i]);
}

static void the_smallest_small_block_that_fits_is_used(void **state) {
  (void)state;
  the_smallest_free_block_that_fits_is_used(512);
  the_smallest_free_block_that_fits_is_used(16 * KIB);
  the_smallest_free_block_that_fits_is_used(40 * KIB);
}

static void the_smallest_large_block_that_fits_is_used(void **state) {
  (void)state;
  the_smallest_free_block_that_fits_is_used(MIB + MIB / 2);
}

static void of_equal_blocks_of_a_segment_the_lowest_is_used(void **state) {
  (void)state;
  enum { HOLES = 3 };
  openreg_block *holes[HOLES], *walls[HOLES];
  for (int i = 0; i < HOLES; i++) {
    holes[i] = take(0, 0, 3 * MIB);
    walls[i] = take(0, 0, 2 * MIB);
  }
  for (int i = HOLES; i-- > 0;)
    openreg_block_free(holes[(i + 1) % HOLES]);
  openreg_block *block = take(0, 0, 3 * MIB - 512);
  assert_int_equal(place_of(block), 0);
  openreg_block_free(block);
  for (int i = 0; i < HOLES; i++)
    openreg_block_free(walls[i]);
}

/* The newest segment has the lowest address, where the first one was. */
static void of_equal_blocks_that_of_the_oldest_segment_is_used(void **state) {
  (void)state;
  openreg_block *gone = take(0, 0, 12 * MIB), *old = take(0, 0, 12 * MIB);
  openreg_block_free(gone);
  assert_ok(openreg_cache_empty(0));
  openreg_block *young = take(0, 0, 12 * MIB);
  assert_int_equal(place_of(young), 0);
  openreg_block_free(old);
  openreg_block_free(young);
  openreg_block *block = take(0, 0, 12 * MIB);
  assert_int_equal(place_of(block), 12 * MIB);
  openreg_block_free(block);
}

/* ---- max_split_size -------------------------------------------------------------------------- */

static void a_smaller_request_gets_no_block_of_max_split_bytes(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.max_split_bytes = 24 * MIB;
  set_settings(settings);
  openreg_block_free(take(0, 0, 24 * MIB));
  openreg_block *block = take(0, 0, 24 * MIB - 512);
  assert_int_equal(place_of(block), 24 * MIB);
  openreg_block_free(block);
}

/* 20 MiB larger is too large. */
static void a_larger_request_gets_a_block_that_is_not_much_longer(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.max_split_bytes = 20 * MIB;
  set_settings(settings);
  openreg_block_free(take(0, 0, 42 * MIB));
  openreg_block *block = take(0, 0, 22 * MIB + 512);
  assert_int_equal(place_of(block), 0);
  assert_int_equal(block->bytes, 42 * MIB);
  openreg_block_free(block);
  block = take(0, 0, 22 * MIB);
  assert_int_equal(place_of(block), 42 * MIB);
  openreg_block_free(block);
}

static void how_much_longer_it_may_be_is_a_setting(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.max_split_bytes = 20 * MIB;
  settings.max_non_split_rounding_bytes = 22 * MIB;
  set_settings(settings);
  openreg_block_free(take(0, 0, 42 * MIB));
  openreg_block *block = take(0, 0, 22 * MIB);
  assert_int_equal(block->bytes, 42 * MIB);
  openreg_block_free(block);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(sizes_are_rounded_up_to_512_bytes),
      ON_EMPTY_DEVICES(divisions_are_steps_between_powers_of_two),
      ON_EMPTY_DEVICES(small_sizes_are_not_divided),
      ON_EMPTY_DEVICES(one_division_is_none),
      ON_EMPTY_DEVICES(each_interval_of_sizes_has_its_divisions),
      ON_EMPTY_DEVICES(the_rounded_size_is_that_of_the_block),
      ON_EMPTY_DEVICES(one_mebibyte_is_the_largest_small_request),
      ON_EMPTY_DEVICES(free_memory_of_one_pool_serves_no_request_of_the_other),
      ON_EMPTY_DEVICES(streams_do_not_use_each_others_free_blocks),
      ON_EMPTY_DEVICES(the_smallest_small_block_that_fits_is_used),
      ON_EMPTY_DEVICES(the_smallest_large_block_that_fits_is_used),
      ON_EMPTY_DEVICES(of_equal_blocks_of_a_segment_the_lowest_is_used),
      ON_EMPTY_DEVICES(of_equal_blocks_that_of_the_oldest_segment_is_used),
      ON_EMPTY_DEVICES(a_smaller_request_gets_no_block_of_max_split_bytes),
      ON_EMPTY_DEVICES(a_larger_request_gets_a_block_that_is_not_much_longer),
      ON_EMPTY_DEVICES(how_much_longer_it_may_be_is_a_setting),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
