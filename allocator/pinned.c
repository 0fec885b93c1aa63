/* pinned.c: the pool of pinned host memory.
 *
 * A block is a mapping of its own, or a part of the reserved segment if there is one with room. Its
 * size is the request rounded up to a power of two, or the request itself where the settings say
 * so. Its size class is the logarithm of that size, rounded up. A freed block stays in the list of
 * its class until the cache is emptied, unless it is too large to be cached. One array holds all
 * blocks, including cached ones, in address order: a binary search finds the block that contains an
 * address. The array changes only when blocks are created or destroyed.
 *
 *     directory[i].address + bytes <= directory[i + 1].address
 *     block.is_free  <=> block is in the list of its class
 *
 * If requests are not rounded, the sizes within a class differ. Then a request reuses the block
 * that was freed last among those that are large enough. So does PyTorch since 2.14; earlier
 * releases take the last one even if it is too small.
 *
 * Memory of the reserved segment is used once, from its start to its end. As on CUDA, a block of it
 * that is destroyed leaves the statistics and the array, but its memory stays with the segment.
 *
 * fork takes the lock, so a child never inherits a pool in the middle of a change. Blocks are
 * private mappings, so a child's changes to them and to the pool affect only the child.
 */
#include "allocator/stats.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { FEWEST_ROOM = 512, CLASSES = 64, SEGMENT_STEP = 4096 };

struct pinned_block {
  char *address;
  size_t bytes;
  bool is_free;
  struct pinned_block *after; /* free: the next in the list of its class */
};

struct class {
  struct pinned_block *cached; /* last in, first out */
  openreg_stat active_requests, active_bytes;
};

static struct {
  struct lock lock;
  struct slab records;
  struct pinned_block **directory;
  size_t count, room;
  struct class classes[CLASSES];
  struct {
    bool is_decided; /* whether the first block was created, and with it the segment, if any */
    char *address, *next, *end;
  } segment;
  openreg_pinned_settings settings;
  openreg_pinned_stats stats; /* without the statistics that each class has */
} pool = {.records = {.record_bytes = sizeof(struct pinned_block)},
          .settings = {.max_round_bytes = SIZE_MAX, .max_cached_bytes = SIZE_MAX}};

/* ---- the lock and forks ---------------------------------------------------------------------- */

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int fork_error;

static void before_fork(void) {
  lock_take(&pool.lock);
}

static void after_fork(void) {
  lock_give(&pool.lock);
}

static void register_fork_handler(void) {
  fork_error = openreg_lock_register_fork_handlers(before_fork, after_fork);
}

static void enter(void) {
  pthread_once(&fork_once, register_fork_handler);
  lock_take(&pool.lock);
}

static void leave(void) {
  lock_give(&pool.lock);
}

/* ---- the directory --------------------------------------------------------------------------- */

/* Returns how many blocks start at or below `address`. */
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

/* Returns the block, allocated or cached, that contains an address; or NULL. */
static struct pinned_block *block_containing(const void *address) {
  size_t count = count_up_to(address);
  struct pinned_block *block = count > 0 ? pool.directory[count - 1] : NULL;
  return block && (const char *)address < block->address + block->bytes ? block : NULL;
}

/* Makes room for one more block. An array that became too small is abandoned: all of these together
 * are smaller than the current one. */
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

/* Returns the logarithm of the smallest power of two that is at least `bytes`. */
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

static void *map_pages(size_t bytes) {
  int64_t start_us = now_us();
  void *pages = openreg_pages_map_pinned(bytes);
  if (pages)
    add_since(&pool.stats.host_alloc_time, start_us);
  return pages;
}

/* Reserves the segment before the first block is created, or never. */
static bool segment_ensure(void) {
  if (pool.segment.is_decided)
    return true;
  size_t bytes = pool.settings.reserved_segment_bytes;
  if (bytes > 0) {
    char *pages = map_pages(bytes);
    if (!pages)
      return false;
    pool.segment.address = pool.segment.next = pages;
    pool.segment.end = pages + bytes;
  }
  pool.segment.is_decided = true;
  return true;
}

static char *segment_take(size_t bytes) {
  size_t rounded_bytes = (bytes + SEGMENT_STEP - 1) / SEGMENT_STEP * SEGMENT_STEP;
  if (rounded_bytes > (size_t)(pool.segment.end - pool.segment.next))
    return NULL;
  char *address = pool.segment.next;
  pool.segment.next += rounded_bytes;
  return address;
}

static bool is_of_segment(const struct pinned_block *block) {
  return pool.segment.address <= block->address && block->address < pool.segment.end;
}

static struct pinned_block *create(size_t bytes) {
  if (!slab_ensure(&pool.records, 1) || !directory_ensure() || !segment_ensure())
    return NULL;
  char *address = segment_take(bytes);
  if (!address)
    address = map_pages(bytes);
  if (!address)
    return NULL;
  struct pinned_block *block = slab_take(&pool.records);
  block->address = address;
  block->bytes = bytes;
  directory_insert(block);
  stat_increase(&pool.stats.allocations, 1);
  stat_increase(&pool.stats.allocated_bytes, (int64_t)bytes);
  return block;
}

static openreg_status unmap(const struct pinned_block *block) {
  int64_t start_us = now_us();
  openreg_status status = openreg_pages_unmap(block->address, block->bytes);
  if (status == OPENREG_OK)
    add_since(&pool.stats.host_free_time, start_us);
  return status;
}

