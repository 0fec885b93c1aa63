/* test_faults.c: each thing that the allocator asks of others fails, once at every place.
 *
 * The linker puts these functions in front of the real ones. After each failure everything must be
 * valid, nothing may be lost, and the same request must succeed when nothing fails.
 */
#include "support.h"

#include "allocator/internal.h"

enum { ALL = OPENREG_POOL_ALL };

/* The call that fails, counted from 1; 0: none. */
static int failing_pages, failing_take, failing_release, failing_arena, failing_query;
static openreg_status take_result;

void *__real_openreg_pages_map(size_t bytes);
void *__wrap_openreg_pages_map(size_t bytes);
openreg_status __real_openreg_ledger_take(int device, uint64_t bytes);
openreg_status __wrap_openreg_ledger_take(int device, uint64_t bytes);
openreg_status __real_openreg_arena_release(void *address, size_t bytes);
openreg_status __wrap_openreg_arena_release(void *address, size_t bytes);

openreg_status __real_openreg_arena_get(int device, void **base, size_t *bytes);
openreg_status __wrap_openreg_arena_get(int device, void **base, size_t *bytes);
openreg_status __real_openreg_ledger_query(int device, uint64_t *free_bytes, uint64_t *total);
openreg_status __wrap_openreg_ledger_query(int device, uint64_t *free_bytes, uint64_t *total);

void *__wrap_openreg_pages_map(size_t bytes) {
  if (failing_pages && --failing_pages == 0) {
    openreg_fail(OPENREG_SYSTEM, "no pages");
    return NULL;
  }
  return __real_openreg_pages_map(bytes);
}

openreg_status __wrap_openreg_ledger_take(int device, uint64_t bytes) {
  if (failing_take && --failing_take == 0)
    return openreg_fail(take_result, "no ledger");
  return __real_openreg_ledger_take(device, bytes);
}

openreg_status __wrap_openreg_arena_release(void *address, size_t bytes) {
  if (failing_release && --failing_release == 0)
    return openreg_fail(OPENREG_SYSTEM, "no release");
  return __real_openreg_arena_release(address, bytes);
}

openreg_status __wrap_openreg_arena_get(int device, void **base, size_t *bytes) {
  if (failing_arena && --failing_arena == 0)
    return openreg_fail(OPENREG_SYSTEM, "no arena");
  return __real_openreg_arena_get(device, base, bytes);
}

openreg_status __wrap_openreg_ledger_query(int device, uint64_t *free_bytes, uint64_t *total) {
  if (failing_query && --failing_query == 0)
    return openreg_fail(OPENREG_SYSTEM, "no figures");
  return __real_openreg_ledger_query(device, free_bytes, total);
}

/* Runs first, on a device that no test has used. */
static void a_device_that_could_not_be_opened_opens_later(void **state) {
  (void)state;
  openreg_block *block = NULL;
  failing_arena = 1;
  assert_status(openreg_block_allocate(1, 2, 512, &block), OPENREG_SYSTEM);
  assert_sentence("no arena");
  /* The allocator, then the stream's pools, blocks, ranges: each attempt gets one further. */
  for (int attempt = 0; attempt < 4; attempt++) {
    failing_pages = attempt == 0 ? 1 : 2;
    assert_status(openreg_block_allocate(1, 2, 512, &block), OPENREG_SYSTEM);
    assert_sentence("no pages");
    assert_int_equal(failing_pages, 0);
    assert_true(openreg_memory_is_valid(1));
  }
  failing_pages = 2;
  assert_ok(openreg_block_allocate(1, 2, 512, &block));
  assert_int_equal(failing_pages, 1); /* nothing else was needed but ranges */
  failing_pages = 0;
  openreg_block_free(block);
}

static void a_record_that_cannot_be_had_loses_nothing(void **state) {
  (void)state;
  enum { MANY = 2000 }; /* more than the records of one chunk */
  static openreg_block *blocks[MANY];
  int failures = 0;
  for (int i = 0; i < MANY; i++) {
    failing_pages = 1;
    if (openreg_block_allocate(0, 0, 512, &blocks[i]) != OPENREG_OK) {
      failures++;
      assert_true(openreg_memory_is_valid(0));
      failing_pages = 0;
      blocks[i] = take(0, 0, 512);
    }
  }
  failing_pages = 0;
  assert_true(failures >= 3);
  assert_int_equal(stats_of(0).allocation[ALL].current, MANY);
  for (int i = 0; i < MANY; i++)
    openreg_block_free(blocks[i]);
}

static void a_full_ledger_is_tried_again_after_emptying(void **state) {
  (void)state;
  openreg_block_free(take(0, 1, 4 * MIB));
  failing_take = 1;
  take_result = OPENREG_OUT_OF_MEMORY;
  openreg_block *block = take(0, 0, 2 * MIB);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.alloc_retries, 1);
  assert_int_equal(stats.ooms, 0);
  assert_int_equal(stats.reserved_bytes[ALL].current, 2 * MIB);
  openreg_block_free(block);
}

