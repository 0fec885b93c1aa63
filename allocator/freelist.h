/* freelist.h: the functions of free lists that every allocation and every free calls, inlined. What
 * they do is told in freelist.c.
 */
#ifndef OPENREG_ALLOCATOR_FREELIST_H
#define OPENREG_ALLOCATOR_FREELIST_H

#include "internal.h"

#pragma GCC visibility push(hidden)

/* ---- sizes up to 1 MiB ----------------------------------------------------------------------- */

static inline size_t class_of(size_t bytes) {
  return bytes / UNIT_BYTES - 1;
}

static inline void class_insert(struct freelist *list, struct block *block) {
  size_t size_class = class_of(block->shown.bytes);
  struct block *head = list->classes[size_class];
  block->before = NULL;
  block->after = head;
  if (head)
    head->before = block;
  list->classes[size_class] = block;
  list->occupied[size_class / 64] |= UINT64_C(1) << size_class % 64;
  list->summary |= UINT64_C(1) << size_class / 64;
}

static inline void class_remove(struct freelist *list, struct block *block) {
  if (block->after)
    block->after->before = block->before;
  if (block->before) {
    block->before->after = block->after;
    return;
  }
  size_t size_class = class_of(block->shown.bytes);
  assert(list->classes[size_class] == block);
  list->classes[size_class] = block->after;
  if (block->after)
    return;
  list->occupied[size_class / 64] &= ~(UINT64_C(1) << size_class % 64);
  if (list->occupied[size_class / 64] == 0)
    list->summary &= ~(UINT64_C(1) << size_class / 64);
}

static inline struct block *class_best(const struct freelist *list, size_t bytes) {
  size_t size_class = class_of(bytes), word = size_class / 64;
  uint64_t bits = list->occupied[word] & ~UINT64_C(0) << size_class % 64;
  if (!bits) {
    uint64_t words = list->summary & ~UINT64_C(1) << word;
    if (!words)
      return NULL;
    word = (size_t)__builtin_ctzll(words);
    bits = list->occupied[word];
  }
  return list->classes[word * 64 + (size_t)__builtin_ctzll(bits)];
}

_Static_assert(CLASS_WORDS < 64, "the summary is one word, shifted by one more than its words");

/* ---- larger ones ----------------------------------------------------------------------------- */

void freelist_tree_insert(struct block **link, struct block *block);
void freelist_tree_remove(struct block **link, struct block *block);
struct block *freelist_tree_best(struct block *tree, size_t bytes);

/* ---- both ------------------------------------------------------------------------------------ */

static inline void freelist_insert(struct freelist *list, struct block *block) {
  if (block->shown.bytes <= SMALL_BYTES)
    class_insert(list, block);
  else
    freelist_tree_insert(&list->tree, block);
}

static inline void freelist_remove(struct freelist *list, struct block *block) {
  if (block->shown.bytes <= SMALL_BYTES)
    class_remove(list, block);
  else
    freelist_tree_remove(&list->tree, block);
}

/* The smallest block of at least `bytes`, at the lowest address if it is larger than SMALL_BYTES;
 * NULL when there is none. */
static inline struct block *freelist_best(const struct freelist *list, size_t bytes) {
  struct block *best = bytes <= SMALL_BYTES ? class_best(list, bytes) : NULL;
  return best ? best : freelist_tree_best(list->tree, bytes);
}

#pragma GCC visibility pop
#endif
