/* test_custom_allocator.c: memory straight from the device, and memory from custom allocators. */
#include "support.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALL = OPENREG_POOL_ALL, MOST = 32 };

/* A custom allocator that takes its memory from openreg_device_malloc, and records its calls. */
struct notes {
  int allocations, frees;
  size_t bytes[MOST];
  int device, stream;
  void *next;    /* returned instead of fresh memory, if not NULL */
  bool is_empty; /* return NULL */
};

static void *allocate_noted(void *context, size_t bytes, int device, int stream) {
  struct notes *notes = context;
  notes->device = device;
  notes->stream = stream;
  notes->bytes[notes->allocations++ % MOST] = bytes;
  void *address = NULL;
  if (notes->next)
    return notes->next;
  return !notes->is_empty && openreg_device_malloc(device, bytes, &address) == OPENREG_OK ? address
                                                                                          : NULL;
}

static void free_noted(void *context, void *address, size_t bytes, int device, int stream) {
  struct notes *notes = context;
  assert_int_equal(device, notes->device);
  assert_int_equal(stream, notes->stream);
  assert_true(bytes > 0);
  notes->frees++;
  if (!notes->next)
    assert_ok(openreg_device_free(address));
}

static openreg_custom_allocator source_of(struct notes *notes) {
  return (openreg_custom_allocator){&allocate_noted, &free_noted, notes};
}

static uint64_t make_mempool_of(struct notes *notes) {
  openreg_custom_allocator source = source_of(notes);
  uint64_t mempool = 0;
  assert_ok(openreg_mempool_create(0, &source, &mempool));
  return mempool;
}

static void give_up(uint64_t mempool) {
  assert_ok(openreg_mempool_release(mempool));
  assert_ok(openreg_mempool_empty(mempool));
}

static uint64_t free_bytes(void) {
  uint64_t bytes, capacity;
  assert_ok(openreg_ledger_query(0, &bytes, &capacity));
  return bytes;
}

static void raw_memory_is_in_no_statistic(void **state) {
  (void)state;
  void *one = NULL, *other = NULL;
  assert_ok(openreg_device_malloc(0, 1, &one));
  assert_ok(openreg_device_malloc(0, 3 * MIB, &other));
  assert_int_equal(free_bytes(), CAPACITY - 6 * MIB);
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 0);
  openreg_memory_snapshot snapshot = snapshot_of(0);
  assert_int_equal(snapshot.segment_count, 0);
  openreg_memory_free_snapshot(&snapshot);
  assert_true(openreg_memory_is_valid(0));
  char *seen = openreg_kernel_view(other);
  seen[3 * MIB - 1] = 7;
  assert_ok(openreg_device_free(one));
  assert_ok(openreg_device_free(other));
  assert_int_equal(free_bytes(), CAPACITY);
  assert_ok(openreg_device_malloc(0, 3 * MIB, &other));
  assert_int_equal(((char *)openreg_kernel_view(other))[3 * MIB - 1], 0);
  assert_ok(openreg_device_free(other));
}

static void other_addresses_are_not_freed(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 512);
  void *address = NULL;
  assert_status(openreg_device_free(block->address), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_device_free(&address), OPENREG_INVALID_ARGUMENT);
  assert_error("no memory of openreg_device_malloc starts at");
  assert_ok(openreg_device_free(NULL));
  assert_status(openreg_device_malloc(TEST_DEVICES, 1, &address), OPENREG_INVALID_DEVICE);
  assert_status(openreg_device_malloc(0, 0, &address), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_device_malloc(0, 1, NULL), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_device_malloc(0, SIZE_MAX, &address), OPENREG_OUT_OF_MEMORY);
  assert_status(openreg_device_malloc(0, 2 * CAPACITY, &address), OPENREG_OUT_OF_MEMORY);
  assert_null(address);
  assert_ok(openreg_device_malloc(0, 1, &address));
  assert_ok(openreg_device_free(address));
  assert_status(openreg_device_free(address), OPENREG_INVALID_ARGUMENT);
  openreg_block_free(block);
}

static void a_pool_takes_segments_from_its_custom_allocator(void **state) {
  (void)state;
  struct notes notes = {0};
  uint64_t mempool = make_mempool_of(&notes);
  openreg_block *small = take_in(mempool, 0, 3, 512), *large = take_in(mempool, 0, 3, 3 * MIB);
  assert_int_equal(notes.allocations, 2);
  assert_int_equal(notes.bytes[0], 2 * MIB);
  assert_int_equal(notes.bytes[1], 20 * MIB);
  assert_int_equal(notes.stream, 3);
  assert_ptr_equal(openreg_block_find(small->address), small);
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 22 * MIB);
  assert_int_equal(stats_of(0).segment[ALL].current, 2);
  assert_int_equal(free_bytes(), CAPACITY - 22 * MIB);
  assert_snapshot_agrees(0);
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(small);
  openreg_block_free(take_in(mempool, 0, 3, 1024)); /* the cache belongs to the pool */
  assert_int_equal(notes.allocations, 2);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(notes.frees, 0); /* it is cached */
  assert_ok(openreg_mempool_release(mempool));
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(notes.frees, 1);
  openreg_block_free(large);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(notes.frees, 2);
  assert_int_equal(free_bytes(), CAPACITY);
}

