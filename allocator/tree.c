/* tree.c: the order of a pool's free blocks: by stream, then size, then the age
 * of their segments, then address.
 *
 * A treap: a binary tree in that order whose nodes are also a heap by a rank hashed from the
 * address, which makes its depth O(log n) as expected over addresses, without anything to
 * rebalance.
 */
#include "allocator/internal.h"

static bool is_before(const struct block *block, const struct block *other) {
  if (block->shown.stream != other->shown.stream)
    return block->shown.stream < other->shown.stream;
  if (block->shown.bytes != other->shown.bytes)
    return block->shown.bytes < other->shown.bytes;
  if (block->segment != other->segment)
    return block->segment->number < other->segment->number;
  return block_address(block) < block_address(other);
}

/* Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4): 2^64 / golden ratio. */
static uint32_t rank(const struct block *block) {
  return (uint32_t)(((uintptr_t)block->shown.address / UNIT_BYTES * UINT64_C(0x9E3779B97F4A7C15)) >>
                    32);
}

void openreg_tree_insert(struct block **link, struct block *block) {
  while (*link && rank(*link) >= rank(block))
    link = is_before(block, *link) ? &(*link)->less : &(*link)->greater;
  /* What hung here is divided into what precedes the block and what follows it. */
  struct block *rest = *link, **less = &block->less, **greater = &block->greater;
  *link = block;
  while (rest) {
    if (is_before(rest, block)) {
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

void openreg_tree_remove(struct block **link, struct block *block) {
  while (*link != block) {
    assert(*link);
    link = is_before(block, *link) ? &(*link)->less : &(*link)->greater;
  }
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

/* Whether a block is of an earlier stream, or smaller. */
static bool is_below(const struct block *block, int stream, size_t bytes) {
  return block->shown.stream != stream ? block->shown.stream < stream : block->shown.bytes < bytes;
}

struct block *openreg_tree_at_least(struct block *tree, int stream, size_t bytes) {
  struct block *found = NULL;
  while (tree)
    if (is_below(tree, stream, bytes)) {
      tree = tree->greater;
    } else {
      found = tree;
      tree = tree->less;
    }
  return found;
}

struct block *openreg_tree_below(struct block *tree, int stream, size_t bytes) {
  struct block *found = NULL;
  while (tree)
    if (is_below(tree, stream, bytes)) {
      found = tree;
      tree = tree->greater;
    } else {
      tree = tree->less;
    }
  return found;
}

struct block *openreg_tree_after(struct block *tree, const struct block *block) {
  struct block *found = NULL;
  while (tree)
    if (is_before(block, tree)) {
      found = tree;
      tree = tree->less;
    } else {
      tree = tree->greater;
    }
  return found;
}

struct block *openreg_tree_before(struct block *tree, const struct block *block) {
  struct block *found = NULL;
  while (tree)
    if (is_before(tree, block)) {
      found = tree;
      tree = tree->greater;
    } else {
      tree = tree->less;
    }
  return found;
}

/* Walks in order; `last` is the block visited before. */
static bool is_valid_after(const struct block *tree, const struct block **last, size_t *count) {
  if (!tree)
    return true;
  if ((tree->less && rank(tree->less) > rank(tree)) ||
      (tree->greater && rank(tree->greater) > rank(tree)) || tree->state != BLOCK_FREE)
    return false;
  if (!is_valid_after(tree->less, last, count))
    return false;
  if (*last && !is_before(*last, tree))
    return false;
  *last = tree;
  ++*count;
  return is_valid_after(tree->greater, last, count);
}

bool openreg_tree_is_valid(const struct block *tree, size_t *count) {
  const struct block *last = NULL;
  return is_valid_after(tree, &last, count);
}
