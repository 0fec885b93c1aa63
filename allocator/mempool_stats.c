/* mempool_stats.c: what each memory pool has reserved of a device.
 *
 * One account for each pool that ever allocated there, for good, as with CUDA: `current` falls to 0
 * when the pool is gone, and the rest tells what it was. An account is made before its pool can
 * reserve anything, so that accounting cannot fail.
 */
#include "allocator/stats.h"

#include <stdlib.h>
#include <string.h>

static openreg_mempool_stats *account_of(const struct allocator *allocator, uint64_t mempool) {
  for (size_t i = allocator->accounts.count; i-- > 0;)
    if (allocator->accounts.list[i].mempool == mempool)
      return &allocator->accounts.list[i];
  return NULL;
}

bool openreg_mempool_account_open(struct allocator *allocator, uint64_t mempool) {
  struct accounts *accounts = &allocator->accounts;
  if (mempool == 0 || account_of(allocator, mempool))
    return true;
  if (accounts->count == accounts->room) {
    size_t room = accounts->room ? 2 * accounts->room : 64;
    openreg_mempool_stats *longer = openreg_pages_map(room * sizeof *longer);
    if (!longer)
      return false;
    if (accounts->count > 0)
      memcpy(longer, accounts->list, accounts->count * sizeof *longer);
    accounts->list = longer;
    accounts->room = room;
  }
  accounts->list[accounts->count++] = (openreg_mempool_stats){.mempool = mempool};
  return true;
}

void openreg_mempool_account(struct allocator *allocator, const struct pool *pool, int64_t change) {
  if (pool->owner)
    stats_change(account_of(allocator, pool_mempool(pool))->reserved_bytes, pool->kind, change);
}

void openreg_mempool_accounts_each(struct allocator *allocator,
                                   void (*change)(openreg_stat *stat)) {
  for (size_t i = 0; i < allocator->accounts.count; i++)
    for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++)
      change(&allocator->accounts.list[i].reserved_bytes[kind]);
}

/* ---- public ---------------------------------------------------------------------------------- */

openreg_status openreg_mempool_get_stats(int device, openreg_mempool_stats **stats, size_t *count) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_peek(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!stats || !count)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_mempool_get_stats: stats or count is NULL");
  openreg_mempool_stats *copy = NULL;
  size_t copied = 0;
  if (allocator) {
    allocator_lock(allocator);
    copied = allocator->accounts.count;
    copy = copied ? malloc(copied * sizeof *copy) : NULL;
    if (copy)
      memcpy(copy, allocator->accounts.list, copied * sizeof *copy);
    allocator_unlock(allocator);
  }
  if (copied && !copy)
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: no host memory for the statistics of %zu memory pools", copied);
  *stats = copy;
  *count = copied;
  return OPENREG_OK;
}