static void other_pools_take_segments_from_the_device(void **state) {
  (void)state;
  struct notes notes = {0};
  uint64_t mempool = make_mempool_of(&notes), plain = make_mempool(false);
  openreg_block *blocks[] = {take(0, 0, 512), take_in(plain, 0, 0, 512)};
  assert_int_equal(notes.allocations, 0);
  for (int i = 0; i < 2; i++)
    openreg_block_free(blocks[i]);
  assert_ok(openreg_mempool_release(plain));
  give_up(mempool);
}

static void an_empty_custom_allocator_is_out_of_memory_after_the_cache_was_released(void **state) {
  (void)state;
  struct notes notes = {.is_empty = true};
  uint64_t mempool = make_mempool_of(&notes);
  openreg_block_free(take(0, 0, 12 * MIB));
  assert_ok(openreg_mempool_set_current(0, mempool));
  refused(0, 0, 512);
  assert_ok(openreg_mempool_set_current(0, 0));
  assert_int_equal(notes.allocations, 2);
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 0);
  assert_int_equal(stats_of(0).ooms, 1);
  give_up(mempool);
}

static void a_custom_allocator_may_return_parts_of_a_block(void **state) {
  (void)state;
  openreg_block *whole = take(0, 0, 12 * MIB);
  struct notes notes = {.next = (char *)whole->address + 4096};
  uint64_t mempool = make_mempool_of(&notes);
  openreg_block *inner = take_in(mempool, 0, 0, 1024);
  assert_ptr_equal(inner->address, notes.next);
  assert_ptr_equal(openreg_block_find(whole->address), whole);
  assert_ptr_equal(openreg_block_find(inner->address), inner);
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(inner);
  give_up(mempool);
  assert_int_equal(notes.frees, 1);
  openreg_block_free(whole);
}

static void memory_that_the_program_does_not_hold_is_refused(void **state) {
  (void)state;
  openreg_block *whole = take(0, 0, 12 * MIB), *freed = take(0, 0, 16 * MIB);
  char *there = whole->address, *gone = freed->address;
  char on_the_host[512];
  openreg_block_free(freed);
  void *bad[] = {there, there + 4, there + 12 * MIB - 512, gone, on_the_host};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct notes notes = {.next = bad[i]};
    uint64_t mempool = make_mempool_of(&notes);
    openreg_block *block = NULL;
    assert_ok(openreg_mempool_set_current(0, mempool));
    assert_status(openreg_block_allocate(0, 0, 512, &block), OPENREG_INVALID_ADDRESS);
    assert_error("for 2097152 bytes of device 0: expected memory of that device");
    assert_ok(openreg_mempool_set_current(0, 0));
    assert_int_equal(notes.frees, 0);
    give_up(mempool);
  }
  openreg_block_free(whole);
}

static void segments_of_a_custom_allocator_are_not_expandable(void **state) {
  (void)state;
  struct notes notes = {0};
  uint64_t mempool = make_mempool_of(&notes);
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = true;
  set_settings(settings);
  openreg_block *inside = take_in(mempool, 0, 0, 512), *outside = take(0, 0, 512);
  openreg_memory_snapshot snapshot = snapshot_of(0);
  assert_int_equal(snapshot.segment_count, 2);
  for (size_t i = 0; i < snapshot.segment_count; i++)
    assert_int_equal(snapshot.segments[i].is_expandable, snapshot.segments[i].mempool != mempool);
  openreg_memory_free_snapshot(&snapshot);
  assert_int_equal(notes.allocations, 1);
  openreg_block_free(inside);
  openreg_block_free(outside);
  give_up(mempool);
}

static void a_checkpoint_of_such_a_pool_is_restored(void **state) {
  (void)state;
  struct notes notes = {0};
  uint64_t mempool = make_mempool_of(&notes);
  openreg_block *first = take_in(mempool, 0, 0, 512), *second = take_in(mempool, 0, 0, 512);
  void *address = second->address;
  openreg_block_free(first);
  openreg_mempool_checkpoint *checkpoint = NULL;
  openreg_block **blocks = NULL;
  size_t count = 0;
  assert_ok(openreg_mempool_take_checkpoint(0, mempool, &checkpoint));
  openreg_block_free(second);
  assert_ok(openreg_mempool_restore(checkpoint, &blocks, &count));
  assert_int_equal(count, 1);
  assert_ptr_equal(blocks[0]->address, address);
  openreg_block_free(blocks[0]);
  free(blocks);
  free(checkpoint);
  give_up(mempool);
}

