/* mempool.c: memory in the order of streams (cudaMallocAsync), and the pools that keep it.
 *
 * A freed block stays in its pool with the stream on which it was freed and an event behind the
 * work that uses it. A later request takes the smallest sufficient block that
 *
 * - was freed on the same stream, whose order protects it, or
 * - whose event was reached.
 *
 * When the host waits for work, free blocks go back to the device until the pool holds no more than
 * its release threshold, which is 0 at first. Returning memory waits for the device's work
 * (openreg_device_free), so this happens only while all streams of the device are idle.
 *
 * Blocks are not split: each is a multiple of 2 MiB, and a request takes no block of more than
 * twice its size. Statistics count whole blocks.
 */
#include "cudart/internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { GRANULE_BYTES = 2 << 20 };

struct free_block {
  void *address;
  size_t bytes;
  int stream;
  openreg_event *event;
  struct free_block *next;
};

struct CUmemPoolHandle_st {
  int device;
  bool is_destroyed; /* lives on until all its memory is freed */
  uint64_t threshold;
  uint64_t reserved, reserved_high, used, used_high;
  int reuse[3]; /* the cudaMemPoolReuse... settings, which have no effect */
  struct free_block *free;
  struct CUmemPoolHandle_st *next; /* of the device */
};

/* The first pool of a device's list is its default pool. */
static struct {
  struct CUmemPoolHandle_st *first;
  struct CUmemPoolHandle_st *current; /* cudaDeviceSetMemPool; NULL: the default pool */
} devices[OPENREG_MAX_DEVICES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- pools ----------------------------------------------------------------------------------- */

/* Appends a pool to the device's list. NULL: no host memory. */
static cudaMemPool_t add_pool(int device) {
  cudaMemPool_t pool = calloc(1, sizeof *pool);
  if (pool == NULL)
    return NULL;
  pool->device = device;
  for (int i = 0; i < 3; i++)
    pool->reuse[i] = 1;
  struct CUmemPoolHandle_st **place = &devices[device].first;
  while (*place != NULL)
    place = &(*place)->next;
  *place = pool;
  return pool;
}

static cudaMemPool_t default_pool(int device) {
  return devices[device].first != NULL ? devices[device].first : add_pool(device);
}

/* Whether this is a pool that the program may name. */
static bool is_pool(cudaMemPool_t pool) {
  for (int i = 0; i < OPENREG_MAX_DEVICES; i++)
    for (cudaMemPool_t other = devices[i].first; other != NULL; other = other->next)
      if (other == pool)
        return !pool->is_destroyed;
  return false;
}

static cudaError_t fail_pool(const char *function) {
  return cudart_fail(cudaErrorInvalidValue, "%s: memPool is not a memory pool", function);
}

static void raise_to(uint64_t *high, uint64_t value) {
  if (*high < value)
    *high = value;
}

/* ---- free blocks ----------------------------------------------------------------------------- */

static bool is_usable(const struct free_block *block, int stream) {
  return block->stream == stream || openreg_event_query(block->event) == OPENREG_OK;
}

static struct free_block *take_free(cudaMemPool_t pool, size_t bytes, int stream) {
  struct free_block **best = NULL;
  for (struct free_block **place = &pool->free; *place != NULL; place = &(*place)->next) {
    size_t has = (*place)->bytes;
    bool fits = has >= bytes && has / 2 <= bytes;
    if (fits && (best == NULL || has < (*best)->bytes) && is_usable(*place, stream))
      best = place;
  }
  struct free_block *block = best != NULL ? *best : NULL;
  if (block != NULL)
    *best = block->next;
  return block;
}

static bool is_device_idle(int device) {
  for (int i = 0; i < OPENREG_STREAMS_PER_DEVICE; i++)
    if (!openreg_stream_is_idle(device, i))
      return false;
  return true;
}

/* Returns free blocks to the device until the pool holds at most `keep` bytes. */
static void trim(cudaMemPool_t pool, uint64_t keep) {
  while (pool->free != NULL && pool->reserved > keep && is_device_idle(pool->device)) {
    struct free_block *block = pool->free;
    pool->free = block->next;
    pool->reserved -= block->bytes;
    (void)cudart_release(block->address);
    openreg_event_destroy(block->event);
    free(block);
  }
}

void cudart_trim_pools(int device) {
  pthread_mutex_lock(&lock);
  for (cudaMemPool_t pool = devices[device].first; pool != NULL; pool = pool->next)
    trim(pool, pool->is_destroyed ? 0 : pool->threshold);
  pthread_mutex_unlock(&lock);
}

/* ---- allocation ------------------------------------------------------------------------------ */

static openreg_status allocate_new(cudaMemPool_t pool, size_t bytes, void **address) {
  openreg_status status = cudart_allocate(pool->device, bytes, pool, address);
  if (status == OPENREG_OUT_OF_MEMORY && openreg_device_drain(pool->device) == OPENREG_OK) {
    for (cudaMemPool_t other = devices[pool->device].first; other != NULL; other = other->next)
      trim(other, 0);
    status = cudart_allocate(pool->device, bytes, pool, address);
  }
  if (status == OPENREG_OK) {
    pool->reserved += bytes;
    raise_to(&pool->reserved_high, pool->reserved);
  }
  return status;
}

static openreg_status allocate(cudaMemPool_t pool, size_t size, int stream, void **address) {
  size_t bytes = (size + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
  if (bytes < size)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: %zu bytes exceed the address space", size);
  struct free_block *block = take_free(pool, bytes, stream);
  openreg_status status = OPENREG_OK;
  if (block != NULL) {
    *address = block->address;
    bytes = block->bytes;
    openreg_event_destroy(block->event);
    free(block);
  } else {
    status = allocate_new(pool, bytes, address);
  }
  if (status == OPENREG_OK) {
    pool->used += bytes;
    raise_to(&pool->used_high, pool->used);
  }
  return status;
}

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t memPool,
                                    cudaStream_t stream) {
  if (ptr == NULL)
    return cudart_fail_null(__func__, "ptr");
  struct cudart_stream found;
  cudaError_t error = cudart_find_stream(stream, &found);
  if (error != cudaSuccess)
    return error;
  *ptr = NULL;
  openreg_status status =
      openreg_capture_refuse(found.device, found.number, "allocating memory in stream order");
  if (status != OPENREG_OK || size == 0)
    return cudart_return(status);
  pthread_mutex_lock(&lock);
  bool is_valid = is_pool(memPool);
  if (is_valid)
    status = allocate(memPool, size, memPool->device == found.device ? found.number : -1, ptr);
  pthread_mutex_unlock(&lock);
  if (!is_valid)
    return fail_pool(__func__);
  if (status == OPENREG_OK)
    cudart_report_memory(OPENREG_OPERATION_ALLOCATED, memPool->device, *ptr, size);
  return cudart_return(status);
}

cudaError_t cudaMallocAsync(void **devPtr, size_t size, cudaStream_t hStream) {
  struct cudart_stream found;
  cudaMemPool_t pool;
  cudaError_t error = cudart_find_stream(hStream, &found);
  if (error == cudaSuccess)
    error = cudaDeviceGetMemPool(&pool, found.device);
  return error == cudaSuccess ? cudaMallocFromPoolAsync(devPtr, size, pool, hStream) : error;
}

/* Puts a block into its pool, behind the work that was submitted to the stream so far. */
static openreg_status put_free(const struct cudart_allocation *allocation, int stream) {
  struct free_block *block = malloc(sizeof *block);
  if (block == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory to free memory");
  *block = (struct free_block){allocation->address, allocation->bytes, stream, NULL, NULL};
  openreg_status status = openreg_event_create(allocation->device, false, &block->event);
  if (status == OPENREG_OK)
    status = openreg_event_record(block->event, stream);
  if (status != OPENREG_OK) {
    openreg_event_destroy(block->event);
    free(block);
    return status;
  }
  cudart_report_memory(OPENREG_OPERATION_FREE, allocation->device, allocation->address,
                       allocation->bytes);
  cudaMemPool_t pool = allocation->pool;
  pthread_mutex_lock(&lock);
  block->next = pool->free;
  pool->free = block;
  pool->used -= block->bytes;
  pthread_mutex_unlock(&lock);
  return OPENREG_OK;
}

static bool is_free(cudaMemPool_t pool, const void *address) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (const struct free_block *block = pool->free; block != NULL; block = block->next)
    found |= block->address == address;
  pthread_mutex_unlock(&lock);
  return found;
}

cudaError_t cudaFreeAsync(void *devPtr, cudaStream_t hStream) {
  struct cudart_stream found;
  struct cudart_allocation allocation;
  cudaError_t error = cudart_find_stream(hStream, &found);
  if (error != cudaSuccess || devPtr == NULL)
    return error;
  openreg_status status =
      openreg_capture_refuse(found.device, found.number, "freeing memory in stream order");
  if (status == OPENREG_OK)
    status = cudart_order(found);
  if (status != OPENREG_OK)
    return cudart_return(status);
  if (!cudart_find_allocation(devPtr, &allocation) || allocation.address != devPtr ||
      allocation.pool == NULL || is_free(allocation.pool, devPtr))
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaFreeAsync: no memory of cudaMallocAsync starts at %p", devPtr);
  if (allocation.device != found.device)
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaFreeAsync: memory and stream belong to different devices");
  return cudart_return(put_free(&allocation, found.number));
}

openreg_status cudart_free_pooled(const struct cudart_allocation *allocation) {
  if (is_free(allocation->pool, allocation->address))
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: the memory at %p was freed already",
                        (void *)allocation->address);
  openreg_status status = openreg_device_drain(allocation->device);
  if (status == OPENREG_OK)
    status = put_free(allocation, OPENREG_STREAM_DEFAULT);
  if (status == OPENREG_OK)
    cudart_trim_pools(allocation->device);
  return status;
}

