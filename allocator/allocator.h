/* allocator.h: the whole contract of the caching allocators: device memory, and pinned host memory.
 *
 * One allocator a device, over that device's arena. Sizes are rounded up to 512 bytes and counted
 * as CUDA's caching allocator counts them, so that figures agree with a GPU's. Freed blocks stay
 * with the stream that they were allocated on and are used again by it; neighbours merge.
 * The allocator works on addresses only and never touches the memory behind them.
 *
 * Thread-safe throughout. Errors are device.h's, as are those of OPENREG_DEVICE_COUNT and the like:
 * INVALID_CONFIGURATION wherever a device is named. In a process forked after initialization
 * nothing works but pinned memory, and nothing blocks: what returns a status fails with BAD_FORK.
 */
#ifndef OPENREG_ALLOCATOR_H
#define OPENREG_ALLOCATOR_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A piece of device memory. The fields shown are constant while the block is allocated, except
 * `user`, which belongs to whoever holds the block: NULL when allocated, never read here. */
typedef struct openreg_block {
  void *address; /* device view, 512-byte aligned; NULL for a block of 0 bytes */
  size_t bytes;  /* requested_bytes rounded up to a multiple of 512 */
  size_t requested_bytes;
  void *user;
  int32_t device;
  int32_t stream;
} openreg_block;

/* Allocates for use on `stream`. A request that does not fit is tried again after the device's
 * cached memory was given back. A request of 0 bytes gives a block with no address that counts as
 * nothing. Errors: INVALID_DEVICE, INVALID_ARGUMENT (stream), OUT_OF_MEMORY (the state is as
 * before but for the emptied cache), BAD_FORK, INVALID_CONFIGURATION, SYSTEM. */
openreg_status openreg_block_allocate(int device, int stream, size_t bytes, openreg_block **block);

/* Gives a block back. Ownership passes; NULL is allowed. In a forked process it does nothing, since
 * the memory is the parent's. Giving back twice is a programming mistake. */
void openreg_block_free(openreg_block *block);

/* The allocated block that starts at `address`, or NULL; constant time. Does not take ownership. */
openreg_block *openreg_block_find(const void *address);

/* Says that work on `stream` also uses the block: its memory is not used again before that work is
 * done. The block's own stream and blocks of 0 bytes need nothing. Errors: INVALID_ARGUMENT,
 * BAD_FORK. */
openreg_status openreg_block_record_stream(openreg_block *block, int stream);

/* ---- the cache ------------------------------------------------------------------------------- */

/* Gives the memory that is cached and not allocated back to the system, ledger and pages, in whole
 * steps of 2 MiB; waits for streams that freed blocks wait for. A device that was never used is
 * left alone. Errors: INVALID_DEVICE, BAD_FORK, SYSTEM. */
openreg_status openreg_cache_empty(int device);

/* At most `fraction` (0 to 1) of the device's capacity may be reserved by this process.
 * What is reserved already stays. 1 for a device that was never used. Errors: INVALID_DEVICE,
 * INVALID_ARGUMENT, BAD_FORK; of set also SYSTEM. */
openreg_status openreg_memory_set_fraction(int device, double fraction);
openreg_status openreg_memory_get_fraction(int device, double *fraction);

/* ---- statistics ------------------------------------------------------------------------------ */

typedef struct openreg_stat {
  int64_t current, peak, allocated, freed; /* allocated and freed accumulate */
} openreg_stat;

enum { OPENREG_POOL_ALL, OPENREG_POOL_SMALL, OPENREG_POOL_LARGE, OPENREG_POOL_KINDS };

/* X(name): the statistics that exist for each kind of pool. The names are CUDA's. The small pool
 * holds requests of up to 1 MiB. Names that end in _bytes are sums, the others counts. */