static void a_custom_allocator_needs_both_functions(void **state) {
  (void)state;
  openreg_custom_allocator source = {.allocate = &allocate_noted};
  uint64_t mempool;
  assert_status(openreg_mempool_create(0, &source, &mempool), OPENREG_INVALID_ARGUMENT);
  assert_error("has no function that frees");
  assert_status(openreg_set_custom_allocator(&source), OPENREG_INVALID_ARGUMENT);
  source = (openreg_custom_allocator){.free = &free_noted};
  assert_status(openreg_set_custom_allocator(&source), OPENREG_INVALID_ARGUMENT);
  assert_error("has no function that allocates");
  source = source_of(NULL);
  assert_status(openreg_set_custom_allocator(&source), OPENREG_NOT_PERMITTED);
  assert_error("before the first use of a device");
}

struct taker {
  uint64_t mempool;
  bool failed;
};

static void *take_and_free(void *argument) {
  struct taker *taker = argument;
  openreg_block *block = NULL;
  for (int i = 0; i < 50; i++) {
    taker->failed |= openreg_mempool_set_current(0, taker->mempool) != OPENREG_OK ||
                     openreg_block_allocate(0, 0, 512, &block) != OPENREG_OK ||
                     openreg_mempool_set_current(0, 0) != OPENREG_OK;
    openreg_block_free(block);
    taker->failed |= openreg_cache_empty(0) != OPENREG_OK;
  }
  return NULL;
}

/* The lock is free while the custom allocator runs, so other threads can use the device. */
static void threads_may_use_a_device_while_a_custom_allocator_runs(void **state) {
  (void)state;
  struct notes notes = {0};
  struct taker takers[] = {{.mempool = make_mempool_of(&notes)}, {.mempool = 0}};
  pthread_t threads[2];
  for (int i = 0; i < 2; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, &take_and_free, &takers[i]), 0);
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], NULL);
    assert_false(takers[i].failed);
  }
  assert_true(openreg_memory_is_valid(0));
  give_up(takers[0].mempool);
}

/* Runs in its own process, whose devices were never used. */
static int use_a_custom_allocator_for_all(void) {
  struct notes notes = {0};
  openreg_custom_allocator source = source_of(&notes);
  openreg_block *block = NULL, *other = NULL;
  openreg_memory_stats stats;
  bool good = openreg_set_custom_allocator(&source) == OPENREG_OK &&
              openreg_block_allocate(0, 2, 1000, &block) == OPENREG_OK &&
              openreg_block_allocate(0, 2, 5000, &other) == OPENREG_OK;
  good = good && notes.allocations == 2 && notes.bytes[0] == 1000 + 24 && notes.stream == 2 &&
         block->bytes == 1024 && block->requested_bytes == 1000 &&
         openreg_block_find(other->address) == other && openreg_memory_is_valid(0);
  openreg_block_free(block);
  openreg_block_free(other);
  return good && notes.frees == 2 && openreg_memory_get_stats(0, &stats) == OPENREG_OK &&
                 stats.reserved_bytes[ALL].peak == 0 && openreg_memory_is_valid(0)
             ? 0
             : 1;
}

int main(void) {
  configure();
  pid_t child = fork(); /* before the devices are used */
  if (child == 0)
    _exit(use_a_custom_allocator_for_all());
  int status = -1;
  waitpid(child, &status, 0);
  if (status != 0) {
    print_error("each block of a source of the process: status %d\n", status);
    return 1;
  }
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(raw_memory_is_in_no_statistic),
      ON_EMPTY_DEVICES(other_addresses_are_not_freed),
      ON_EMPTY_DEVICES(a_pool_takes_segments_from_its_custom_allocator),
      ON_EMPTY_DEVICES(other_pools_take_segments_from_the_device),
      ON_EMPTY_DEVICES(an_empty_custom_allocator_is_out_of_memory_after_the_cache_was_released),
      ON_EMPTY_DEVICES(a_custom_allocator_may_return_parts_of_a_block),
      ON_EMPTY_DEVICES(memory_that_the_program_does_not_hold_is_refused),
      ON_EMPTY_DEVICES(segments_of_a_custom_allocator_are_not_expandable),
      ON_EMPTY_DEVICES(a_checkpoint_of_such_a_pool_is_restored),
      ON_EMPTY_DEVICES(a_custom_allocator_needs_both_functions),
      ON_EMPTY_DEVICES(threads_may_use_a_device_while_a_custom_allocator_runs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