void cudart_reset_pools(int device) {
  pthread_mutex_lock(&lock);
  while (devices[device].first != NULL) {
    cudaMemPool_t pool = devices[device].first;
    devices[device].first = pool->next;
    while (pool->free != NULL) {
      struct free_block *block = pool->free;
      pool->free = block->next;
      openreg_event_destroy(block->event);
      free(block);
    }
    free(pool);
  }
  devices[device].current = NULL;
  pthread_mutex_unlock(&lock);
}

/* ---- the interface of pools ------------------------------------------------------------------ */

static cudaError_t find_pool(cudaMemPool_t *memPool, int device, bool wants_default) {
  if (memPool == NULL)
    return cudart_fail_null("cudaDeviceGetMemPool", "memPool");
  cudaError_t error = cudart_check_device(device);
  if (error != cudaSuccess)
    return error;
  pthread_mutex_lock(&lock);
  cudaMemPool_t current = devices[device].current;
  *memPool = wants_default || current == NULL ? default_pool(device) : current;
  pthread_mutex_unlock(&lock);
  return *memPool != NULL
             ? cudaSuccess
             : cudart_fail(cudaErrorMemoryAllocation, "openreg: no host memory for a memory pool");
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *memPool, int device) {
  return find_pool(memPool, device, true);
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *memPool, int device) {
  return find_pool(memPool, device, false);
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t memPool) {
  cudaError_t error = cudart_check_device(device);
  if (error != cudaSuccess)
    return error;
  pthread_mutex_lock(&lock);
  bool is_valid = is_pool(memPool) && memPool->device == device;
  if (is_valid)
    devices[device].current = memPool;
  pthread_mutex_unlock(&lock);
  return is_valid ? cudaSuccess : fail_pool(__func__);
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *memPool, const struct cudaMemPoolProps *poolProps) {
  if (memPool == NULL || poolProps == NULL)
    return cudart_fail_null(__func__, memPool == NULL ? "memPool" : "poolProps");
  if (poolProps->location.type != cudaMemLocationTypeDevice ||
      poolProps->handleTypes != cudaMemHandleTypeNone)
    return cudart_refuse(__func__, "pools of host memory, and pools that are shared by a handle");
  cudaMemPool_t pool;
  cudaError_t error = find_pool(&pool, poolProps->location.id, true);
  if (error != cudaSuccess)
    return error;
  pthread_mutex_lock(&lock);
  *memPool = add_pool(poolProps->location.id);
  pthread_mutex_unlock(&lock);
  return *memPool != NULL
             ? cudaSuccess
             : cudart_fail(cudaErrorMemoryAllocation, "openreg: no host memory for a memory pool");
}