static void another_error_of_the_ledger_is_passed_on(void **state) {
  (void)state;
  openreg_block *none;
  failing_take = 1;
  take_result = OPENREG_SYSTEM;
  assert_status(openreg_block_allocate(0, 0, 512, &none), OPENREG_SYSTEM);
  assert_sentence("no ledger");
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.alloc_retries, 0);
  assert_int_equal(stats.reserved_bytes[ALL].current, 0);
  assert_int_equal(ledger_free(0), CAPACITY);
}

static void pages_that_cannot_be_released_stay_reserved(void **state) {
  (void)state;
  openreg_block_free(take(0, 1, 4 * MIB));
  openreg_block_free(take(0, 2, 6 * MIB));
  failing_release = 2;
  assert_status(openreg_cache_empty(0), OPENREG_SYSTEM);
  assert_sentence("no release");
  assert_true(openreg_memory_is_valid(0));
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 6 * MIB);
  assert_int_equal(ledger_free(0), CAPACITY - 6 * MIB);
  assert_int_equal(stats_of(0).device_frees, 1);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(ledger_free(0), CAPACITY);
}

static void memory_that_the_host_does_not_have_is_a_sentence(void **state) {
  (void)state;
  assert_null(__real_openreg_pages_map((size_t)1 << 60));
  assert_sentence("no host memory for the allocator's records: 1152921504606846976 bytes");
}

static void figures_that_cannot_be_had_are_an_error_of_their_own(void **state) {
  (void)state;
  openreg_block *none;
  failing_query = 1;
  assert_status(openreg_block_allocate(0, 0, CAPACITY + 1, &none), OPENREG_SYSTEM);
  assert_sentence("no figures");
}

/* A reservation needs two records of blocks: with one left it is refused before it begins. */
static void one_record_is_not_enough_to_reserve(void **state) {
  (void)state;
  struct allocator *allocator;
  assert_ok(openreg_allocator_open(0, &allocator));
  openreg_block_free(take(0, 5, 512)); /* the stream's pools exist */
  assert_ok(openreg_cache_empty(0));
  enum { MOST = 4096 };
  static struct block *taken[MOST];
  int count = 0;
  while (allocator->blocks.available > 1 && count < MOST)
    taken[count++] = slab_take(&allocator->blocks);
  openreg_block *none;
  failing_pages = 1;
  assert_status(openreg_block_allocate(0, 5, 512, &none), OPENREG_SYSTEM);
  assert_int_equal(ledger_free(0), CAPACITY);
  openreg_block *block = take(0, 5, 512);
  while (count > 0) {
    taken[--count]->state = BLOCK_ALLOCATED;
    slab_put(&allocator->blocks, taken[count]);
  }
  openreg_block_free(block);
}

/* The cut of a segment in three needs records: with none to be had nothing is given back. */
static void emptying_without_records_changes_nothing(struct slab *slab, size_t left) {
  enum { MOST = 4096 };
  static struct block *taken[MOST];
  int count = 0;
  openreg_block *low = take(0, 0, 3 * MIB), *hole = take(0, 0, 6 * MIB),
                *high = take(0, 0, 3 * MIB);
  openreg_block_free(hole);
  while (slab->available > left && count < MOST)
    taken[count++] = slab_take(slab);
  openreg_memory_stats before = stats_of(0);
  failing_pages = 1;
  assert_status(openreg_cache_empty(0), OPENREG_SYSTEM);
  assert_sentence("no pages");
  openreg_memory_stats after = stats_of(0);
  assert_int_equal(after.stream_syncs, before.stream_syncs + 1);
  after.stream_syncs = before.stream_syncs;
  assert_memory_equal(&before, &after, sizeof before);
  while (count > 0) {
    taken[--count]->state = BLOCK_ALLOCATED;
    slab_put(slab, taken[count]);
  }
  assert_true(openreg_memory_is_valid(0));
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 8 * MIB);
  openreg_block_free(low);
  openreg_block_free(high);
}

static void emptying_without_blocks_changes_nothing(void **state) {
  (void)state;
  struct allocator *allocator;
  assert_ok(openreg_allocator_open(0, &allocator));
  emptying_without_records_changes_nothing(&allocator->blocks, 0);
}

static void emptying_without_ranges_changes_nothing(void **state) {
  (void)state;
  struct allocator *allocator;
  assert_ok(openreg_allocator_open(0, &allocator));
  emptying_without_records_changes_nothing(&allocator->ranges, 1);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_device_that_could_not_be_opened_opens_later),
      ON_EMPTY_DEVICES(a_record_that_cannot_be_had_loses_nothing),
      ON_EMPTY_DEVICES(a_full_ledger_is_tried_again_after_emptying),
      ON_EMPTY_DEVICES(another_error_of_the_ledger_is_passed_on),
      ON_EMPTY_DEVICES(pages_that_cannot_be_released_stay_reserved),
      ON_EMPTY_DEVICES(memory_that_the_host_does_not_have_is_a_sentence),
      ON_EMPTY_DEVICES(figures_that_cannot_be_had_are_an_error_of_their_own),
      ON_EMPTY_DEVICES(one_record_is_not_enough_to_reserve),
      ON_EMPTY_DEVICES(emptying_without_blocks_changes_nothing),
      ON_EMPTY_DEVICES(emptying_without_ranges_changes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
