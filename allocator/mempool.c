/* mempool.c: which memory pools there are, and which one each thread allocates in.
 *
 * A memory pool is a number, and on each device and stream that allocates in it two pools of its
 * own (pool.c); segments of different pools are never joined. Here is what they have in common: the
 * list of those whose owner has not destroyed them, which keep their free memory when a cache is
 * emptied. A pool that was destroyed lives on as the number that its segments bear.
 */
#include "allocator/internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct mempool {
  uint64_t number;
  unsigned how;
};

/* Numbers in the order in which they were given. */
struct numbers {
  uint64_t *list;
  size_t count, room;
};

/* pools[i].number < pools[i + 1].number; the lock is taken under a device's. */
static struct {
  pthread_mutex_t lock;
  struct mempool *pools;
  size_t count, room;
  uint64_t latest;
  struct numbers unsplit; /* of OPENREG_MEMPOOL_NO_SPLIT; also those of destroyed pools */
} list = {.lock = PTHREAD_MUTEX_INITIALIZER};

atomic_bool openreg_mempools_exist;

/* Each thread's array of current pools, by device. A key, for a thread-local array would be room
 * that every thread has: that of a library which is loaded late is scarce. */
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int key_error;

/* ---- the list -------------------------------------------------------------------------------- */

/* The first pool whose number is `number` or more: where it is, or would be. */
static size_t place_of(uint64_t number) {
  size_t low = 0, high = list.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (list.pools[middle].number < number)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool is_at(size_t place, uint64_t number) {
  return place < list.count && list.pools[place].number == number;
}

static bool append_number(struct numbers *numbers, uint64_t number) {
  if (numbers->count == numbers->room) {
    size_t room = numbers->room ? 2 * numbers->room : 16;
    uint64_t *longer = realloc(numbers->list, room * sizeof *longer);
    if (!longer)
      return false;
    numbers->list = longer;
    numbers->room = room;
  }
  numbers->list[numbers->count++] = number;
  return true;
}

static bool append(unsigned how, uint64_t *mempool) {
  if (list.count == list.room) {
    size_t room = list.room ? 2 * list.room : 16;
    struct mempool *pools = realloc(list.pools, room * sizeof *pools);
    if (!pools)
      return false;
    list.pools = pools;
    list.room = room;
  }
  if (how & OPENREG_MEMPOOL_NO_SPLIT && !append_number(&list.unsplit, list.latest + 1))
    return false;
  list.pools[list.count++] = (struct mempool){++list.latest, how};
  *mempool = list.latest;
  return true;
}

static bool remove_from_list(uint64_t mempool) {
  pthread_mutex_lock(&list.lock);
  size_t place = place_of(mempool);
  bool found = is_at(place, mempool);
  if (found) {
    list.count--;
    memmove(&list.pools[place], &list.pools[place + 1], (list.count - place) * sizeof *list.pools);
  }
  pthread_mutex_unlock(&list.lock);
  return found;
}

bool openreg_mempool_is_kept(uint64_t mempool) {
  if (mempool == 0)
    return false;
  pthread_mutex_lock(&list.lock);
  bool found = is_at(place_of(mempool), mempool);
  pthread_mutex_unlock(&list.lock);
  return found;
}

bool openreg_mempool_is_unsplit(uint64_t mempool) {
  if (mempool == 0)
    return false;
  bool found = false;
  pthread_mutex_lock(&list.lock);
  for (size_t i = 0; i < list.unsplit.count && !found; i++)
    found = list.unsplit.list[i] == mempool;
  pthread_mutex_unlock(&list.lock);
  return found;
}

uint64_t openreg_mempool_next_on_oom(uint64_t mempool) {
  pthread_mutex_lock(&list.lock);
  size_t place = place_of(mempool + 1);
  while (place < list.count && !(list.pools[place].how & OPENREG_MEMPOOL_USE_ON_OOM))
    place++;
  uint64_t next = place < list.count ? list.pools[place].number : 0;
  pthread_mutex_unlock(&list.lock);
  return next;
}

uint64_t openreg_mempool_current_of_thread(int device) {
  const uint64_t *current = pthread_getspecific(key);
  return current ? current[device] : 0;
}

static void make_key(void) {
  key_error = pthread_key_create(&key, free);
}

/* The calling thread's array; NULL without host memory. */
static uint64_t *current_ensure(void) {
  uint64_t *current = pthread_getspecific(key);
  if (current)
    return current;
  current = calloc(OPENREG_MAX_DEVICES, sizeof *current);
  if (current && pthread_setspecific(key, current) != 0) {
    free(current);
    return NULL;
  }
  return current;
}

/* ---- public ---------------------------------------------------------------------------------- */

static openreg_status require_no_bad_fork(void) {
  if (!openreg_in_bad_fork())
    return OPENREG_OK;
  return openreg_fail(OPENREG_BAD_FORK, "openreg: memory pools cannot be used in a process forked "
                                        "after devices were initialized: start it with spawn");
}

static openreg_status refuse(uint64_t mempool) {
  return openreg_fail(OPENREG_INVALID_ARGUMENT,
                      "openreg: memory pool %" PRIu64 " does not exist: expected one that was "
                      "created and not destroyed",
                      mempool);
}

static openreg_status require_mempool(uint64_t mempool) {
  openreg_status status = require_no_bad_fork();
  if (status != OPENREG_OK)
    return status;
  return mempool == 0 || openreg_mempool_is_kept(mempool) ? OPENREG_OK : refuse(mempool);
}

openreg_status openreg_mempool_create(unsigned how, uint64_t *mempool) {
  openreg_status status = require_no_bad_fork();
  if (status != OPENREG_OK)
    return status;
  if (!mempool)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_mempool_create: mempool is NULL");
  const unsigned known = OPENREG_MEMPOOL_USE_ON_OOM | OPENREG_MEMPOOL_NO_SPLIT;
  if (how & ~known)
    return openreg_fail(
        OPENREG_INVALID_ARGUMENT,
        "openreg_mempool_create: how=%u: expected any of OPENREG_MEMPOOL_USE_ON_OOM "
        "(1) and OPENREG_MEMPOOL_NO_SPLIT (2)",
        how);
  pthread_once(&key_once, make_key);
  if (key_error != 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: a key for memory pools: %s", strerror(key_error));
  pthread_mutex_lock(&list.lock);
  bool created = append(how, mempool);
  pthread_mutex_unlock(&list.lock);
  if (!created)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for one more memory pool");
  atomic_store_explicit(&openreg_mempools_exist, true, memory_order_relaxed);
  return OPENREG_OK;
}

/* Empties on all devices, and gives back the first failure. */
static openreg_status empty_everywhere(uint64_t mempool) {
  openreg_status first = OPENREG_OK;
  for (int device = 0; device < OPENREG_MAX_DEVICES; device++) {
    struct allocator *allocator = openreg_allocator_ready(device);
    if (!allocator)
      continue;
    allocator_lock(allocator);
    openreg_status status = openreg_allocator_empty(allocator, &mempool);
    allocator_unlock(allocator);
    if (first == OPENREG_OK)
      first = status;
  }
  return first;
}

openreg_status openreg_mempool_destroy(uint64_t mempool) {
  openreg_status status = require_no_bad_fork();
  if (status != OPENREG_OK)
    return status;
  return remove_from_list(mempool) ? empty_everywhere(mempool) : refuse(mempool);
}

openreg_status openreg_mempool_empty(uint64_t mempool) {
  openreg_status status = require_mempool(mempool);
  return status == OPENREG_OK ? empty_everywhere(mempool) : status;
}

static int64_t count_active(const struct range *range) {
  int64_t count = 0;
  for (const struct block *block = range->edge.next; block != &range->edge; block = block->next)
    count += block_is_active(block);
  return count;
}

openreg_status openreg_mempool_use_count(uint64_t mempool, int64_t *blocks) {
  openreg_status status = require_mempool(mempool);
  if (status != OPENREG_OK)
    return status;
  if (!blocks)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_mempool_use_count: blocks is NULL");
  *blocks = 0;
  for (int device = 0; device < OPENREG_MAX_DEVICES; device++) {
    struct allocator *allocator = openreg_allocator_ready(device);
    if (!allocator)
      continue;
    allocator_lock(allocator);
    for (const struct range *range = &allocator->lowest; range; range = range->above)
      if (range->pool && range->pool->mempool == mempool)
        *blocks += count_active(range);
    allocator_unlock(allocator);
  }
  return OPENREG_OK;
}

openreg_status openreg_mempool_current(int device, uint64_t *mempool) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_peek(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!mempool)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_mempool_current: mempool is NULL");
  *mempool = mempool_current(device);
  return OPENREG_OK;
}

openreg_status openreg_mempool_set_current(int device, uint64_t mempool) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_peek(device, &allocator);
  if (status == OPENREG_OK)
    status = require_mempool(mempool);
  if (status != OPENREG_OK || !atomic_load_explicit(&openreg_mempools_exist, memory_order_relaxed))
    return status;
  uint64_t *current = current_ensure();
  if (!current)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a thread's pools");
  current[device] = mempool;
  return OPENREG_OK;
}
