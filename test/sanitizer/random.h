/* random.h: random numbers that are the same in each run (SplitMix64), and random regions. */
#ifndef OPENREG_TEST_SANITIZER_RANDOM_H
#define OPENREG_TEST_SANITIZER_RANDOM_H

#include "sanitizer/sanitizer.h"

static inline uint64_t random_word(uint64_t *state) {
  uint64_t word = *state += UINT64_C(0x9e3779b97f4a7c15);
  word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
  return word ^ (word >> 31);
}

/* Returns a number from 0 to `end` - 1. */
static inline uint64_t random_below(uint64_t *state, uint64_t end) {
  return random_word(state) % end;
}

static inline bool random_once_in(uint64_t *state, uint64_t times) {
  return random_below(state, times) == 0;
}

enum { RANDOM_DIMS = 4 };

struct random_region {
  openreg_sanitizer_region region;
  int64_t sizes[RANDOM_DIMS], strides[RANDOM_DIMS];
};

/* Returns whether all bytes of a region lie in [0, bytes). */
static inline bool is_within(const openreg_sanitizer_region *region, int64_t bytes) {
  int64_t low = (int64_t)region->address, high = low + (int64_t)region->element_bytes;
  for (int i = 0; i < region->dims; i++) {
    int64_t span = (region->sizes[i] - 1) * region->strides[i];
    if (region->sizes[i] == 0)
      return low >= 0 && low <= bytes;
    low += span < 0 ? span : 0;
    high += span > 0 ? span : 0;
  }
  return low >= 0 && high <= bytes;
}

/* Makes a region of any shape within [0, bytes). It may be empty, broadcast, reversed, or overlap
 * itself. */
static inline void random_region(uint64_t *state, int64_t bytes, struct random_region *made) {
  do {
    made->region.address = random_below(state, (uint64_t)bytes);
    made->region.element_bytes = UINT64_C(1) << random_below(state, 4);
    if (random_once_in(state, 4))
      made->region.element_bytes = random_below(state, 20);
    made->region.dims = (int)random_below(state, RANDOM_DIMS + 1);
    for (int i = 0; i < made->region.dims; i++) {
      made->sizes[i] = (int64_t)random_below(state, random_once_in(state, 3) ? 14 : 5);
      if (made->sizes[i] == 0 && !random_once_in(state, 4))
        made->sizes[i] = 2;
      made->strides[i] = (int64_t)random_below(state, (uint64_t)bytes / 4);
      if (random_once_in(state, 2))
        made->strides[i] = (int64_t)random_below(state, 24);
      if (random_once_in(state, 5))
        made->strides[i] = -made->strides[i];
    }
    made->region.sizes = made->sizes;
    made->region.strides = made->strides;
  } while (!is_within(&made->region, bytes));
}

/* Calls `visit` with the address of each element. */
static inline void visit_elements(const openreg_sanitizer_region *region, int dim, uint64_t address,
                                  void (*visit)(uint64_t address, void *context), void *context) {
  if (dim == region->dims) {
    visit(address, context);
    return;
  }
  for (int64_t i = 0; i < region->sizes[dim]; i++)
    visit_elements(region, dim + 1, address + (uint64_t)(i * region->strides[dim]), visit, context);
}

struct marks {
  unsigned char *bytes, mark;
  uint64_t element_bytes;
};

static inline void mark_element(uint64_t address, void *context) {
  const struct marks *marks = context;
  for (uint64_t i = 0; i < marks->element_bytes; i++)
    marks->bytes[address + i] |= marks->mark;
}

/* Marks each byte of a region. This is the definition of a region. */
static inline void mark_region(const openreg_sanitizer_region *region, unsigned char bytes[],
                               unsigned char mark) {
  struct marks marks = {bytes, mark, region->element_bytes};
  visit_elements(region, 0, region->address, mark_element, &marks);
}

#endif
