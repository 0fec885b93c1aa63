/* mempool.c: which memory pools exist, and in which one each thread allocates.
 *
 * A memory pool is identified by a number. On each device that uses it, it has a small and a large
 * pool of its own (pool.c). This file has what they share: the list of pools that are kept, by
 * users or by threads that allocate there. A kept pool retains its free memory when the cache is
 * emptied. A pool that is not kept lives on only as the number of its segments.
 */
#include "allocator/internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct mempool {
  uint64_t number;
  unsigned flags;
  openreg_custom_allocator custom;
  int64_t users;
  int threads; /* how many threads and devices have it as their current pool */
};

/* pools[i].number < pools[i + 1].number. The lock is taken while a device's lock is held. */
static struct {
  pthread_mutex_t lock;
  struct mempool *pools;
  size_t count, room;
  uint64_t latest;
} list = {.lock = PTHREAD_MUTEX_INITIALIZER};

atomic_bool openreg_mempools_exist;

/* Each thread's array of current pools, by device. A pthread key, not a thread-local array: static
 * thread-local storage is scarce for a library that is loaded late, and every thread would pay for
 * it. */
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int key_error;

/* ---- the list -------------------------------------------------------------------------------- */

/* Returns the index of the first pool whose number is `number` or larger. */
static size_t index_of(uint64_t number) {
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

static bool insert(size_t place, const struct mempool *pool) {
  if (list.count == list.room) {
    size_t room = list.room ? 2 * list.room : 16;
    struct mempool *pools = realloc(list.pools, room * sizeof *pools);
    if (!pools)
      return false;
    list.pools = pools;
    list.room = room;
  }
  struct mempool *at = &list.pools[place];
  memmove(at + 1, at, (list.count - place) * sizeof *at);
  *at = *pool;
  list.count++;
  return true;
}

/* Removes a pool from the list unless it is kept. */
static void remove_unless_kept(size_t place) {
  const struct mempool *pool = &list.pools[place];
  if (pool->users > 0 || pool->threads > 0)
    return;
  list.count--;
  memmove(&list.pools[place], &list.pools[place + 1], (list.count - place) * sizeof *list.pools);
}

static uint64_t next_number(void) {
  pthread_mutex_lock(&list.lock);
  uint64_t number = ++list.latest;
  pthread_mutex_unlock(&list.lock);
  return number;
}

/* Adds a user to a pool, and adds the pool if necessary. */
static bool add_user(const struct mempool *pool) {
  pthread_mutex_lock(&list.lock);
  size_t place = index_of(pool->number);
  bool found = is_at(place, pool->number) || insert(place, pool);
  if (found)
    list.pools[place].users++;
  pthread_mutex_unlock(&list.lock);
  return found;
}

static bool drop_user(uint64_t mempool) {
  pthread_mutex_lock(&list.lock);
  size_t place = index_of(mempool);
  bool found = is_at(place, mempool) && list.pools[place].users > 0;
  if (found) {
    list.pools[place].users--;
    remove_unless_kept(place);
  }
  pthread_mutex_unlock(&list.lock);
  return found;
}

static void add_thread(uint64_t mempool, int change) {
  pthread_mutex_lock(&list.lock);
  size_t place = index_of(mempool);
  if (is_at(place, mempool)) {
    list.pools[place].threads += change;
    remove_unless_kept(place);
  }
  pthread_mutex_unlock(&list.lock);
}

int64_t openreg_mempool_use_count(uint64_t mempool) {
  pthread_mutex_lock(&list.lock);
  size_t place = index_of(mempool);
  int64_t users = is_at(place, mempool) ? list.pools[place].users : 0;
  pthread_mutex_unlock(&list.lock);
  return users;
}

bool openreg_mempool_is_kept(uint64_t mempool) {
  if (mempool == 0)
    return false;
  pthread_mutex_lock(&list.lock);
  bool found = is_at(index_of(mempool), mempool);
  pthread_mutex_unlock(&list.lock);
  return found;
}

void openreg_mempool_get_options(struct private_pool *pool) {
  pthread_mutex_lock(&list.lock);
  size_t place = index_of(pool->mempool);
  if (is_at(place, pool->mempool)) {
    pool->is_unsplit = list.pools[place].flags & OPENREG_MEMPOOL_NO_SPLIT;
    pool->custom = list.pools[place].custom;
  }
  pthread_mutex_unlock(&list.lock);
}

static bool was_named(uint64_t mempool) {
  pthread_mutex_lock(&list.lock);
  bool named = mempool != 0 && mempool <= list.latest;
  pthread_mutex_unlock(&list.lock);
  return named;
}

uint64_t openreg_mempool_next_on_oom(uint64_t mempool) {
  uint64_t next = 0;
  pthread_mutex_lock(&list.lock);
  for (size_t i = 0; i < list.count; i++) {
    const struct mempool *pool = &list.pools[i];
    if (pool->users > 0 && pool->flags & OPENREG_MEMPOOL_USE_ON_OOM &&
        mempool_hash(pool->number) > mempool_hash(mempool) &&
        (next == 0 || mempool_hash(pool->number) < mempool_hash(next)))
      next = pool->number;
  }
  pthread_mutex_unlock(&list.lock);
  return next;
}

uint64_t openreg_mempool_current_of(int device, int stream) {
  uint64_t captured = openreg_captures_exist() ? openreg_stream_capture_mempool(device, stream) : 0;
  const uint64_t *current = pthread_getspecific(key);
  return captured != 0 ? captured : current ? current[device] : 0;
}

static void set_current(uint64_t *current, int device, uint64_t mempool) {
  uint64_t before = current[device];
  if (mempool != 0)
    add_thread(mempool, 1);
  current[device] = mempool;
  if (before != 0)
    add_thread(before, -1);
}

/* Runs when a thread ends. */
static void drop_current(void *current) {
  for (int device = 0; device < OPENREG_MAX_DEVICES; device++)
    set_current(current, device, 0);
  free(current);
}

static void make_key(void) {
  key_error = pthread_key_create(&key, drop_current);
}

/* Returns the calling thread's array; NULL if the host has no memory. */
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

static openreg_status refuse(uint64_t mempool) {
  return openreg_fail(OPENREG_INVALID_ARGUMENT,
                      "openreg: memory pool %" PRIu64 " does not exist: expected one that was "
                      "created and is in use",
                      mempool);
}

openreg_status openreg_mempool_require(uint64_t mempool) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status != OPENREG_OK)
    return status;
  return mempool == 0 || openreg_mempool_use_count(mempool) > 0 ? OPENREG_OK : refuse(mempool);
}

