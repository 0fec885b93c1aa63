/* test_check.c: openreg_memory_is_valid finds broken invariants. Each test breaks one thing
 * directly, checks, and repairs it. */
#include "support.h"

#include "allocator/internal.h"

static struct allocator *opened(void) {
  struct allocator *allocator;
  assert_ok(openreg_allocator_open(0, &allocator));
  return allocator;
}

static void assert_broken(const char *message) {
  assert_false(openreg_memory_is_valid(0));
  assert_error("the allocator of device 0 is broken");
  assert_error(message);
}

#define assert_breaks(place, value, message)                                                       \
  do {                                                                                             \
    __typeof__(place) mended = (place);                                                            \
    (place) = (value);                                                                             \
    assert_broken(message);                                                                        \
    (place) = mended;                                                                              \
    assert_true(openreg_memory_is_valid(0));                                                       \
  } while (0)

/* An allocated block, and the free one above it, which together fill a small segment. */
static struct block *used;
static struct block *rest;

static int one_block(void **state) {
  devices_reset(state);
  used = block_of(take(0, 0, 4096));
  rest = used->next;
  return 0;
}

static int no_block(void **state) {
  openreg_block_free(&used->base);
  return devices_check(state);
}

/* ---- blocks and segments --------------------------------------------------------------------- */

static void where_blocks_lie(void **state) {
  (void)state;
  assert_breaks(used->base.bytes, 0, "of 0 bytes does not lie where it should");
  assert_breaks(used->base.bytes, 4096 + 17, "of 4113 bytes does not lie");
  assert_breaks(used->base.bytes, 4 * MIB, "does not lie where it should");
  assert_breaks(rest->base.address, used->base.address, "does not lie where it should");
  assert_breaks(rest->prev, rest, "is not linked where it lies");
  assert_breaks(rest->base.bytes, 512, "do not fill it");
}

static void what_blocks_show(void **state) {
  (void)state;
  struct allocator *allocator = opened();
  struct segment other = *used->segment;
  assert_breaks(used->base.bytes, 3584, "has 3584 bytes of 4096 requested");
  assert_breaks(used->base.requested_bytes, 0, "of 0 requested");
  assert_breaks(used->base.stream, 3, "not of its segment's pool and stream");
  assert_breaks(used->base.device, 1, "not of its segment's pool and stream");
  assert_breaks(used->pool, &allocator->pools[OPENREG_POOL_LARGE], "not of its segment's pool");
  assert_breaks(used->segment, &other, "of another segment");
  assert_breaks(*address_map_slot(allocator, used->base.address), NULL, "is not found");
  assert_breaks(*address_map_slot(allocator, block_address(rest) + 512), rest, "starts of blocks");
}

static void states_of_blocks(void **state) {
  (void)state;
  struct block **start = address_map_slot(opened(), used->base.address);
  assert_breaks(used->state, BLOCK_FREE, "were not merged");
  assert_breaks(rest->state, BLOCK_UNMAPPED, "is not mapped");
  assert_breaks(rest->state, BLOCK_PARKED, "has state 3");
  assert_breaks(used->state, BLOCK_IMPORTED, "has state 7");
  assert_breaks(used->state, BLOCK_AWAITING_STREAMS, "is found by its address");
  *start = NULL;
  used->state = BLOCK_AWAITING_IMPORTERS;
  assert_broken("is not shared");
  used->state = BLOCK_AWAITING_STREAMS;
  used->is_shared = true;
  assert_broken("is shared");
  used->is_shared = false;
  used->state = BLOCK_ALLOCATED;
  *start = used;
}

static void unmapped_blocks(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = true;
  set_settings(settings);
  openreg_block *block = take(0, 0, 3 * MIB);
  struct segment *segment = block_of(block)->segment;
  struct block *unmapped = block_of(block)->next->next;
  assert_int_equal(unmapped->state, BLOCK_UNMAPPED);
  assert_breaks(segment->page_bytes, 12 * MIB, "is not mapped");
  assert_breaks(unmapped->state, BLOCK_FREE, "were not merged");
  openreg_block_free(block);
}

/* Segments of 2, 20 and 20 MiB; the second one is released. */
static void segments(void **state) {
  (void)state;
  struct allocator *allocator = opened();
  openreg_block *gone = take(0, 0, 3 * MIB), *held = take(0, 1, 3 * MIB);
  struct segment *low = used->segment, *high = block_of(held)->segment;
  openreg_block_free(gone);
  assert_ok(openreg_cache_empty(0));
  assert_ptr_equal(low->above, high);
  assert_breaks(high->below, high, "is not linked where it lies");
  assert_breaks(low->bytes, 40 * MIB, "is not linked where it lies");
  assert_breaks(high->bytes, 512, "do not fill it");
  assert_breaks(high->pool, low->pool, "not of its segment's pool");
  assert_breaks(allocator->last_contiguous, high, "there is a gap below segment");
  assert_breaks(allocator->arena_bytes, 2 * MIB, "do not fit into the arena");
  openreg_block_free(held);
}

