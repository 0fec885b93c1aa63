/* freelist.c: the free blocks of one pool, and the search for the best among them.
 *
 * Blocks of up to 1 MiB are kept by exact size, in one list for each multiple of 512 bytes, last
 * in, first out; two levels of bits find the next size that has any with two instructions. Larger
 * ones are kept in a treap: a binary tree ordered by (size, address) whose nodes are also a heap
 * by a rank hashed from the address, which makes its depth O(log n) as expected over addresses,
 * without anything to rebalance. Both give best fit, the tree with the highest address among
 * equals: recorded training steps then reserve as much or less than with the lowest.
 */
#include "allocator/freelist.h"

/* ---- larger ones ----------------------------------------------------------------------------- */

static bool precedes(const struct block *block, const struct block *other) {
  if (block->shown.bytes != other->shown.bytes)
    return block->shown.bytes < other->shown.bytes;
  return block_address(block) > block_address(other);
}

/* Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4): 2^64 / golden ratio. */
static uint32_t rank(const struct block *block) {
  return (uint32_t)(((uintptr_t)block->shown.address / UNIT_BYTES * UINT64_C(0x9E3779B97F4A7C15)) >>
                    32);
}

void openreg_freelist_tree_insert(struct block **link, struct block *block) {
  while (*link && rank(*link) >= rank(block))
    link = precedes(block, *link) ? &(*link)->less : &(*link)->greater;
  /* What hung here is split into what precedes the block and what follows it. */
  struct block *rest = *link, **less = &block->less, **greater = &block->greater;
  *link = block;
  while (rest) {
    if (precedes(rest, block)) {
      *less = rest;
      less = &rest->greater;
      rest = rest->greater;
    } else {
      *greater = rest;
      greater = &rest->less;
      rest = rest->less;
    }
  }
  *less = *greater = NULL;
}

/* Puts what hangs under a block in its place. */
static void replace_by_children(struct block **link, struct block *block) {
  struct block *less = block->less, *greater = block->greater;
  while (less && greater) {
    if (rank(less) >= rank(greater)) {
      *link = less;
      link = &less->greater;
      less = less->greater;
    } else {
      *link = greater;
      link = &greater->less;
      greater = greater->less;
    }
  }
  *link = less ? less : greater;
}

void openreg_freelist_tree_remove(struct block **link, struct block *block) {
  while (*link != block) {
    assert(*link);
    link = precedes(block, *link) ? &(*link)->less : &(*link)->greater;
  }
  replace_by_children(link, block);
}

struct block *openreg_freelist_tree_take(struct block **link, size_t bytes) {
  struct block **best = NULL;
  while (*link) {
    if ((*link)->shown.bytes >= bytes) {
      best = link;
      link = &(*link)->less;
    } else {
      link = &(*link)->greater;
    }
  }
  if (!best)
    return NULL;
  struct block *block = *best;
  replace_by_children(best, block);
  return block;
}

/* ---- validation ------------------------------------------------------------------------------ */

static bool class_is_valid(const struct freelist *list, size_t size_class, size_t *count) {
  const struct block *before = NULL;
  for (const struct block *block = list->classes[size_class]; block; block = block->after) {
    if (block->state != BLOCK_FREE || class_of(block->shown.bytes) != size_class ||
        block->before != before)
      return false;
    before = block;
    ++*count;
  }
  bool bit = list->occupied[size_class / 64] >> size_class % 64 & 1;
  return bit == (before != NULL);
}

/* Walks in order; `last` is the block visited before. */
static bool tree_is_valid(const struct block *tree, const struct block **last, size_t *count) {
  if (!tree)
    return true;
  if ((tree->less && rank(tree->less) > rank(tree)) ||
      (tree->greater && rank(tree->greater) > rank(tree)) || tree->state != BLOCK_FREE ||
      tree->shown.bytes <= SMALL_BYTES)
    return false;
  if (!tree_is_valid(tree->less, last, count))
    return false;
  if (*last && !precedes(*last, tree))
    return false;
  *last = tree;
  ++*count;
  return tree_is_valid(tree->greater, last, count);
}

bool openreg_freelist_is_valid(const struct freelist *list, size_t *count) {
  for (size_t size_class = 0; size_class < CLASS_COUNT; size_class++)
    if (!class_is_valid(list, size_class, count))
      return false;
  for (size_t word = 0; word < CLASS_WORDS; word++)
    if ((list->summary >> word & 1) != (list->occupied[word] != 0))
      return false;
  const struct block *last = NULL;
  return tree_is_valid(list->tree, &last, count);
}
