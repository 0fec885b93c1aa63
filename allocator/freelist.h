/* freelist.h: the functions of free lists that every allocation and every free calls, inlined. What
 * they do is told in freelist.c.
 */
#ifndef OPENREG_ALLOCATOR_FREELIST_H
#define OPENREG_ALLOCATOR_FREELIST_H

#include "allocator/internal.h"

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

static inline void class_emptied(struct freelist *list, size_t size_class) {
  size_t word = size_class / 64;
  list->occupied[word] &= ~(UINT64_C(1) << size_class % 64);
  if (list->occupied[word] == 0)
    list->summary &= ~(UINT64_C(1) << word);
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
  if (!block->after)
    class_emptied(list, size_class);
}

/* Takes the block that was put last of the smallest size of at least `bytes`; NULL for none. */
static inline struct block *class_take(struct freelist *list, size_t bytes) {
  size_t size_class = class_of(bytes), word = size_class / 64;
  uint64_t bits = list->occupied[word] & ~UINT64_C(0) << size_class % 64;
  if (!bits) {
    uint64_t words = list->summary & ~UINT64_C(1) << word;
    if (!words)
      return NULL;
    word = (size_t)__builtin_ctzll(words);
    bits = list->occupied[word];
  }
  size_class = word * 64 + (size_t)__builtin_ctzll(bits);
  struct block *block = list->classes[size_class];
  list->classes[size_class] = block->after;
  if (block->after)
    block->after->before = NULL;
  else
    class_emptied(list, size_class);
  return block;
}

_Static_assert(CLASS_WORDS < 64, "the summary is one word, shifted by one more than its words");

/* ---- larger ones ----------------------------------------------------------------------------- */

void openreg_freelist_tree_insert(struct block **link, struct block *block);
void openreg_freelist_tree_remove(struct block **link, struct block *block);
struct block *openreg_freelist_tree_take(struct block **link, size_t bytes);

/* ---- both ------------------------------------------------------------------------------------ */

static inline void freelist_insert(struct freelist *list, struct block *block) {
  if (block->shown.bytes <= SMALL_BYTES)
    class_insert(list, block);
  else
    openreg_freelist_tree_insert(&list->tree, block);
}

static inline void freelist_remove(struct freelist *list, struct block *block) {
  if (block->shown.bytes <= SMALL_BYTES)
    class_remove(list, block);
  else
    openreg_freelist_tree_remove(&list->tree, block);
}

/* Takes the smallest block of at least `bytes`, at the highest address if it is larger than
 * SMALL_BYTES; NULL when there is none. */
static inline struct block *freelist_take(struct freelist *list, size_t bytes) {
  struct block *block = bytes <= SMALL_BYTES ? class_take(list, bytes) : NULL;
  return block ? block : openreg_freelist_tree_take(&list->tree, bytes);
}

#pragma GCC visibility pop
#endif
