/* test_faults.c: each call of the allocator to other layers and the system fails once at every
 * place.
 *
 * The linker replaces these functions. After each failure all invariants must hold, nothing may be
 * lost, and the same request must succeed without the failure.
 */
#include "support.h"

#include "allocator/internal.h"

enum { ALL = OPENREG_POOL_ALL };

/* Which call fails, counted from 1; 0: none. */
static int failing_pages, failing_take, failing_release, failing_arena, failing_query;
static openreg_status take_result;

void *__real_openreg_pages_map(size_t bytes);
void *__wrap_openreg_pages_map(size_t bytes);
openreg_status __real_openreg_ledger_reserve(int device, uint64_t bytes);
openreg_status __wrap_openreg_ledger_reserve(int device, uint64_t bytes);
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

openreg_status __wrap_openreg_ledger_reserve(int device, uint64_t bytes) {
  if (failing_take && --failing_take == 0)
    return openreg_fail(take_result, "no ledger");
  return __real_openreg_ledger_reserve(device, bytes);
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
  assert_error("no arena");
  /* The allocator, blocks, segments, address map: each attempt succeeds one step further. */
  for (int attempt = 0; attempt < 4; attempt++) {
    failing_pages = attempt == 0 ? 1 : 2;
    assert_status(openreg_block_allocate(1, 2, 512, &block), OPENREG_SYSTEM);
    assert_error("no pages");
    assert_int_equal(failing_pages, 0);
    assert_true(openreg_memory_is_valid(1));
  }
  failing_pages = 2;
  assert_ok(openreg_block_allocate(1, 2, 512, &block));
  assert_int_equal(failing_pages, 1); /* only the address map needed pages */
  failing_pages = 0;
  openreg_block_free(block);
}

static void a_failed_record_allocation_loses_nothing(void **state) {
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
  assert_int_equal(stats.reserved_bytes[ALL].current, 20 * MIB);
  openreg_block_free(block);
}

static void another_error_of_the_ledger_is_passed_on(void **state) {
  (void)state;
  openreg_block *none;
  failing_take = 1;
  take_result = OPENREG_SYSTEM;
  assert_status(openreg_block_allocate(0, 0, 512, &none), OPENREG_SYSTEM);
  assert_error("no ledger");
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.alloc_retries, 0);
  assert_int_equal(stats.reserved_bytes[ALL].current, 0);
  assert_int_equal(ledger_free(0), CAPACITY);
}

static void pages_that_cannot_be_released_stay_reserved(void **state) {
  (void)state;
  openreg_block_free(take(0, 1, 12 * MIB));
  openreg_block_free(take(0, 2, 14 * MIB));
  failing_release = 2;
  assert_status(openreg_cache_empty(0), OPENREG_SYSTEM);
  assert_error("no release");
  assert_true(openreg_memory_is_valid(0));
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 14 * MIB);
  assert_int_equal(ledger_free(0), CAPACITY - 14 * MIB);
  assert_int_equal(stats_of(0).device_frees, 1);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(ledger_free(0), CAPACITY);
}

static void a_request_that_would_empty_the_cache_passes_the_error_on(void **state) {
  (void)state;
  openreg_block *none;
  openreg_block_free(take(0, 1, 40 * MIB));
  failing_release = 1;
  assert_status(openreg_block_allocate(0, 0, 40 * MIB, &none), OPENREG_SYSTEM);
  assert_error("no release");
  assert_true(openreg_memory_is_valid(0));
  assert_int_equal(stats_of(0).ooms, 0);
  openreg_block_free(take(0, 0, 40 * MIB));
}

static void missing_host_memory_is_an_error(void **state) {
  (void)state;
  assert_null(__real_openreg_pages_map((size_t)1 << 60));
  assert_error("out of host memory for the allocator's records: 1152921504606846976 bytes");
}

static void values_that_cannot_be_read_are_an_error_of_their_own(void **state) {
  (void)state;
  openreg_block *none;
  failing_query = 1;
  assert_status(openreg_block_allocate(0, 0, CAPACITY + 1, &none), OPENREG_SYSTEM);
  assert_error("no figures");
}

/* ---- records --------------------------------------------------------------------------------- */

enum { MOST = 4096 };
static struct block *hidden[MOST];
static int hidden_count;

