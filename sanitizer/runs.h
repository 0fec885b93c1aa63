/* runs.h: sets of bytes, as ascending runs that do not touch.
 *
 * Which bytes of a block are unwritten is nearly always none of them, or all, which is one run. A
 * set of up to one run takes no memory of its own.
 */
#ifndef OPENREG_SANITIZER_RUNS_H
#define OPENREG_SANITIZER_RUNS_H

#include "sanitizer/strided_region.h"
#include "sanitizer/heap.h"

#pragma GCC visibility push(hidden)

struct runs {
  openreg_sanitizer_run *many; /* of two or more; NULL: what there is, is `one` */
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

/* The index of the first run that ends behind an address. */
uint32_t openreg_runs_find(const struct runs *set, uint64_t address);

/* Whether it has a byte of a box; `*found` is then the first such bytes. */
openreg_sanitizer_answer openreg_runs_meet(const struct runs *set, const struct box *box,
                                           openreg_sanitizer_run *found);

/* Takes the bytes of a box out of it, with no more than `most` runs in the end. Returns false where
 * that is not possible: then no byte within the bounds of the box is the set's any more. */
bool openreg_runs_remove(struct runs *set, struct heap *heap, const struct box *box, uint32_t most);

/* Appends a run at the end, which begins behind all others, or continues the last. Returns false,
 * and appends nothing, when there is no room. */
bool openreg_runs_append(struct runs *set, struct heap *heap, openreg_sanitizer_run run,
                         uint32_t most);

/* Puts those bytes of a box, or of another set, into it that lie before `end`: as above. Of another
 * set, `bounds` has all bytes. */
bool openreg_runs_add(struct runs *set, struct heap *heap, const struct box *box, uint64_t end,
                      uint32_t most);
bool openreg_runs_unite(struct runs *set, struct heap *heap, const struct runs *other,
                        const struct box *bounds, uint64_t end, uint32_t most);

#pragma GCC visibility pop
#endif
