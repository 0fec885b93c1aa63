/* overlap.c: what two boxes have in common.
 *
 * Runs of a and b that begin at x and y share a byte if  -a.run < x - y < b.run.  The differences
 * x - y are sums of steps of both boxes, b's counted from its other end; so they are a box as well,
 * with the dimensions of both, and the question is whether it has a certain byte. Dimensions of
 * equal strides become one, so that most pairs come down to one or two dimensions (reach.c).
 */
#include "sanitizer/strided_region.h"

#include <string.h>

enum {
  MOST_RUNS = 1 << 20,        /* those that are listed */
  MOST_COVERED_RUNS = 1 << 16 /* those that are compared */
};

openreg_sanitizer_answer openreg_boxes_meet_general(const struct box *a, const struct box *b) {
  struct dim dim[2 * OPENREG_SANITIZER_MAX_DIMS];
  openreg_sanitizer_run run;
  if (openreg_box_is_contiguous(a))
    return openreg_box_find(b, a->low, a->high, &run);
  if (openreg_box_is_contiguous(b))
    return openreg_box_find(a, b->low, b->high, &run);
  memcpy(dim, a->dim, (size_t)a->dims * sizeof *dim);
  memcpy(dim + a->dims, b->dim, (size_t)b->dims * sizeof *dim);
  uint64_t width = a->run + b->run - 1;
  int dims = openreg_dims_reduce(dim, a->dims + b->dims, &width);
  int64_t high = (int64_t)(b->high - 1) - (int64_t)a->low;
  return openreg_dims_reach(dim, dims, high - (int64_t)width + 1, high);
}

/* ---- where they meet ------------------------------------------------------------------------- */

static void narrow(struct box *box, struct dim *dim, uint64_t index, uint64_t size) {
  box->low += index * dim->stride;
  dim->size = size;
  box->high = box->low + box->run;
  for (int i = 0; i < box->dims; i++)
    box->high += (box->dim[i].size - 1) * box->dim[i].stride;
}

/* Comes to the first run of `a` that meets `b` by halving one dimension after the other, the
 * outermost first. */
static openreg_sanitizer_run first_run(const struct box *a, const struct box *b) {
  struct dim dim[OPENREG_SANITIZER_MAX_DIMS];
  struct box rest = *a;
  rest.dim = dim;
  for (int i = 0; i < a->dims; i++)
    dim[i] = a->dim[i];
  for (; rest.dims > 0; rest.dims--) {
    struct dim *outer = &dim[rest.dims - 1];
    while (outer->size > 1) {
      struct box half = rest;
      uint64_t size = outer->size, taken = size / 2;
      narrow(&half, outer, 0, taken);
      if (openreg_boxes_meet(&half, b) == OPENREG_SANITIZER_YES)
        rest = half;
      else
        narrow(&rest, outer, taken, size - taken);
    }
  }
  return (openreg_sanitizer_run){rest.low, rest.low + rest.run};
}

openreg_sanitizer_run openreg_boxes_common(const struct box *a, const struct box *b) {
  openreg_sanitizer_run common = {0, 0};
  if (!a->is_nested || openreg_box_is_contiguous(b)) {
    const struct box *other = a;
    a = b;
    b = other;
  }
  openreg_sanitizer_run run = first_run(a, b);
  if (openreg_box_find(b, run.begin, run.end, &common) != OPENREG_SANITIZER_YES)
    common.begin = common.end = 0;
  return common;
}

/* ---- covering -------------------------------------------------------------------------------- */

/* Whether `b` is a box within the indices of `a`: that of a part of a tensor in the whole. */
static bool is_part(const struct box *a, const struct box *b) {
  uint64_t rest = b->low - a->low;
  int in_b = b->dims - 1;
  for (int i = a->dims - 1; i >= 0; i--) {
    const struct dim *dim = &a->dim[i];
    uint64_t size = 1, index = rest / dim->stride;
    if (in_b >= 0 && b->dim[in_b].stride == dim->stride)
      size = b->dim[in_b--].size;
    if (index > dim->size - 1 || size > dim->size - index)
      return false;
    rest -= index * dim->stride;
  }
  return in_b < 0 && rest <= a->run && b->run <= a->run - rest;
}