/* ---- trees and lists ------------------------------------------------------------------------- */

/* Three free blocks between others: the root has a child, which is on the wrong side when swapped.
 */
static void free_blocks_in_their_order(void **state) {
  (void)state;
  openreg_block *blocks[6];
  for (int i = 0; i < 6; i++)
    blocks[i] = take(0, 0, (size_t)(1 + i) * 4096);
  for (int i = 0; i < 6; i += 2)
    openreg_block_free(blocks[i]);
  assert_true(openreg_memory_is_valid(0));
  struct block *root = used->pool->free, *child = root->left;
  assert_true(root->left || root->right);
  root->left = root->right;
  root->right = child;
  assert_broken("free blocks are not in order");
  root->right = root->left;
  root->left = child;
  assert_true(openreg_memory_is_valid(0));
  for (int i = 1; i < 6; i += 2)
    openreg_block_free(blocks[i]);
}

static void free_blocks_that_are_in_no_pool(void **state) {
  (void)state;
  assert_breaks(used->pool->free, NULL, "1 blocks are free, 0 are in pools");
}

static void private_pools(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block *block = take_in(mempool, 0, 0, 512);
  struct private_pool *own = block_of(block)->pool->owner;
  struct pool *unused = &own->pools[OPENREG_POOL_LARGE];
  assert_breaks(own->segments, 2, "a private pool has 1 segments, not 2");
  assert_breaks(unused->owner, NULL, "not in order");
  assert_breaks(unused->kind, OPENREG_POOL_SMALL, "not in order");
  openreg_block_free(block);
  assert_ok(openreg_mempool_release(mempool));
}

static void blocks_that_wait_for_streams(void **state) {
  (void)state;
  struct allocator *allocator = opened();
  struct block **start = address_map_slot(allocator, used->base.address);
  assert_breaks(allocator->event_count, 1, "are not those that are listed");
  *start = NULL;
  used->state = BLOCK_AWAITING_STREAMS;
  used->events = 0;
  assert_broken("are not those that are listed");
  used->events = 2;
  assert_broken("are not those that are listed");
  used->state = BLOCK_ALLOCATED;
  *start = used;
}

static void blocks_that_wait_for_processes(void **state) {
  (void)state;
  struct allocator *allocator = opened();
  struct block **start = address_map_slot(allocator, used->base.address);
  used->waiting = NULL;
  assert_breaks(allocator->awaiting_importers, used, "waits for no process");
  assert_breaks(allocator->imports, used, "does not show what it is");
  *start = NULL;
  used->state = BLOCK_AWAITING_IMPORTERS;
  used->is_shared = true;
  assert_broken("1 blocks await importers, 0 are listed");
  used->state = BLOCK_ALLOCATED;
  used->is_shared = false;
  *start = used;
}

/* ---- records and statistics ------------------------------------------------------------------ */

static void records(void **state) {
  (void)state;
  struct allocator *allocator = opened();
  struct slab *blocks = &allocator->blocks, *segments = &allocator->segments;
  assert_breaks(blocks->made, blocks->made + 1, "3 records of blocks are taken, 2 blocks exist");
  assert_breaks(segments->made, segments->available, "0 records of segments are taken, 1 segments");
  assert_breaks(allocator->stream_uses.made, allocator->stream_uses.made + 1,
                "1 records of uses are taken, 0");
  assert_breaks(allocator->empty_blocks, 1, "2 records of blocks are taken, 3 blocks exist");
}

static void statistics(void **state) {
  (void)state;
  openreg_memory_stats *stats = &opened()->stats;
#define X(name)                                                                                    \
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++) {                                          \
    assert_breaks(stats->name[kind].current, 77, #name " is 77, the sum is ");                     \
    assert_breaks(stats->name[kind].peak, -1, "the peak of " #name " is -1");                      \
  }
  OPENREG_MEMORY_STAT_LIST(X)
#undef X
}

#define ON_ONE_BLOCK(test) cmocka_unit_test_setup_teardown(test, one_block, no_block)

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_ONE_BLOCK(where_blocks_lie),
      ON_ONE_BLOCK(what_blocks_show),
      ON_ONE_BLOCK(states_of_blocks),
      ON_ONE_BLOCK(unmapped_blocks),
      ON_ONE_BLOCK(segments),
      ON_ONE_BLOCK(free_blocks_in_their_order),
      ON_ONE_BLOCK(free_blocks_that_are_in_no_pool),
      ON_ONE_BLOCK(private_pools),
      ON_ONE_BLOCK(blocks_that_wait_for_streams),
      ON_ONE_BLOCK(blocks_that_wait_for_processes),
      ON_ONE_BLOCK(records),
      ON_ONE_BLOCK(statistics),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
