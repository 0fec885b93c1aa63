/* box.h: the bytes of a region in their normal form, and what can be asked of them.
 *
 * A box is the bytes at  low + i_1 s_1 + ... + i_n s_n + [0, run)  for all indices 0 <= i_k <
 * size_k, with  run < s_1 < s_2 < ... < s_n.  What regions say otherwise (in another order, with
 * negative strides, with dimensions that only repeat bytes, or that continue another) comes to the
 * same box.
 */
#ifndef OPENREG_SANITIZER_BOX_H
#define OPENREG_SANITIZER_BOX_H

#include "sanitizer/sanitizer.h"

#pragma GCC visibility push(hidden)

struct dim {
  uint64_t size, stride; /* size >= 2 */
};

struct box {
  uint64_t low, high; /* bounds: equal when the box is empty */
  uint64_t run;
  int dims;
  /* Whether each stride is at least as long as all that it steps over: then the order of indices is
   * the order of addresses, and most answers follow from divisions. */
  bool is_nested;
  const struct dim *dim; /* from the smallest stride on; whose they are is the maker's to know */
};

/* The box of a region, its dimensions in `room`. Returns false for what is no region: see
 * openreg_sanitizer_run_launch. */
bool openreg_box_make(struct box *box, struct dim room[OPENREG_SANITIZER_MAX_DIMS],
                      const openreg_sanitizer_region *region);

static inline bool openreg_box_is_empty(const struct box *box) {
  return box->low == box->high;
}

static inline bool openreg_box_is_contiguous(const struct box *box) {
  return box->dims == 0;
}

/* What box->is_nested says. */
bool openreg_box_is_nested(const struct box *box);

/* Sorts dimensions, and leaves out or joins those that add nothing to the bytes of others. Returns
 * how many are left; `*run` may grow. */
int openreg_dims_reduce(struct dim dim[], int dims, uint64_t *run);

/* Whether  low <= i_1 s_1 + ... + i_n s_n <= high  has a solution, for dimensions as
 * openreg_dims_reduce leaves them. */
openreg_sanitizer_answer openreg_dims_reach(const struct dim dim[], int dims, int64_t low,
                                            int64_t high);

/* Finds the smallest `*start` of a run with  low <= *start <= high. */
openreg_sanitizer_answer openreg_box_find_start(const struct box *box, uint64_t low, uint64_t high,
                                                uint64_t *start);

/* Finds the box's first bytes in [begin, end): from run->begin on to run->end, which is where the
 * run ends, or `end`. */
openreg_sanitizer_answer openreg_box_find(const struct box *box, uint64_t begin, uint64_t end,
                                          openreg_sanitizer_run *run);

/* As openreg_sanitizer_overlap, without where. */
openreg_sanitizer_answer openreg_boxes_meet_general(const struct box *a, const struct box *b);

static inline openreg_sanitizer_answer openreg_boxes_meet(const struct box *a,
                                                          const struct box *b) {
  if (a->high <= b->low || b->high <= a->low || openreg_box_is_empty(a) || openreg_box_is_empty(b))
    return OPENREG_SANITIZER_NO;
  if (openreg_box_is_contiguous(a) && openreg_box_is_contiguous(b))
    return OPENREG_SANITIZER_YES;
  return openreg_boxes_meet_general(a, b);
}

/* The common bytes of boxes that meet, as openreg_sanitizer_overlap says. */
openreg_sanitizer_run openreg_boxes_common(const struct box *a, const struct box *b);

/* Whether `a` has all bytes of `b`, looking at no more than so many runs of both. */
openreg_sanitizer_answer openreg_box_covers_general(const struct box *a, const struct box *b,
                                                    uint64_t most_runs);

static inline openreg_sanitizer_answer openreg_box_covers(const struct box *a, const struct box *b,
                                                          uint64_t most_runs) {
  if (openreg_box_is_empty(b))
    return OPENREG_SANITIZER_YES;
  if (b->low < a->low || a->high < b->high)
    return OPENREG_SANITIZER_NO;
  if (openreg_box_is_contiguous(a))
    return OPENREG_SANITIZER_YES;
  return openreg_box_covers_general(a, b, most_runs);
}

#pragma GCC visibility pop
#endif
