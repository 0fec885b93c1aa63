/* pinned.c: the pool of pinned host memory.
 *
 * A block is a mapping of its own, as long as the request rounded up to a power of two. It lives on
 * in a list of its size when it is freed, until the cache is emptied. All blocks, cached ones too,
 * are kept in one array in the order of their addresses: a binary search finds the block that an
 * address lies in, and the array moves only when the system gives or takes a mapping.
 *
 *   directory[i].address + bytes <= directory[i + 1].address
 *   block.is_free  <=> block is in the list of its size
 *
 * fork takes the lock, so that a child never inherits the pool half changed. Blocks are private
 * mappings: what a child does to them, and to the pool, is its own.
 */
#include "allocator/stats.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { FEWEST_ROOM = 512, SIZES = 64 };

struct pinned_block {
  char *address;
  size_t bytes;
  bool is_free;
  struct pinned_block *after; /* free: in the list of its size */
};

static struct {
  struct lock lock;
  struct slab records;
  struct pinned_block **directory;
  size_t count, room;
  struct pinned_block *cached[SIZES]; /* by the logarithm of their size, last in, first out */
  openreg_pinned_stats stats;
} pool = {.records = {.record_bytes = sizeof(struct pinned_block)}};

/* ---- the lock, and forks --------------------------------------------------------------------- */

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int fork_error;

static void before_fork(void) {
  lock_take(&pool.lock);
}

static void after_fork(void) {
  lock_give(&pool.lock);
}

static void watch_forks(void) {
  fork_error = openreg_lock_watch_forks(before_fork, after_fork);
}

static void enter(void) {
  pthread_once(&fork_once, watch_forks);
  lock_take(&pool.lock);
}

static void leave(void) {
  lock_give(&pool.lock);
}

/* ---- the directory --------------------------------------------------------------------------- */

