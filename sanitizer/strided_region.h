/* strided_region.h: the bytes of a region in a normal form, and queries on them.
 *
 * A strided region is the set of bytes at  low + i_1 s_1 + ... + i_n s_n + [0, run)  for all
 * indices 0 <= i_k < size_k, with  run < s_1 < s_2 < ... < s_n.  Public regions that differ in the
 * order of dimensions, in negative strides, or in dimensions that repeat or continue others, have
 * the same normal form if they have the same bytes by that.
 */
#ifndef OPENREG_SANITIZER_BOX_H
#define OPENREG_SANITIZER_BOX_H

#include "sanitizer/sanitizer.h"

#pragma GCC visibility push(hidden)

struct dim {
  uint64_t size, stride; /* size >= 2 */
};

struct strided_region {
  uint64_t low, high; /* bounds; equal if the region is empty */
  uint64_t run;
  int dims;
  /* Whether each stride is at least as long as everything that it steps over. Then the order of
   * indices is the order of addresses, and divisions answer most queries. */
  bool is_nested;
  const struct dim *dim; /* smallest stride first; owned by the caller */
};

/* Makes the normal form of a region, with its dimensions in `room`. Returns false if the region is
 * invalid: see openreg_sanitizer_check_launch. */
bool openreg_strided_make(struct strided_region *strided,
                          struct dim room[OPENREG_SANITIZER_MAX_DIMS],
                          const openreg_sanitizer_region *region);

static inline bool openreg_strided_is_empty(const struct strided_region *strided) {
  return strided->low == strided->high;
}

static inline bool openreg_strided_is_contiguous(const struct strided_region *strided) {
  return strided->dims == 0;
}

/* Computes strided->is_nested. */
bool openreg_strided_is_nested(const struct strided_region *strided);

/* Sorts dimensions, and removes or merges those that add no bytes of their own. Returns how many
 * are left. `*run` may grow. */
int openreg_dims_reduce(struct dim dim[], int dims, uint64_t *run);

/* Returns whether  low <= i_1 s_1 + ... + i_n s_n <= high  has a solution. The dimensions must be
 * as openreg_dims_reduce leaves them. */
openreg_sanitizer_answer openreg_dims_reach(const struct dim dim[], int dims, int64_t low,
                                            int64_t high);

/* Finds the smallest start of a run with  low <= *start <= high. */
openreg_sanitizer_answer openreg_strided_find_start(const struct strided_region *strided,
                                                    uint64_t low, uint64_t high, uint64_t *start);

/* Finds the region's first bytes in [begin, end). They end where their run ends, or at `end`. */
openreg_sanitizer_answer openreg_strided_find(const struct strided_region *strided, uint64_t begin,
                                              uint64_t end, openreg_sanitizer_run *run);

/* Like openreg_sanitizer_overlap, without the common bytes. */
openreg_sanitizer_answer openreg_strided_overlap_general(const struct strided_region *a,
                                                         const struct strided_region *b);

static inline openreg_sanitizer_answer openreg_strided_overlap(const struct strided_region *a,
                                                               const struct strided_region *b) {
  if (a->high <= b->low || b->high <= a->low || openreg_strided_is_empty(a) ||
      openreg_strided_is_empty(b))
    return OPENREG_SANITIZER_NO;
  if (openreg_strided_is_contiguous(a) && openreg_strided_is_contiguous(b))
    return OPENREG_SANITIZER_YES;
  return openreg_strided_overlap_general(a, b);
}

/* Returns the common bytes of two regions that overlap, as openreg_sanitizer_overlap describes. */
openreg_sanitizer_run openreg_strided_common(const struct strided_region *a,
                                             const struct strided_region *b);

/* Returns whether `a` contains all bytes of `b`. Compares at most `max_runs` runs. */
openreg_sanitizer_answer openreg_strided_covers_general(const struct strided_region *a,
                                                        const struct strided_region *b,
                                                        uint64_t max_runs);

static inline openreg_sanitizer_answer openreg_strided_covers(const struct strided_region *a,
                                                              const struct strided_region *b,
                                                              uint64_t max_runs) {
  if (openreg_strided_is_empty(b))
    return OPENREG_SANITIZER_YES;
  if (b->low < a->low || a->high < b->high)
    return OPENREG_SANITIZER_NO;
  if (openreg_strided_is_contiguous(a))
    return OPENREG_SANITIZER_YES;
  return openreg_strided_covers_general(a, b, max_runs);
}

#pragma GCC visibility pop
#endif