static openreg_status destroy(struct pinned_block *block) {
  openreg_status status = is_of_segment(block) ? OPENREG_OK : unmap(block);
  if (status != OPENREG_OK)
    return status;
  directory_remove(block);
  stat_decrease(&pool.stats.allocations, 1);
  stat_decrease(&pool.stats.allocated_bytes, (int64_t)block->bytes);
  slab_put(&pool.records, block);
  return OPENREG_OK;
}

static openreg_status empty(void) {
  for (int i = 0; i < CLASSES; i++)
    while (pool.classes[i].cached) {
      struct pinned_block *block = pool.classes[i].cached, *after = block->after;
      openreg_status status = destroy(block);
      if (status != OPENREG_OK)
        return status;
      pool.classes[i].cached = after;
    }
  return OPENREG_OK;
}

static size_t rounded(size_t bytes) {
  bool is_rounded =
      bytes <= pool.settings.max_round_bytes && bytes <= pool.settings.max_cached_bytes;
  return is_rounded ? (size_t)1 << logarithm(bytes) : bytes;
}

static struct pinned_block *reuse_cached(struct class *class, size_t requested_bytes) {
  struct pinned_block **place = &class->cached;
  while (*place && (*place)->bytes < requested_bytes)
    place = &(*place)->after;
  struct pinned_block *block = *place;
  if (block)
    *place = block->after;
  return block;
}

static openreg_status allocate(size_t requested_bytes, void **address) {
  size_t bytes = rounded(requested_bytes);
  struct class *class = &pool.classes[logarithm(bytes)];
  struct pinned_block *block = reuse_cached(class, requested_bytes);
  if (!block)
    block = create(bytes);
  if (!block) {
    openreg_status status = empty();
    if (status != OPENREG_OK)
      return status;
    block = create(bytes);
  }
  if (!block)
    return OPENREG_OUT_OF_MEMORY;
  block->is_free = false;
  stat_increase(&class->active_requests, 1);
  size_t counted = pool.settings.counts_whole_blocks ? block->bytes : bytes;
  stat_increase(&class->active_bytes, (int64_t)counted);
  *address = block->address;
  return OPENREG_OK;
}

/* A block that the system does not take back stays cached, whatever its size. */
static void cache_or_destroy(struct class *class, struct pinned_block *block) {
  if (block->bytes > pool.settings.max_cached_bytes && destroy(block) == OPENREG_OK)
    return;
  block->is_free = true;
  block->after = class->cached;
  class->cached = block;
}

/* ---- public ---------------------------------------------------------------------------------- */

openreg_status openreg_pinned_allocate(size_t bytes, void **address) {
  if (!address)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_pinned_allocate: address is NULL");
  if (logarithm(bytes) >= CLASSES)
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: %zu bytes of pinned memory exceed the address space", bytes);
  if (bytes == 0) {
    *address = NULL;
    return OPENREG_OK;
  }
  enter();
  openreg_status status =
      fork_error == 0 ? allocate(bytes, address)
                      : openreg_fail(OPENREG_SYSTEM, "openreg: cannot register a fork handler: %s",
                                     strerror(fork_error));
  leave();
  return status;
}

void openreg_pinned_free(void *address) {
  if (!address)
    return;
  enter();
  struct pinned_block *block = block_containing(address);
  assert(block && block->address == address && !block->is_free);
  struct class *class = &pool.classes[logarithm(block->bytes)];
  stat_decrease(&class->active_requests, 1);
  stat_decrease(&class->active_bytes, (int64_t)block->bytes);
  cache_or_destroy(class, block);
  leave();
}

bool openreg_pinned_contains(const void *address) {
  enter();
  const struct pinned_block *block = block_containing(address);
  bool contains = block && !block->is_free;
  leave();
  openreg_host_range range;
  return contains || openreg_host_find(address, &range);
}

openreg_status openreg_pinned_empty_cache(void) {
  enter();
  openreg_status status = empty();
  leave();
  return status;
}

openreg_status openreg_pinned_set_settings(const openreg_pinned_settings *settings) {
  if (!settings)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_pinned_set_settings: settings is NULL");
  if (settings->reserved_segment_bytes % SEGMENT_STEP != 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_pinned_set_settings: reserved_segment_bytes=%zu: expected a "
                        "multiple of %d",
                        settings->reserved_segment_bytes, SEGMENT_STEP);
  enter();
  pool.settings = *settings;
  leave();
  return OPENREG_OK;
}

void openreg_pinned_get_settings(openreg_pinned_settings *settings) {
  enter();
  *settings = pool.settings;
  leave();
}

static void stat_add(openreg_stat *sum, const openreg_stat *stat) {
  sum->current += stat->current;
  sum->peak += stat->peak;
  sum->allocated += stat->allocated;
  sum->freed += stat->freed;
}

openreg_status openreg_pinned_get_stats(openreg_pinned_stats *stats) {
  if (!stats)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_pinned_get_stats: stats is NULL");
  enter();
  *stats = pool.stats;
  for (int i = 0; i < CLASSES; i++) {
    stat_add(&stats->active_requests, &pool.classes[i].active_requests);
    stat_add(&stats->active_bytes, &pool.classes[i].active_bytes);
  }
  leave();
  return OPENREG_OK;
}

/* Calls `change` on every statistic and `change_duration` on every duration. */
static void each_stat(void (*change)(openreg_stat *stat),
                      void (*change_duration)(openreg_duration *duration)) {
  enter();
  change(&pool.stats.allocations);
  change(&pool.stats.allocated_bytes);
  for (int i = 0; i < CLASSES; i++) {
    change(&pool.classes[i].active_requests);
    change(&pool.classes[i].active_bytes);
  }
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
