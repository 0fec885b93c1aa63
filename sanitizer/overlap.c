/* overlap.c: the common bytes of two regions.
 *
 * Two runs of a and b that begin at x and y share a byte if  -a.run < x - y < b.run.  The
 * differences x - y are sums of strides of both regions, with b's indices counted from the other
 * end. So the differences form a strided region with the dimensions of both, and the question is
 * whether it contains a byte of an interval. Dimensions with equal strides merge, so most pairs
 * come down to one or two dimensions (stride_solver.c).
 */
#include "sanitizer/strided_region.h"

#include <string.h>

enum {
  MAX_RUNS = 1 << 20,        /* in a list of runs */
  MAX_COVERED_RUNS = 1 << 16 /* in a comparison */
};

openreg_sanitizer_answer openreg_strided_overlap_general(const struct strided_region *a,
                                                         const struct strided_region *b) {
  struct dim dim[2 * OPENREG_SANITIZER_MAX_DIMS];
  openreg_sanitizer_run run;
  if (openreg_strided_is_contiguous(a))
    return openreg_strided_find(b, a->low, a->high, &run);
  if (openreg_strided_is_contiguous(b))
    return openreg_strided_find(a, b->low, b->high, &run);
  memcpy(dim, a->dim, (size_t)a->dims * sizeof *dim);
  memcpy(dim + a->dims, b->dim, (size_t)b->dims * sizeof *dim);
  uint64_t width = a->run + b->run - 1;
  int dims = openreg_dims_reduce(dim, a->dims + b->dims, &width);
  int64_t high = (int64_t)(b->high - 1) - (int64_t)a->low;
  return openreg_dims_reach(dim, dims, high - (int64_t)width + 1, high);
}

/* ---- the first common bytes ------------------------------------------------------------------ */

static void narrow(struct strided_region *strided, struct dim *dim, uint64_t index, uint64_t size) {
  strided->low += index * dim->stride;
  dim->size = size;
  strided->high = strided->low + strided->run;
  for (int i = 0; i < strided->dims; i++)
    strided->high += (strided->dim[i].size - 1) * strided->dim[i].stride;
}

/* Finds the first run of `a` that overlaps `b`. Halves one dimension after the other, outermost
 * first. */
static openreg_sanitizer_run first_run(const struct strided_region *a,
                                       const struct strided_region *b) {
  struct dim dim[OPENREG_SANITIZER_MAX_DIMS];
  struct strided_region rest = *a;
  rest.dim = dim;
  for (int i = 0; i < a->dims; i++)
    dim[i] = a->dim[i];
  for (; rest.dims > 0; rest.dims--) {
    struct dim *outer = &dim[rest.dims - 1];
    while (outer->size > 1) {
      struct strided_region half = rest;
      uint64_t size = outer->size, taken = size / 2;
      narrow(&half, outer, 0, taken);
      if (openreg_strided_overlap(&half, b) == OPENREG_SANITIZER_YES)
        rest = half;
      else
        narrow(&rest, outer, taken, size - taken);
    }
  }
  return (openreg_sanitizer_run){rest.low, rest.low + rest.run};
}

openreg_sanitizer_run openreg_strided_common(const struct strided_region *a,
                                             const struct strided_region *b) {
  openreg_sanitizer_run common = {0, 0};
  if (!a->is_nested || openreg_strided_is_contiguous(b)) {
    const struct strided_region *other = a;
    a = b;
    b = other;
  }
  openreg_sanitizer_run run = first_run(a, b);
  if (openreg_strided_find(b, run.begin, run.end, &common) != OPENREG_SANITIZER_YES)
    common.begin = common.end = 0;
  return common;
}

/* ---- covering -------------------------------------------------------------------------------- */

/* Returns whether `b` is a slice of `a` by its indices, like a part of a tensor. */
static bool is_part(const struct strided_region *a, const struct strided_region *b) {
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

/* Returns whether `a` contains all bytes of a run. */
static openreg_sanitizer_answer has_run(const struct strided_region *a, openreg_sanitizer_run run,
                                        uint64_t *work) {
  while (run.begin < run.end) {
    openreg_sanitizer_run found;
    if ((*work)-- == 0)
      return OPENREG_SANITIZER_UNKNOWN;
    openreg_sanitizer_answer answer = openreg_strided_find(a, run.begin, run.end, &found);
    if (answer != OPENREG_SANITIZER_YES || found.begin != run.begin)
      return answer == OPENREG_SANITIZER_UNKNOWN ? answer : OPENREG_SANITIZER_NO;
    run.begin = found.end;
  }
  return OPENREG_SANITIZER_YES;
}

openreg_sanitizer_answer openreg_strided_covers_general(const struct strided_region *a,
                                                        const struct strided_region *b,
                                                        uint64_t max_runs) {
  openreg_sanitizer_answer answer;
  openreg_sanitizer_run run;
  uint64_t begin = b->low, work = max_runs;
  if (is_part(a, b))
    return OPENREG_SANITIZER_YES;
  while ((answer = openreg_strided_find(b, begin, b->high, &run)) == OPENREG_SANITIZER_YES) {
    answer = has_run(a, run, &work);
    if (answer != OPENREG_SANITIZER_YES)
      return answer;
    begin = run.end;
  }
  return answer == OPENREG_SANITIZER_NO ? OPENREG_SANITIZER_YES : answer;
}

/* ---- public functions ------------------------------------------------------------------------ */

openreg_sanitizer_answer openreg_sanitizer_overlap(const openreg_sanitizer_region *a,
                                                   const openreg_sanitizer_region *b,
                                                   openreg_sanitizer_run *common) {
  struct dim rooms[2][OPENREG_SANITIZER_MAX_DIMS];
  struct strided_region one, other;
  if (!openreg_strided_make(&one, rooms[0], a) || !openreg_strided_make(&other, rooms[1], b))
    return OPENREG_SANITIZER_UNKNOWN;
  openreg_sanitizer_answer answer = openreg_strided_overlap(&one, &other);
  if (common != NULL && answer == OPENREG_SANITIZER_YES)
    *common = openreg_strided_common(&one, &other);
  return answer;
}

openreg_sanitizer_answer openreg_sanitizer_covers(const openreg_sanitizer_region *a,
                                                  const openreg_sanitizer_region *b) {
  struct dim rooms[2][OPENREG_SANITIZER_MAX_DIMS];
  struct strided_region one, other;
  if (!openreg_strided_make(&one, rooms[0], a) || !openreg_strided_make(&other, rooms[1], b))
    return OPENREG_SANITIZER_UNKNOWN;
  return openreg_strided_covers(&one, &other, MAX_COVERED_RUNS);
}

size_t openreg_sanitizer_runs(const openreg_sanitizer_region *region, openreg_sanitizer_run runs[],
                              size_t capacity) {
  struct dim room[OPENREG_SANITIZER_MAX_DIMS];
  openreg_sanitizer_run run, last = {0, 0};
  openreg_sanitizer_answer answer;
  struct strided_region strided;
  size_t count = 0;
  if (!openreg_strided_make(&strided, room, region))
    return SIZE_MAX;
  uint64_t begin = strided.low, found = 0;
  while ((answer = openreg_strided_find(&strided, begin, strided.high, &run)) ==
         OPENREG_SANITIZER_YES) {
    if (++found > MAX_RUNS)
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
