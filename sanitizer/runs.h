/* runs.h: sets of bytes, stored as ascending runs that do not touch.
 *
 * The unwritten bytes of a block are nearly always none or all of its bytes, which is one run. So a
 * set of up to one run needs no memory of its own.
 */
#ifndef OPENREG_SANITIZER_RUNS_H
#define OPENREG_SANITIZER_RUNS_H

#include "sanitizer/strided_region.h"
#include "sanitizer/heap.h"

#pragma GCC visibility push(hidden)

struct runs {
  openreg_sanitizer_run *many; /* if the set has two or more runs; else NULL, and `one` holds the
                                * run */
  openreg_sanitizer_run one;
  uint32_t count, capacity; /* of `many` */
};

static inline const openreg_sanitizer_run *openreg_runs_of(const struct runs *set) {
  return set->many != NULL ? set->many : &set->one;
}

static inline void openreg_runs_set(struct runs *set, uint64_t begin, uint64_t end) {
  *set = (struct runs){.one = {begin, end}, .count = begin < end};
}

void openreg_runs_clear(struct runs *set, struct heap *heap);

/* Returns the index of the first run that ends after an address. */
uint32_t openreg_runs_find(const struct runs *set, uint64_t address);

/* Returns whether the set contains a byte of a region. `*found` receives the first such bytes. */
openreg_sanitizer_answer openreg_runs_meet(const struct runs *set,
                                           const struct strided_region *strided,
                                           openreg_sanitizer_run *found);

/* Removes the bytes of a region from the set, which may have at most `max` runs afterwards. If that
 * is not possible, removes all bytes between the region's bounds, and returns false. */
bool openreg_runs_remove(struct runs *set, struct heap *heap, const struct strided_region *strided,
                         uint32_t max);

/* Appends a run that begins after all others, or extends the last one. Returns false, and changes
 * nothing, if there is no room. */
bool openreg_runs_append(struct runs *set, struct heap *heap, openreg_sanitizer_run run,
                         uint32_t max);

/* Add those bytes of a region, or of another set, that lie before `end`. They fail as
 * openreg_runs_remove does. All bytes of `other` lie in `bounds`. */
bool openreg_runs_add(struct runs *set, struct heap *heap, const struct strided_region *strided,
                      uint64_t end, uint32_t max);
bool openreg_runs_unite(struct runs *set, struct heap *heap, const struct runs *other,
                        const struct strided_region *bounds, uint64_t end, uint32_t max);

#pragma GCC visibility pop
#endif