/* The pool's memory stays usable; what is freed later goes back to the device. */
cudaError_t cudaMemPoolDestroy(cudaMemPool_t memPool) {
  pthread_mutex_lock(&lock);
  bool is_valid = is_pool(memPool) && memPool != devices[memPool->device].first;
  if (is_valid) {
    memPool->is_destroyed = true;
    if (devices[memPool->device].current == memPool)
      devices[memPool->device].current = NULL;
    trim(memPool, 0);
  }
  pthread_mutex_unlock(&lock);
  return is_valid ? cudaSuccess : fail_pool(__func__);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep) {
  pthread_mutex_lock(&lock);
  bool is_valid = is_pool(memPool);
  if (is_valid)
    trim(memPool, minBytesToKeep);
  pthread_mutex_unlock(&lock);
  return is_valid ? cudaSuccess : fail_pool(__func__);
}

/* Returns where the attribute is kept, and its size; NULL for an unknown one. */
static void *find_attribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, size_t *bytes) {
  *bytes = sizeof(uint64_t);
  switch (attr) {
  case cudaMemPoolReuseFollowEventDependencies:
  case cudaMemPoolReuseAllowOpportunistic:
  case cudaMemPoolReuseAllowInternalDependencies:
    *bytes = sizeof(int);
    return &pool->reuse[attr - cudaMemPoolReuseFollowEventDependencies];
  case cudaMemPoolAttrReleaseThreshold:
    return &pool->threshold;
  case cudaMemPoolAttrReservedMemCurrent:
    return &pool->reserved;
  case cudaMemPoolAttrReservedMemHigh:
    return &pool->reserved_high;
  case cudaMemPoolAttrUsedMemCurrent:
    return &pool->used;
  case cudaMemPoolAttrUsedMemHigh:
    return &pool->used_high;
  }
  return NULL;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value) {
  size_t bytes;
  pthread_mutex_lock(&lock);
  void *place = value != NULL && is_pool(memPool) ? find_attribute(memPool, attr, &bytes) : NULL;
  if (place != NULL)
    memcpy(value, place, bytes);
  pthread_mutex_unlock(&lock);
  return place != NULL ? cudaSuccess
                       : cudart_fail(cudaErrorInvalidValue,
                                     "cudaMemPoolGetAttribute: expected a pool, one of its "
                                     "attributes and an address");
}