/* clang-format off */
#define OPENREG_MEMORY_STAT_LIST(X)                                                 \
  X(allocation)           /* blocks the program holds */                            \
  X(segment)              /* ranges reserved for one pool; adjacent ones are one */ \
  X(active)               /* blocks held, or still in use by a stream */            \
  X(inactive_split)       /* free blocks, as far as emptying cannot give back */    \
  X(allocated_bytes)                                                                \
  X(reserved_bytes)                                                                 \
  X(active_bytes)                                                                   \
  X(inactive_split_bytes)                                                           \
  X(requested_bytes)
/* clang-format on */

typedef struct openreg_memory_stats {
#define X(name) openreg_stat name[OPENREG_POOL_KINDS];
  OPENREG_MEMORY_STAT_LIST(X)
#undef X
  int64_t alloc_retries; /* times the cache was emptied to satisfy a request */
  int64_t ooms;          /* requests that failed all the same */
  int64_t device_allocs; /* times memory was reserved from the arena */
  int64_t device_frees;  /* times it was given back */
} openreg_memory_stats;

/* One consistent picture, in which for each kind
 *     reserved_bytes == active_bytes + inactive_split_bytes + what emptying the cache gives back.
 * Zeros for a device that was not used. Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK. */
openreg_status openreg_memory_get_stats(int device, openreg_memory_stats *stats);

/* Sets peaks to the current values; sets accumulated sums and counters to zero.
 * Errors: INVALID_DEVICE, BAD_FORK. */
openreg_status openreg_memory_reset_peak(int device);
openreg_status openreg_memory_reset_accumulated(int device);

/* Walks every structure of a device's allocator and checks its invariants: for tests.
 * Returns false and records the sentence when one is broken, or the device cannot be looked at. */
bool openreg_memory_is_valid(int device);

/* ---- pinned host memory ---------------------------------------------------------------------- */

/* Host memory for copies to and from devices. On a GPU it is locked in place so that the device can
 * reach it while the host works on. A simulated device reaches all memory of its process, so here
 * "pinned" says that the memory came from this pool, which knows it again by its address; nothing
 * is locked, and pages are committed when they are first touched.
 *
 * As in CUDA's caching host allocator, sizes are rounded up to powers of two, blocks are never cut
 * or merged, and a freed block is used again by requests of its rounded size, whatever it then
 * holds. Freeing does not wait: work that uses the block must have finished.
 *
 * The pool belongs to no device and initializes none. It also works in a forked process, whatever
 * was initialized before: that has its own copy of every block, and may free what it inherited. */

/* Allocates page-aligned memory; new memory is zeroed. 0 bytes have no address (NULL) and count as
 * nothing. When the host has none left, cached blocks are given back and it is tried again.
 * Errors: INVALID_ARGUMENT (NULL), OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_pinned_allocate(size_t bytes, void **address);

/* Gives a block back by its first address; NULL is allowed. Any other address, and giving back
 * twice, is a programming mistake. */
void openreg_pinned_free(void *address);

/* Whether an address lies inside an allocated block, of its rounded size. */
bool openreg_pinned_contains(const void *address);

/* Gives the cached blocks back to the system. Errors: SYSTEM (the block in question stays). */
openreg_status openreg_pinned_empty_cache(void);

/* X(name): the statistics, under the names of torch.cuda.host_memory_stats, all of rounded sizes.
 * Its num_host_alloc and num_host_free are allocations.allocated and allocations.freed. */
/* clang-format off */
#define OPENREG_PINNED_STAT_LIST(X)                            \
  X(active_requests)      /* blocks the program holds */       \
  X(active_bytes)                                              \
  X(allocations)          /* blocks there are: held, cached */ \
  X(allocated_bytes)
/* clang-format on */

typedef struct openreg_pinned_stats {
#define X(name) openreg_stat name;
  OPENREG_PINNED_STAT_LIST(X)
#undef X
} openreg_pinned_stats;

/* One consistent picture. Errors: INVALID_ARGUMENT (NULL). */
openreg_status openreg_pinned_get_stats(openreg_pinned_stats *stats);

/* As openreg_memory_reset_peak and openreg_memory_reset_accumulated. */
void openreg_pinned_reset_peak(void);
void openreg_pinned_reset_accumulated(void);

#ifdef __cplusplus
}
#endif
#endif
