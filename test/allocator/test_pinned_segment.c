/* test_pinned_segment.c: pinned blocks in a reserved segment, in a process that sets one before its
 * first block. The segment's memory is used only once: the tests use it up, in their order. */
#include "support.h"

#include <string.h>

#include "allocator/internal.h"

enum { STEP = 4096, SEGMENT_BYTES = MIB };

static int asked, failing;
static size_t asked_bytes;

void *__real_openreg_pages_map_pinned(size_t bytes);
void *__wrap_openreg_pages_map_pinned(size_t bytes);

void *__wrap_openreg_pages_map_pinned(size_t bytes) {
  asked++;
  asked_bytes = bytes;
  if (failing == 0)
    return __real_openreg_pages_map_pinned(bytes);
  failing--;
  openreg_fail(OPENREG_SYSTEM, "no pages");
  return NULL;
}

/* The start of the segment; known after the first test. */
static char *segment;

static openreg_pinned_settings settings = {.max_round_bytes = SIZE_MAX,
                                           .max_cached_bytes = SIZE_MAX,
                                           .reserved_segment_bytes = SEGMENT_BYTES};

static int begin(void **state) {
  set_pinned_settings(settings);
  asked = 0;
  return pinned_reset(state);
}

static int all_freed(void **state) {
  assert_int_equal(failing, 0);
  return pinned_all_freed(state);
}

/* Both when the request begins, and after the cache was emptied for it. */
static void a_segment_that_cannot_be_mapped_fails_the_request(void **state) {
  void *address = state;
  failing = 2;
  assert_status(openreg_pinned_allocate(100, &address), OPENREG_OUT_OF_MEMORY);
  assert_error("no pages");
  assert_ptr_equal(address, state);
  assert_int_equal(asked_bytes, SEGMENT_BYTES);
  assert_stat(pinned_stats().allocations, 0, 0, 0, 0);
  assert_int_equal(pinned_stats().host_alloc_time.count, 0);
}

static void it_is_reserved_before_the_first_block_and_counts_as_time_alone(void **state) {
  (void)state;
  segment = pin(100);
  assert_int_equal(asked, 1);
  assert_int_equal(asked_bytes, SEGMENT_BYTES);
  openreg_pinned_stats stats = pinned_stats();
  assert_stat(stats.active_bytes, 128, 128, 128, 0);
  assert_stat(stats.allocations, 1, 1, 1, 0);
  assert_stat(stats.allocated_bytes, 128, 128, 128, 0);
  assert_int_equal(stats.host_alloc_time.count, 1);
  openreg_pinned_free(segment);
}

static void blocks_lie_behind_each_other_in_steps_and_take_no_time(void **state) {
  (void)state;
  char *one = pin(100), *two = pin(5000), *three = pin(8192), *four = pin(1);
  assert_ptr_equal(one, segment + STEP);
  assert_ptr_equal(two, one + STEP);
  assert_ptr_equal(three, two + 2 * STEP);
  assert_ptr_equal(four, three + 2 * STEP);
  assert_false(openreg_pinned_contains(one + 128));
  assert_int_equal(asked, 0);
  assert_int_equal(pinned_stats().host_alloc_time.count, 0);
  assert_stat(pinned_stats().allocations, 4, 4, 4, 0);
  assert_stat(pinned_stats().allocated_bytes, 16513, 16513, 16513, 0);
  for (int i = 0; i < 5000; i++)
    assert_int_equal(two[i], 0);
  openreg_pinned_free(three);
  assert_ptr_equal(pin(8000), three);
  openreg_pinned_free(one);
  openreg_pinned_free(two);
  openreg_pinned_free(three);
  openreg_pinned_free(four);
}

static void a_destroyed_block_leaves_the_statistics_but_not_the_segment(void **state) {
  (void)state;
  char *address = pin(100);
  memset(address, 7, 100);
  openreg_pinned_free(address);
  assert_ok(openreg_pinned_empty_cache());
  openreg_pinned_stats stats = pinned_stats();
  assert_stat(stats.allocations, 0, 1, 1, 1);
  assert_stat(stats.allocated_bytes, 0, 128, 128, 128);
  assert_int_equal(stats.host_free_time.count, 0);
  assert_true(is_mapped(address));
  assert_false(openreg_pinned_contains(address));
  char *next = pin(100);
  assert_ptr_equal(next, address + STEP);
  assert_int_equal(next[0], 0);
  openreg_pinned_free(next);
}

static void a_block_that_is_not_to_be_cached_is_lost_to_the_segment(void **state) {
  (void)state;
  openreg_pinned_settings small = settings;
  small.max_cached_bytes = 0;
  set_pinned_settings(small);
  char *address = pin(100), *next;
  openreg_pinned_free(address);
  assert_true(is_mapped(address));
  assert_stat(pinned_stats().allocations, 0, 1, 1, 1);
  assert_int_equal(pinned_stats().host_free_time.count, 0);
  next = pin(100);
  assert_ptr_equal(next, address + STEP);
  openreg_pinned_free(next);
}

static void later_settings_change_no_segment(void **state) {
  (void)state;
  static const size_t sizes[] = {0, 2 * SEGMENT_BYTES};
  for (int i = 0; i < 2; i++) {
    openreg_pinned_settings other = settings;
    other.reserved_segment_bytes = sizes[i];
    set_pinned_settings(other);
    char *address = pin((size_t)300 << i);
    assert_in_range(address - segment, 0, SEGMENT_BYTES - 1);
    openreg_pinned_free(address);
  }
  assert_int_equal(asked, 0);
}

static void a_block_that_does_not_fit_has_its_own_pages(void **state) {
  (void)state;
  char *large = pin(SEGMENT_BYTES);
  assert_int_equal(asked, 1);
  assert_int_equal(asked_bytes, SEGMENT_BYTES);
  char *small = pin(100);
  assert_in_range(small - segment, 0, SEGMENT_BYTES - 1);
  openreg_pinned_free(large);
  openreg_pinned_free(small);
  assert_ok(openreg_pinned_empty_cache());
  assert_false(is_mapped(large));
  assert_true(is_mapped(small));
  assert_int_equal(pinned_stats().host_alloc_time.count, 1);
  assert_int_equal(pinned_stats().host_free_time.count, 1);
}

static void the_segment_is_used_to_its_last_byte(void **state) {
  (void)state;
  enum { MOST = SEGMENT_BYTES / STEP };
  char *blocks[MOST];
  int count = 0;
  for (; asked == 0; count++) {
    assert_true(count < MOST);
    blocks[count] = pin(STEP);
  }
  assert_true(count > 1);
  assert_ptr_equal(blocks[count - 2] + STEP, segment + SEGMENT_BYTES);
  while (count > 0)
    openreg_pinned_free(blocks[--count]);
}

#define ON_EMPTY_POOL(test) cmocka_unit_test_setup_teardown(test, begin, all_freed)

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_POOL(a_segment_that_cannot_be_mapped_fails_the_request),
      ON_EMPTY_POOL(it_is_reserved_before_the_first_block_and_counts_as_time_alone),
      ON_EMPTY_POOL(blocks_lie_behind_each_other_in_steps_and_take_no_time),
      ON_EMPTY_POOL(a_destroyed_block_leaves_the_statistics_but_not_the_segment),
      ON_EMPTY_POOL(a_block_that_is_not_to_be_cached_is_lost_to_the_segment),
      ON_EMPTY_POOL(later_settings_change_no_segment),
      ON_EMPTY_POOL(a_block_that_does_not_fit_has_its_own_pages),
      ON_EMPTY_POOL(the_segment_is_used_to_its_last_byte),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
