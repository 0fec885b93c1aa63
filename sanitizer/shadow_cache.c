/* extents.c: the treap of extents, and the list of those that are freed. */
#include "sanitizer/shadow_cache.h"

#include <assert.h>
#include <string.h>

_Static_assert(RECENT_EXTENTS == 1 << (64 - 52), "openreg_extents_place takes the upper bits");

static uint32_t mix(uint64_t address) {
  address = (address ^ (address >> 31)) * UINT64_C(0xbf58476d1ce4e5b9);
  address = (address ^ (address >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (uint32_t)(address >> 32);
}

struct extent *openreg_extents_find(const struct extents *extents, uint64_t address) {
  struct extent *found = NULL;
  for (struct extent *extent = extents->root; extent != NULL;) {
    if (extent->end > address) {
      found = extent;
      extent = extent->left;
    } else {
      extent = extent->right;
    }
  }
  return found;
}

/* Those that begin before an address, and the others. */
static void split(struct extent *tree, uint64_t address, struct extent **before,
                  struct extent **after) {
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

static void list(struct extents *extents, struct extent *extent) {
  extent->older = extents->newest;
  extent->newer = NULL;
  if (extent->older != NULL)
    extent->older->newer = extent;
  else
    extents->oldest = extent;
  extents->newest = extent;
}

static void unlist(struct extents *extents, struct extent *extent) {
  if (extent->older != NULL)
    extent->older->newer = extent->newer;
  else
    extents->oldest = extent->newer;
  if (extent->newer != NULL)
    extent->newer->older = extent->older;
  else
    extents->newest = extent->older;
}

void openreg_extents_insert(struct extents *extents, struct extent *extent) {
  struct extent **place = &extents->root;
  extent->priority = mix(extent->begin);
  while (*place != NULL && (*place)->priority >= extent->priority)
    place = extent->begin < (*place)->begin ? &(*place)->left : &(*place)->right;
  split(*place, extent->begin, &extent->left, &extent->right);
  *place = extent;
  if (extent->is_live) {
    extents->live++;
  } else {
    extents->freed++;
    list(extents, extent);
  }
}

void openreg_extents_remove(struct extents *extents, struct extent *extent) {
  struct extent **place = &extents->root;
  while (*place != extent)
    place = extent->begin < (*place)->begin ? &(*place)->left : &(*place)->right;
  struct extent *left = extent->left, *right = extent->right;
  while (left != NULL && right != NULL) {
    struct extent *higher = left->priority >= right->priority ? left : right;
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
  if (extent->is_live) {
    extents->live--;
  } else {
    extents->freed--;
    unlist(extents, extent);
  }
  openreg_extents_unlearn(extents, extent);
}

/* A short extent has few places in the table, which is long. */
void openreg_extents_unlearn(struct extents *extents, const struct extent *extent) {
  uint64_t first = extent->begin >> PLACE_BITS, last = (extent->end - 1) >> PLACE_BITS;
  if (last - first < RECENT_EXTENTS / 8) {
    for (uint64_t i = first; i <= last; i++) {
      struct extent **place = openreg_extents_place(extents, i << PLACE_BITS);
      *place = *place == extent ? NULL : *place;
    }
  } else {
    for (size_t i = 0; i < RECENT_EXTENTS; i++)
      extents->recent[i] = extents->recent[i] == extent ? NULL : extents->recent[i];
  }
}

void openreg_extents_set_live(struct extents *extents, struct extent *extent, bool is_live) {
  assert(extent->is_live != is_live);
  extent->is_live = is_live;
  if (is_live) {
    extents->freed--;
    extents->live++;
    unlist(extents, extent);
  } else {
    extents->live--;
    extents->freed++;
    list(extents, extent);
  }
}
