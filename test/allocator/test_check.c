/* test_check.c: openreg_memory_is_valid sees what is broken. Each test breaks one thing behind the
 * allocator's back, looks, and mends it.
 */
#include "support.h"

#include "allocator/internal.h"

static struct allocator *opened(void) {
  struct allocator *allocator;
  assert_ok(openreg_allocator_open(0, &allocator));
  return allocator;
}

static void assert_broken(const char *sentence) {
  assert_false(openreg_memory_is_valid(0));
  assert_sentence("the allocator of device 0 is broken");
  assert_sentence(sentence);
}

#define assert_breaks(place, value, sentence)                                                      \
  do {                                                                                             \
    __typeof__(place) mended = (place);                                                            \
    (place) = (value);                                                                             \
    assert_broken(sentence);                                                                       \
    (place) = mended;                                                                              \
    assert_true(openreg_memory_is_valid(0));                                                       \
  } while (0)

/* A block in use, and the free one above it. */
static struct block *used;
static struct block *rest;

static int one_block(void **state) {
  devices_reset(state);
  used = block_of(take(0, 0, 4096));
  rest = used->next;
  return 0;
}

static int no_block(void **state) {
  openreg_block_free(&used->shown);
  return devices_check(state);
}

static void blocks(void **state) {
  (void)state;
  struct allocator *allocator = opened();
  struct pool *large = &allocator->pools[0][1];
  assert_breaks(used->shown.bytes, 0, "has 0 bytes");
  assert_breaks(used->shown.bytes, 4096 + 17, "has 4113 bytes");
  assert_breaks(used->shown.bytes, 4 * MIB, "has 4194304 bytes");
  assert_breaks(used->shown.bytes, 3584, "does not show what it is");
  assert_breaks(used->shown.requested_bytes, 0, "does not show what it is");
  assert_breaks(used->shown.stream, 3, "does not show what it is");
  assert_breaks(used->shown.device, 1, "does not show what it is");
  assert_breaks(rest->shown.address, used->shown.address, "is not linked where it lies");
  assert_breaks(rest->prev, rest, "is not linked where it lies");
  assert_breaks(rest->shown.bytes, 512, "do not fill it");
  assert_breaks(used->pool, large, "not of its segment's pool");
  assert_breaks(used->state, BLOCK_FREE, "were not merged");
  assert_breaks(rest->streams[0], 2, "is used by a stream");
  assert_breaks(used->state, BLOCK_EDGE, "has state 1");
  assert_breaks(used->state, BLOCK_IMPORTED, "has state 7");
  assert_breaks(used->state, BLOCK_AWAITING_IMPORTERS, "is not shared");
  assert_breaks(rest->is_shared, true, "is shared");
  assert_breaks(used->state, BLOCK_DEFERRED, "is found by its address");
  assert_breaks(*allocator_start(allocator, used->shown.address), NULL, "is not found");
  assert_breaks(*allocator_start(allocator, block_address(rest) + 512), rest, "starts of blocks");
}

static void ranges(void **state) {
  (void)state;
  struct allocator *allocator = opened();
  struct range *low = &allocator->lowest, *segment = low->above;
  assert_non_null(segment);
  assert_breaks(segment->below, segment, "is not linked where it lies");
  assert_breaks(segment->bytes, 512, "has 512 bytes");
  assert_breaks(segment->address, low->address, "has 2097152 bytes");
  assert_breaks(segment->pool, NULL, "was not joined");
  assert_breaks(low->edge.next, used, "has blocks");
  assert_breaks(low->above, NULL, "do not fill the arena");
}

static void lists(void **state) {
  (void)state;
  struct allocator *allocator = opened();
  struct pool *pool = used->pool;
  /* A free block of each sort of list: 4 KiB, and the rest, which is in the tree. */
  struct block *hole = block_of(take(0, 0, 4096));
  openreg_block *wall = take(0, 0, 512);
  openreg_block_free(&hole->shown);
  assert_breaks(pool->free.summary, 0, "disagrees with itself");
  assert_breaks(pool->free.occupied[0], 0, "disagrees with itself");
  assert_breaks(pool->free.occupied[1], 1, "disagrees with itself");
  assert_breaks(hole->before, hole, "disagrees with itself");
  assert_breaks(pool->free.tree, hole, "disagrees with itself");
  assert_breaks(pool->free.tree, NULL, "2 blocks are free, 1 are in free lists");
  assert_breaks(hole->state, BLOCK_PARKED, "has state 3");
  assert_breaks(allocator->deferred, used, "waits for nothing");
  assert_breaks(allocator->awaiting, used, "waits for no process");
  assert_breaks(allocator->imports, used, "does not show what it is");
  openreg_block_free(wall);
}