/* As on CUDA, so that emptying the pool is counted even if it was never used. */
static bool open_on_current_device(uint64_t mempool) {
  struct allocator *allocator = openreg_allocator_ready(openreg_device_current());
  if (!allocator)
    return true;
  allocator_lock(allocator);
  bool opened = openreg_private_pool_open(allocator, mempool) != NULL;
  allocator_unlock(allocator);
  return opened;
}

static openreg_status retain(const struct mempool *pool) {
  pthread_once(&key_once, make_key);
  if (key_error != 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: cannot create a thread key for memory pools: %s",
                        strerror(key_error));
  bool kept = add_user(pool);
  if (!kept || !open_on_current_device(pool->number)) {
    if (kept)
      drop_user(pool->number);
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: out of host memory for a new memory pool");
  }
  atomic_store_explicit(&openreg_mempools_exist, true, memory_order_relaxed);
  return OPENREG_OK;
}

openreg_status openreg_mempool_create(unsigned flags, const openreg_custom_allocator *custom,
                                      uint64_t *mempool) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status != OPENREG_OK)
    return status;
  if (!mempool)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_mempool_create: mempool is NULL");
  const unsigned known = OPENREG_MEMPOOL_USE_ON_OOM | OPENREG_MEMPOOL_NO_SPLIT;
  if (flags & ~known)
    return openreg_fail(
        OPENREG_INVALID_ARGUMENT,
        "openreg_mempool_create: flags=%u: expected any of OPENREG_MEMPOOL_USE_ON_OOM "
        "(1) and OPENREG_MEMPOOL_NO_SPLIT (2)",
        flags);
  status = openreg_custom_allocator_require(custom);
  if (status != OPENREG_OK)
    return status;
  struct mempool pool = {.number = next_number(), .flags = flags};
  if (custom)
    pool.custom = *custom;
  status = retain(&pool);
  if (status == OPENREG_OK)
    *mempool = pool.number;
  return status;
}

openreg_status openreg_mempool_allocate_id(uint64_t *mempool) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status != OPENREG_OK)
    return status;
  if (!mempool)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_mempool_allocate_id: mempool is NULL");
  *mempool = next_number();
  return OPENREG_OK;
}

openreg_status openreg_mempool_retain(uint64_t mempool) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status != OPENREG_OK)
    return status;
  return was_named(mempool) ? retain(&(struct mempool){.number = mempool}) : refuse(mempool);
}

openreg_status openreg_mempool_release(uint64_t mempool) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status != OPENREG_OK)
    return status;
  return drop_user(mempool) ? OPENREG_OK : refuse(mempool);
}

/* Empties the pool on all devices. Returns the first error. */
static openreg_status empty_everywhere(uint64_t mempool) {
  openreg_status first = OPENREG_OK;
  for (int device = 0; device < OPENREG_MAX_DEVICES; device++) {
    struct allocator *allocator = openreg_allocator_ready(device);
    if (!allocator)
      continue;
    allocator_lock(allocator);
    openreg_status status = OPENREG_OK;
    if (openreg_private_pool_find(allocator, mempool))
      status = openreg_allocator_empty(allocator, &mempool);
    allocator_unlock(allocator);
    if (first == OPENREG_OK)
      first = status;
  }
  return first;
}

openreg_status openreg_mempool_empty(uint64_t mempool) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status != OPENREG_OK)
    return status;
  if (!was_named(mempool))
    return refuse(mempool);
  return openreg_mempool_is_kept(mempool) ? OPENREG_OK : empty_everywhere(mempool);
}

openreg_status openreg_mempool_current(int device, uint64_t *mempool) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_get_existing(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!mempool)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_mempool_current: mempool is NULL");
  int stream;
  status = openreg_stream_current(device, &stream);
  if (status == OPENREG_OK)
    *mempool = mempool_current(device, stream);
  return status;
}

openreg_status openreg_mempool_set_current(int device, uint64_t mempool) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_get_existing(device, &allocator);
  if (status == OPENREG_OK)
    status = openreg_mempool_require(mempool);
  if (status != OPENREG_OK || !atomic_load_explicit(&openreg_mempools_exist, memory_order_relaxed))
    return status;
  uint64_t *current = current_ensure();
  if (!current)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: out of host memory for a thread's pools");
  set_current(current, device, mempool);
  return OPENREG_OK;
}