/* Leaves `left` records of blocks, and makes allocating more fail. */
static struct slab *hide_records(size_t left) {
  struct allocator *allocator;
  assert_ok(openreg_allocator_open(0, &allocator));
  struct slab *blocks = &allocator->blocks;
  while (blocks->available > left && hidden_count < MOST)
    hidden[hidden_count++] = slab_take(blocks);
  assert_int_equal(blocks->available, left);
  failing_pages = 1;
  return blocks;
}

static void show_records(struct slab *blocks) {
  while (hidden_count > 0)
    slab_put(blocks, hidden[--hidden_count]);
  assert_true(openreg_memory_is_valid(0));
}

/* A segment needs up to four records: with fewer, the request fails before it changes anything. */
static void too_few_records_are_not_enough_for_a_segment(void **state) {
  (void)state;
  openreg_block *none;
  openreg_block_free(take(0, 5, 512)); /* creates some records */
  assert_ok(openreg_cache_empty(0));
  struct slab *blocks = hide_records(2);
  assert_status(openreg_block_allocate(0, 5, 512, &none), OPENREG_SYSTEM);
  assert_error("no pages");
  assert_int_equal(ledger_free(0), CAPACITY);
  openreg_block *block = take(0, 5, 512);
  show_records(blocks);
  openreg_block_free(block);
}

static void a_block_that_cannot_be_split_is_not_allocated(void **state) {
  (void)state;
  openreg_block *none, *held = take(0, 0, 512);
  openreg_memory_stats before = stats_of(0);
  struct slab *blocks = hide_records(0);
  assert_status(openreg_block_allocate(0, 0, 512, &none), OPENREG_SYSTEM);
  openreg_memory_stats after = stats_of(0);
  assert_memory_equal(&before, &after, sizeof before);
  show_records(blocks);
  openreg_block_free(held);
}

/* Unmapping pages in the middle of a free block divides it in three. */
static void pages_are_not_unmapped_without_records(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = true;
  set_settings(settings);
  openreg_block *low = take(0, 0, 3 * MIB), *hole = take(0, 0, 40 * MIB),
                *high = take(0, 0, 3 * MIB);
  openreg_block_free(hole); /* [3, 43) of 60 */
  openreg_memory_stats before = stats_of(0);
  struct slab *blocks = hide_records(1);
  assert_status(openreg_cache_empty(0), OPENREG_SYSTEM);
  assert_error("no pages");
  openreg_memory_stats after = stats_of(0);
  assert_int_equal(after.stream_syncs, before.stream_syncs + 1);
  after.stream_syncs = before.stream_syncs;
  assert_memory_equal(&before, &after, sizeof before);
  show_records(blocks);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 40 * MIB);
  openreg_block_free(low);
  openreg_block_free(high);
}

static void a_use_without_a_record_is_not_recorded(void **state) {
  (void)state;
  struct allocator *allocator;
  openreg_block *block = take(0, 0, 512);
  static struct use *uses[MOST];
  int count = 0;
  assert_ok(openreg_allocator_open(0, &allocator));
  while (allocator->stream_uses.available > 0 && count < MOST)
    uses[count++] = slab_take(&allocator->stream_uses);
  failing_pages = 1;
  assert_status(openreg_block_record_stream(block, 1), OPENREG_SYSTEM);
  assert_error("no pages");
  while (count > 0)
    slab_put(&allocator->stream_uses, uses[--count]);
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(block);
  assert_int_equal(stats_of(0).active[ALL].current, 0);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_device_that_could_not_be_opened_opens_later),
      ON_EMPTY_DEVICES(a_failed_record_allocation_loses_nothing),
      ON_EMPTY_DEVICES(a_full_ledger_is_tried_again_after_emptying),
      ON_EMPTY_DEVICES(another_error_of_the_ledger_is_passed_on),
      ON_EMPTY_DEVICES(pages_that_cannot_be_released_stay_reserved),
      ON_EMPTY_DEVICES(a_request_that_would_empty_the_cache_passes_the_error_on),
      ON_EMPTY_DEVICES(missing_host_memory_is_an_error),
      ON_EMPTY_DEVICES(values_that_cannot_be_read_are_an_error_of_their_own),
      ON_EMPTY_DEVICES(too_few_records_are_not_enough_for_a_segment),
      ON_EMPTY_DEVICES(a_block_that_cannot_be_split_is_not_allocated),
      ON_EMPTY_DEVICES(pages_are_not_unmapped_without_records),
      ON_EMPTY_DEVICES(a_use_without_a_record_is_not_recorded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
