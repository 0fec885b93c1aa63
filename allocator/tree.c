/* tree.c: a pool's free blocks, ordered by stream, size, age of the segment, and address.
 *
 * The tree is a treap: a binary search tree in that order that is also a heap by a rank, which is a
 * hash of the address. Its expected depth is O(log n), without rebalancing.
 */
#include "allocator/internal.h"

static bool is_before(const struct block *block, const struct block *other) {
  if (block->base.stream != other->base.stream)
    return block->base.stream < other->base.stream;
  if (block->base.bytes != other->base.bytes)
    return block->base.bytes < other->base.bytes;
  if (block->segment != other->segment)
    return block->segment->number < other->segment->number;
  return block_address(block) < block_address(other);
}

/* Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4): 2^64 / golden ratio. */
static uint32_t rank(const struct block *block) {
  return (uint32_t)(((uintptr_t)block->base.address / UNIT_BYTES * UINT64_C(0x9E3779B97F4A7C15)) >>
                    32);
}

void openreg_tree_insert(struct block **link, struct block *block) {
  while (*link && rank(*link) >= rank(block))
    link = is_before(block, *link) ? &(*link)->left : &(*link)->right;
  /* Divides the subtree into the blocks before the new block and those after it. */
  struct block *rest = *link, **left = &block->left, **right = &block->right;
  *link = block;
  while (rest) {
    if (is_before(rest, block)) {
      *left = rest;
      left = &rest->right;
      rest = rest->right;
    } else {
      *right = rest;
      right = &rest->left;
      rest = rest->left;
    }
  }
  *left = *right = NULL;
}

void openreg_tree_remove(struct block **link, struct block *block) {
  while (*link != block) {
    assert(*link);
    link = is_before(block, *link) ? &(*link)->left : &(*link)->right;
  }
  struct block *left = block->left, *right = block->right;
  while (left && right) {
    if (rank(left) >= rank(right)) {
      *link = left;
      link = &left->right;
      left = left->right;
    } else {
      *link = right;
      link = &right->left;
      right = right->left;
    }
  }
  *link = left ? left : right;
}

/* Whether a block has an earlier stream, or the same and fewer bytes. */
static bool is_below(const struct block *block, int stream, size_t bytes) {
  return block->base.stream != stream ? block->base.stream < stream : block->base.bytes < bytes;
}

struct block *openreg_tree_at_least(struct block *tree, int stream, size_t bytes) {
  struct block *found = NULL;
  while (tree)
    if (is_below(tree, stream, bytes)) {
      tree = tree->right;
    } else {
      found = tree;
      tree = tree->left;
    }
  return found;
}

struct block *openreg_tree_below(struct block *tree, int stream, size_t bytes) {
  struct block *found = NULL;
  while (tree)
    if (is_below(tree, stream, bytes)) {
      found = tree;
      tree = tree->right;
    } else {
      tree = tree->left;
    }
  return found;
}

struct block *openreg_tree_after(struct block *tree, const struct block *block) {
  struct block *found = NULL;
  while (tree)
    if (is_before(block, tree)) {
      found = tree;
      tree = tree->left;
    } else {
      tree = tree->right;
    }
  return found;
}

struct block *openreg_tree_before(struct block *tree, const struct block *block) {
  struct block *found = NULL;
  while (tree)
    if (is_before(tree, block)) {
      found = tree;
      tree = tree->right;
    } else {
      tree = tree->left;
    }
  return found;
}

/* Walks the tree in order; `last` is the previously visited block. */
static bool is_valid_after(const struct block *tree, const struct block **last, size_t *count) {
  if (!tree)
    return true;
  if ((tree->left && rank(tree->left) > rank(tree)) ||
      (tree->right && rank(tree->right) > rank(tree)) || tree->state != BLOCK_FREE)
    return false;
  if (!is_valid_after(tree->left, last, count))
    return false;
  if (*last && !is_before(*last, tree))
    return false;
  *last = tree;
  ++*count;
  return is_valid_after(tree->right, last, count);
}

bool openreg_tree_is_valid(const struct block *tree, size_t *count) {
  const struct block *last = NULL;
  return is_valid_after(tree, &last, count);
}
