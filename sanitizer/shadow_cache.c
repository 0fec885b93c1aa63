/* shadow_cache.c: the treap of shadow blocks, their cache, and the list of freed blocks. */
#include "sanitizer/shadow_cache.h"

#include <assert.h>
#include <string.h>

_Static_assert(RECENT_SLOTS == 1 << (64 - 52), "openreg_shadow_cache_slot takes the upper bits");

static uint32_t mix(uint64_t address) {
  address = (address ^ (address >> 31)) * UINT64_C(0xbf58476d1ce4e5b9);
  address = (address ^ (address >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (uint32_t)(address >> 32);
}

struct shadow_block *openreg_shadow_cache_find(const struct shadow_cache *cache, uint64_t address) {
  struct shadow_block *found = NULL;
  for (struct shadow_block *shadow = cache->root; shadow != NULL;) {
    if (shadow->end > address) {
      found = shadow;
      shadow = shadow->left;
    } else {
      shadow = shadow->right;
    }
  }
  return found;
}

/* Splits a tree into the blocks that begin before an address, and the others. */
static void split(struct shadow_block *tree, uint64_t address, struct shadow_block **before,
                  struct shadow_block **after) {
  while (tree != NULL) {
    if (tree->begin < address) {
      *before = tree;
      before = &tree->right;
      tree = tree->right;
    } else {
      *after = tree;
      after = &tree->left;
      tree = tree->left;
    }
  }
  *before = *after = NULL;
}

static void link_freed(struct shadow_cache *cache, struct shadow_block *shadow) {
  shadow->older = cache->newest;
  shadow->newer = NULL;
  if (shadow->older != NULL)
    shadow->older->newer = shadow;
  else
    cache->oldest = shadow;
  cache->newest = shadow;
}

static void unlink_freed(struct shadow_cache *cache, struct shadow_block *shadow) {
  if (shadow->older != NULL)
    shadow->older->newer = shadow->newer;
  else
    cache->oldest = shadow->newer;
  if (shadow->newer != NULL)
    shadow->newer->older = shadow->older;
  else
    cache->newest = shadow->older;
}

void openreg_shadow_cache_insert(struct shadow_cache *cache, struct shadow_block *shadow) {
  struct shadow_block **place = &cache->root;
  shadow->priority = mix(shadow->begin);
  while (*place != NULL && (*place)->priority >= shadow->priority)
    place = shadow->begin < (*place)->begin ? &(*place)->left : &(*place)->right;
  split(*place, shadow->begin, &shadow->left, &shadow->right);
  *place = shadow;
  if (shadow->is_live) {
    cache->live++;
  } else {
    cache->freed++;
    link_freed(cache, shadow);
  }
}

void openreg_shadow_cache_remove(struct shadow_cache *cache, struct shadow_block *shadow) {
  struct shadow_block **place = &cache->root;
  while (*place != shadow)
    place = shadow->begin < (*place)->begin ? &(*place)->left : &(*place)->right;
  struct shadow_block *left = shadow->left, *right = shadow->right;
  while (left != NULL && right != NULL) {
    struct shadow_block *higher = left->priority >= right->priority ? left : right;
    *place = higher;
    if (higher == left) {
      place = &left->right;
      left = left->right;
    } else {
      place = &right->left;
      right = right->left;
    }
  }
  *place = left != NULL ? left : right;
  if (shadow->is_live) {
    cache->live--;
  } else {
    cache->freed--;
    unlink_freed(cache, shadow);
  }
  openreg_shadow_cache_evict(cache, shadow);
}

/* A short block can only be in a few slots of the large cache. */
void openreg_shadow_cache_evict(struct shadow_cache *cache, const struct shadow_block *shadow) {
  uint64_t first = shadow->begin >> SLOT_SHIFT, last = (shadow->end - 1) >> SLOT_SHIFT;
  if (last - first < RECENT_SLOTS / 8) {
    for (uint64_t i = first; i <= last; i++) {
      struct shadow_block **place = openreg_shadow_cache_slot(cache, i << SLOT_SHIFT);
      *place = *place == shadow ? NULL : *place;
    }
  } else {
    for (size_t i = 0; i < RECENT_SLOTS; i++)
      cache->recent[i] = cache->recent[i] == shadow ? NULL : cache->recent[i];
  }
}

void openreg_shadow_cache_set_live(struct shadow_cache *cache, struct shadow_block *shadow,
                                   bool is_live) {
  assert(shadow->is_live != is_live);
  shadow->is_live = is_live;
  if (is_live) {
    cache->freed--;
    cache->live++;
    unlink_freed(cache, shadow);
  } else {
    cache->live--;
    cache->freed++;
    link_freed(cache, shadow);
  }
}