/* How many blocks begin at `address` or below it. */
static size_t count_up_to(const char *address) {
  size_t low = 0, high = pool.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (pool.directory[middle]->address <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The block, allocated or cached, that an address lies in. */
static struct pinned_block *block_around(const void *address) {
  size_t count = count_up_to(address);
  struct pinned_block *block = count > 0 ? pool.directory[count - 1] : NULL;
  return block && (const char *)address < block->address + block->bytes ? block : NULL;
}

/* Makes sure of room for one more block. An array that became too short is left behind: all of
 * these together are shorter than the one that is used. */
static bool directory_ensure(void) {
  if (pool.count < pool.room)
    return true;
  size_t room = pool.room > 0 ? 2 * pool.room : FEWEST_ROOM;
  struct pinned_block **longer = openreg_pages_map(room * sizeof *longer);
  if (!longer)
    return false;
  if (pool.count > 0)
    memcpy(longer, pool.directory, pool.count * sizeof *longer);
  pool.directory = longer;
  pool.room = room;
  return true;
}

static void directory_insert(struct pinned_block *block) {
  size_t at = count_up_to(block->address);
  struct pinned_block **place = pool.directory + at;
  memmove(place + 1, place, (pool.count - at) * sizeof *place);
  *place = block;
  pool.count++;
}

static void directory_remove(const struct pinned_block *block) {
  size_t end = count_up_to(block->address);
  struct pinned_block **after = pool.directory + end;
  assert(after[-1] == block);
  memmove(after - 1, after, (pool.count - end) * sizeof *after);
  pool.count--;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The logarithm of the smallest power of two that is not less than `bytes`. */
static int logarithm(size_t bytes) {
  return bytes > 1 ? 64 - __builtin_clzll(bytes - 1) : 0;
}

static int64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void add_since(openreg_duration *duration, int64_t start_us) {
  int64_t spent = now_us() - start_us;
  duration->total += spent;
  duration->count++;
  if (spent > duration->max)
    duration->max = spent;
  if (duration->min == 0 || spent < duration->min)
    duration->min = spent;
}

static struct pinned_block *create(size_t bytes) {
  if (!slab_ensure(&pool.records, 1) || !directory_ensure())
    return NULL;
  int64_t start_us = now_us();
  void *pages = openreg_pages_map_pinned(bytes);
  if (!pages)
    return NULL;
  add_since(&pool.stats.host_alloc_time, start_us);
  struct pinned_block *block = slab_take(&pool.records);
  block->address = pages;
  block->bytes = bytes;
  directory_insert(block);
  stat_increase(&pool.stats.allocations, 1);
  stat_increase(&pool.stats.allocated_bytes, (int64_t)bytes);
  return block;
}

static openreg_status destroy(struct pinned_block *block) {
  int64_t start_us = now_us();
  openreg_status status = openreg_pages_unmap(block->address, block->bytes);
  if (status != OPENREG_OK)
    return status;
  add_since(&pool.stats.host_free_time, start_us);
  directory_remove(block);
  stat_decrease(&pool.stats.allocations, 1);
  stat_decrease(&pool.stats.allocated_bytes, (int64_t)block->bytes);
  slab_put(&pool.records, block);
  return OPENREG_OK;
}

static openreg_status empty(void) {
  for (int size = 0; size < SIZES; size++)
    while (pool.cached[size]) {
      struct pinned_block *block = pool.cached[size], *after = block->after;
      openreg_status status = destroy(block);
      if (status != OPENREG_OK)
        return status;
      pool.cached[size] = after;
    }
  return OPENREG_OK;
}

static openreg_status allocate(int size, void **address) {
  struct pinned_block *block = pool.cached[size];
  if (block)
    pool.cached[size] = block->after;
  else
    block = create((size_t)1 << size);
  if (!block) {
    openreg_status status = empty();
    if (status != OPENREG_OK)
      return status;
    block = create((size_t)1 << size);
  }
  if (!block)
    return OPENREG_OUT_OF_MEMORY;
  block->is_free = false;
  stat_increase(&pool.stats.active_requests, 1);
  stat_increase(&pool.stats.active_bytes, (int64_t)block->bytes);
  *address = block->address;
  return OPENREG_OK;
}

/* ---- public ---------------------------------------------------------------------------------- */

openreg_status openreg_pinned_allocate(size_t bytes, void **address) {
  if (!address)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_pinned_allocate: address is NULL");
  int size = logarithm(bytes);
  if (size >= SIZES)
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: %zu bytes of pinned memory: more than there are addresses",
                        bytes);
  if (bytes == 0) {
    *address = NULL;
    return OPENREG_OK;
  }
  enter();
  openreg_status status =
      fork_error == 0
          ? allocate(size, address)
          : openreg_fail(OPENREG_SYSTEM, "openreg: watching for forks: %s", strerror(fork_error));
  leave();
  return status;
}

void openreg_pinned_free(void *address) {
  if (!address)
    return;
  enter();
  struct pinned_block *block = block_around(address);
  assert(block && block->address == address && !block->is_free);
  int size = logarithm(block->bytes);
  block->is_free = true;
  block->after = pool.cached[size];
  pool.cached[size] = block;
  stat_decrease(&pool.stats.active_requests, 1);
  stat_decrease(&pool.stats.active_bytes, (int64_t)block->bytes);
  leave();
}

bool openreg_pinned_contains(const void *address) {
  enter();
  const struct pinned_block *block = block_around(address);
  bool contains = block && !block->is_free;
  leave();
  return contains;
}

openreg_status openreg_pinned_empty_cache(void) {
  enter();
  openreg_status status = empty();
  leave();
  return status;
}

openreg_status openreg_pinned_get_stats(openreg_pinned_stats *stats) {
  if (!stats)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_pinned_get_stats: stats is NULL");
  enter();
  *stats = pool.stats;
  leave();
  return OPENREG_OK;
}

/* Calls `change` on every statistic, and the other one on every duration. */
static void each_stat(void (*change)(openreg_stat *stat),
                      void (*change_duration)(openreg_duration *duration)) {
  enter();
#define X(name) change(&pool.stats.name);
  OPENREG_PINNED_STAT_LIST(X)
#undef X
  change_duration(&pool.stats.host_alloc_time);
  change_duration(&pool.stats.host_free_time);
  leave();
}

static void duration_reset_peak(openreg_duration *duration) {
  duration->min = duration->max = 0;
}

static void duration_reset_accumulated(openreg_duration *duration) {
  duration->total = duration->count = 0;
}

void openreg_pinned_reset_peak(void) {
  each_stat(stat_reset_peak, duration_reset_peak);
}

void openreg_pinned_reset_accumulated(void) {
  each_stat(stat_reset_accumulated, duration_reset_accumulated);
}