/* Two blocks in the tree: the root has one child, on the wrong side when swapped. */
static void the_tree(void **state) {
  (void)state;
  openreg_block *blocks[4];
  for (int i = 0; i < 4; i++)
    blocks[i] = take(0, 0, (size_t)(2 + i) * MIB);
  openreg_block_free(blocks[0]);
  openreg_block_free(blocks[2]);
  openreg_block_free(blocks[3]);
  struct block *root = block_of(blocks[1])->pool->free.tree, *child = root->less;
  root->less = root->greater;
  root->greater = child;
  assert_broken("disagrees with itself");
  root->greater = root->less;
  root->less = child;
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(blocks[1]);
}

static void deferred_blocks(void **state) {
  (void)state;
  struct allocator *allocator = opened();
  struct block **start = allocator_start(allocator, used->shown.address);
  *start = NULL;
  used->state = BLOCK_DEFERRED;
  assert_broken("1 blocks are deferred, 0 are listed");
  used->state = BLOCK_ALLOCATED;
  *start = used;
}

static void pools(void **state) {
  (void)state;
  struct allocator *allocator = opened();
  struct pool *small = used->pool, *large = small + 1;
  assert_breaks(small->reserved_bytes, 0, "has reserved 0 bytes, its ranges are 2097152");
  assert_breaks(large->reserved_bytes, 512, "has reserved 512 bytes, its ranges are 0");
  assert_breaks(large->mempool, 1, "are not themselves");
  assert_breaks(small->kind, OPENREG_POOL_LARGE, "are not themselves");
  assert_breaks(large->stream, 1, "are not themselves");
  assert_breaks(allocator->pools[0], NULL, "are not themselves");
  assert_breaks(allocator->all_pools, NULL, "a segment is of a pool that is not listed");
  assert_breaks(allocator->spare_pools, small, "a spare pool of stream 0 is in use");
}

static void shared_blocks(void **state) {
  (void)state;
  struct block **start = allocator_start(opened(), used->shown.address);
  *start = NULL;
  used->state = BLOCK_AWAITING_IMPORTERS;
  used->is_shared = true;
  assert_broken("1 blocks await importers, 0 are listed");
  used->state = BLOCK_ALLOCATED;
  used->is_shared = false;
  *start = used;
}

static void records(void **state) {
  (void)state;
  struct allocator *allocator = opened();
  struct slab *blocks = &allocator->blocks, *ranges = &allocator->ranges;
  assert_breaks(blocks->made, blocks->made + 1, "3 records of blocks are taken, 2 blocks exist");
  assert_breaks(ranges->made, ranges->available, "0 records of ranges are taken, 2 ranges exist");
  assert_breaks(allocator->empty_blocks, 1, "2 records of blocks are taken, 3 blocks exist");
}

static void statistics(void **state) {
  (void)state;
  openreg_memory_stats *stats = &opened()->stats;
#define X(name)                                                                                    \
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++)                                            \
    assert_breaks(stats->name[kind].peak, -1, #name " is ");
  OPENREG_MEMORY_STAT_LIST(X)
#undef X
  for (int kind = OPENREG_POOL_SMALL; kind <= OPENREG_POOL_LARGE; kind++) {
    struct tally *tally = &opened()->tallies[kind];
    assert_breaks(tally->room.live.blocks, 77, "allocation is ");
    assert_breaks(tally->room.live.bytes, 77, "allocated_bytes is ");
    assert_breaks(tally->room.live.requested_bytes, 77, "requested_bytes is ");
    assert_breaks(tally->waiting.blocks, 77, "active is ");
    assert_breaks(tally->waiting.bytes, 77, "active_bytes is ");
    assert_breaks(tally->room.splits.pieces, 77, "inactive_split is ");
    assert_breaks(tally->room.splits.bytes, 77, "inactive_split_bytes is ");
    assert_breaks(stats->segment[kind].current, 77, "segment is ");
    assert_breaks(stats->reserved_bytes[kind].current, 77, "reserved_bytes is ");
  }
  struct headroom *all = &opened()->tallies[OPENREG_POOL_ALL].room;
  assert_breaks(all->live.blocks, 77, "do not add up");
  assert_breaks(all->live.bytes, 77, "do not add up");
  assert_breaks(all->live.requested_bytes, 77, "do not add up");
  assert_breaks(all->splits.pieces, 77, "do not add up");
  assert_breaks(all->splits.bytes, 77, "do not add up");
}

#define ON_ONE_BLOCK(test) cmocka_unit_test_setup_teardown(test, one_block, no_block)

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_ONE_BLOCK(blocks),   ON_ONE_BLOCK(ranges),          ON_ONE_BLOCK(lists),
      ON_ONE_BLOCK(the_tree), ON_ONE_BLOCK(deferred_blocks), ON_ONE_BLOCK(shared_blocks),
      ON_ONE_BLOCK(pools),    ON_ONE_BLOCK(records),         ON_ONE_BLOCK(statistics),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