/* Whether `a` has all bytes of a run. */
static openreg_sanitizer_answer has_run(const struct box *a, openreg_sanitizer_run run,
                                        uint64_t *work) {
  while (run.begin < run.end) {
    openreg_sanitizer_run found;
    if ((*work)-- == 0)
      return OPENREG_SANITIZER_UNKNOWN;
    openreg_sanitizer_answer answer = openreg_box_find(a, run.begin, run.end, &found);
    if (answer != OPENREG_SANITIZER_YES || found.begin != run.begin)
      return answer == OPENREG_SANITIZER_UNKNOWN ? answer : OPENREG_SANITIZER_NO;
    run.begin = found.end;
  }
  return OPENREG_SANITIZER_YES;
}

openreg_sanitizer_answer openreg_box_covers_general(const struct box *a, const struct box *b,
                                                    uint64_t most_runs) {
  openreg_sanitizer_answer answer;
  openreg_sanitizer_run run;
  uint64_t begin = b->low, work = most_runs;
  if (is_part(a, b))
    return OPENREG_SANITIZER_YES;
  while ((answer = openreg_box_find(b, begin, b->high, &run)) == OPENREG_SANITIZER_YES) {
    answer = has_run(a, run, &work);
    if (answer != OPENREG_SANITIZER_YES)
      return answer;
    begin = run.end;
  }
  return answer == OPENREG_SANITIZER_NO ? OPENREG_SANITIZER_YES : answer;
}

/* ---- asked from outside ---------------------------------------------------------------------- */

openreg_sanitizer_answer openreg_sanitizer_overlap(const openreg_sanitizer_region *a,
                                                   const openreg_sanitizer_region *b,
                                                   openreg_sanitizer_run *common) {
  struct dim rooms[2][OPENREG_SANITIZER_MAX_DIMS];
  struct box one, other;
  if (!openreg_box_make(&one, rooms[0], a) || !openreg_box_make(&other, rooms[1], b))
    return OPENREG_SANITIZER_UNKNOWN;
  openreg_sanitizer_answer answer = openreg_boxes_meet(&one, &other);
  if (common != NULL && answer == OPENREG_SANITIZER_YES)
    *common = openreg_boxes_common(&one, &other);
  return answer;
}

openreg_sanitizer_answer openreg_sanitizer_covers(const openreg_sanitizer_region *a,
                                                  const openreg_sanitizer_region *b) {
  struct dim rooms[2][OPENREG_SANITIZER_MAX_DIMS];
  struct box one, other;
  if (!openreg_box_make(&one, rooms[0], a) || !openreg_box_make(&other, rooms[1], b))
    return OPENREG_SANITIZER_UNKNOWN;
  return openreg_box_covers(&one, &other, MOST_COVERED_RUNS);
}

size_t openreg_sanitizer_runs(const openreg_sanitizer_region *region, openreg_sanitizer_run runs[],
                              size_t capacity) {
  struct dim room[OPENREG_SANITIZER_MAX_DIMS];
  openreg_sanitizer_run run, last = {0, 0};
  openreg_sanitizer_answer answer;
  struct box box;
  size_t count = 0;
  if (!openreg_box_make(&box, room, region))
    return SIZE_MAX;
  uint64_t begin = box.low, found = 0;
  while ((answer = openreg_box_find(&box, begin, box.high, &run)) == OPENREG_SANITIZER_YES) {
    if (++found > MOST_RUNS)
      return SIZE_MAX;
    bool follows = count > 0 && run.begin == last.end;
    if (follows)
      last.end = run.end;
    else
      last = run, count++;
    if (count <= capacity)
      runs[count - 1] = last;
    begin = run.end;
  }
  return answer == OPENREG_SANITIZER_NO ? count : SIZE_MAX;
}
