/* share.h: which pieces of a kernel's work belong to a share. */
#ifndef OPENREG_GENERATOR_SHARE_H
#define OPENREG_GENERATOR_SHARE_H

#include "generator/generator.h"

#include <assert.h>

/* Pieces first, ..., end - 1. */
typedef struct pieces {
  uint64_t first, end;
} pieces;

/* Returns the first of `count` pieces that belongs to share `index` or a later one. It computes in
 * two steps, because the product of count and index may exceed 64 bits. */
static inline uint64_t share_start(uint64_t count, uint64_t index, uint64_t shares) {
  return count / shares * index + count % shares * index / shares;
}

static inline pieces pieces_of(openreg_share share, uint64_t count) {
  assert(share.index < share.count);
  return (pieces){share_start(count, share.index, share.count),
                  share_start(count, (uint64_t)share.index + 1, share.count)};
}

#endif