/* The peaks can only be set to 0, which sets them to the current values. */
static bool set_attribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, const void *value) {
  size_t bytes;
  void *place = find_attribute(pool, attr, &bytes);
  if (place == NULL || attr == cudaMemPoolAttrReservedMemCurrent ||
      attr == cudaMemPoolAttrUsedMemCurrent)
    return false;
  bool is_peak = attr == cudaMemPoolAttrReservedMemHigh || attr == cudaMemPoolAttrUsedMemHigh;
  if (is_peak && *(const uint64_t *)value != 0)
    return false;
  if (is_peak)
    *(uint64_t *)place = attr == cudaMemPoolAttrUsedMemHigh ? pool->used : pool->reserved;
  else
    memcpy(place, value, bytes);
  return true;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value) {
  pthread_mutex_lock(&lock);
  bool is_set = value != NULL && is_pool(memPool) && set_attribute(memPool, attr, value);
  pthread_mutex_unlock(&lock);
  return is_set ? cudaSuccess
                : cudart_fail(cudaErrorInvalidValue,
                              "cudaMemPoolSetAttribute: expected a pool, an attribute that can be "
                              "set and its value");
}

/* All devices can always access all memory. */
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t memPool, const struct cudaMemAccessDesc *descList,
                                 size_t count) {
  (void)descList;
  (void)count;
  pthread_mutex_lock(&lock);
  bool is_valid = is_pool(memPool);
  pthread_mutex_unlock(&lock);
  return is_valid ? cudaSuccess : fail_pool(__func__);
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t memPool,
                                 struct cudaMemLocation *location) {
  if (flags == NULL || location == NULL)
    return cudart_fail_null(__func__, flags == NULL ? "flags" : "location");
  *flags = cudaMemAccessFlagsProtReadWrite;
  return cudaMemPoolSetAccess(memPool, NULL, 0);
}
