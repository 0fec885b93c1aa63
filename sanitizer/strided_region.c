/* box.c: how a region comes to its normal form, and where the runs of a box are. */
#include "sanitizer/strided_region.h"

#include <assert.h>

static const uint64_t most_address = (uint64_t)1 << 63;

/* ---- the normal form ------------------------------------------------------------------------- */

static void sort_by_stride(struct dim dim[], int dims) {
  for (int i = 1; i < dims; i++) {
    struct dim moved = dim[i];
    int place = i;
    for (; place > 0 && dim[place - 1].stride > moved.stride; place--)
      dim[place] = dim[place - 1];
    dim[place] = moved;
  }
}

/* From the smallest stride on. A stride that steps over no gap makes the run longer: there is
 * nothing before it then, for a stride before it would be no longer. A stride that is q times the
 * one before, with q no more than that one's size, continues it:
 *   { i s + j q s : i < n, j < m }  =  { k s : k < n + q (m - 1) }.
 * Dimensions of equal strides are the case q = 1, those that follow each other in memory q = n. */
int openreg_dims_reduce(struct dim dim[], int dims, uint64_t *run) {
  int left = 0;
  sort_by_stride(dim, dims);
  for (int i = 0; i < dims; i++) {
    struct dim next = dim[i], *last = &dim[left - 1];
    if (left == 0 && next.stride <= *run)
      *run += (next.size - 1) * next.stride;
    else if (left > 0 && next.stride % last->stride == 0 &&
             next.stride / last->stride <= last->size)
      last->size += next.stride / last->stride * (next.size - 1);
    else
      dim[left++] = next;
  }
  return left;
}

bool openreg_box_is_nested(const struct box *box) {
  uint64_t extent = box->run;
  for (int i = 0; i < box->dims; i++) {
    if (box->dim[i].stride < extent)
      return false;
    extent += (box->dim[i].size - 1) * box->dim[i].stride;
  }
  return true;
}

/* Widens the bounds by a dimension. Returns false if they leave what addresses can be. */
static bool widen(struct box *box, uint64_t size, int64_t stride, uint64_t *step) {
  uint64_t span;
  *step = stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
  if (__builtin_mul_overflow(size - 1, *step, &span) || span > most_address)
    return false;
  if (stride >= 0)
    return (box->high += span) <= most_address;
  if (span > box->low)
    return false;
  box->low -= span;
  return true;
}

bool openreg_box_make(struct box *box, struct dim room[OPENREG_SANITIZER_MAX_DIMS],
                      const openreg_sanitizer_region *region) {
  bool is_empty = region->element_bytes == 0;
  int dims = 0;
  if (region->dims < 0 || region->dims > OPENREG_SANITIZER_MAX_DIMS ||
      region->address > most_address || region->element_bytes > most_address - region->address)
    return false;
  box->low = region->address;
  box->high = region->address + region->element_bytes;
  box->run = region->element_bytes;
  box->dim = room;
  for (int i = 0; i < region->dims; i++) {
    int64_t size = region->sizes[i];
    if (size < 0)
      return false;
    is_empty |= size == 0;
  }
  if (is_empty) {
    box->high = box->low = region->address;
    box->dims = 0;
    box->is_nested = true;
    return true;
  }
  /* From the last on, which in most regions has the smallest stride. */
  for (int i = region->dims - 1; i >= 0; i--) {
    uint64_t size = (uint64_t)region->sizes[i], step;
    if (size == 1 || region->strides[i] == 0)
      continue;
    if (!widen(box, size, region->strides[i], &step))
      return false;
    room[dims++] = (struct dim){size, step};
  }
  box->dims = dims == 0 ? 0 : openreg_dims_reduce(room, dims, &box->run);
  box->is_nested = openreg_box_is_nested(box);
  assert(box->dims > 0 || box->run == box->high - box->low);
  return true;
}

/* ---- where runs are -------------------------------------------------------------------------- */

enum { NONE = -1 };

/* The smallest sum of steps that is at least `low`, for nested dimensions: where the runs that
 * begin within one step of the outermost dimension end, the next step begins. */
static int64_t next_of_nested(const struct dim dim[], int dims, int64_t low) {
  int64_t passed = 0;
  if (low <= 0)
    return 0;
  /* What is found is behind `passed`; `fallback` is the beginning of the next step further out. */
  int64_t fallback = NONE;
  for (int k = dims - 1; k >= 0; k--) {
    int64_t size = (int64_t)dim[k].size, stride = (int64_t)dim[k].stride;
    int64_t index = low / stride;
    if (index >= size)
      index = size - 1;
    if (index + 1 < size)
      fallback = passed + (index + 1) * stride;
    passed += index * stride;
    low -= index * stride;
    if (low == 0)
      return passed;
  }
  return fallback;
}

/* As above, for any: by halving the interval. */
static openreg_sanitizer_answer next_of_any(const struct box *box, int64_t low, int64_t high,
                                            int64_t *start) {
  openreg_sanitizer_answer answer = openreg_dims_reach(box->dim, box->dims, low, high);
  while (answer == OPENREG_SANITIZER_YES && low < high) {
    int64_t middle = low + (high - low) / 2;
    answer = openreg_dims_reach(box->dim, box->dims, low, middle);
    if (answer == OPENREG_SANITIZER_YES) {
      high = middle;
    } else if (answer == OPENREG_SANITIZER_NO) {
      low = middle + 1;
      answer = OPENREG_SANITIZER_YES;
    }
  }
  *start = low;
  return answer;
}

openreg_sanitizer_answer openreg_box_find_start(const struct box *box, uint64_t low, uint64_t high,
                                                uint64_t *start) {
  openreg_sanitizer_answer answer = OPENREG_SANITIZER_YES;
  uint64_t last = box->high - box->run;
  int64_t found;
  if (openreg_box_is_empty(box) || low > last || high < box->low || low > high)
    return OPENREG_SANITIZER_NO;
  if (low <= box->low) {
    *start = box->low;
    return OPENREG_SANITIZER_YES;
  }
  if (high > last)
    high = last;
  int64_t from = (int64_t)(low - box->low), to = (int64_t)(high - box->low);
  if (box->is_nested) {
    found = next_of_nested(box->dim, box->dims, from);
    if (found == NONE || found > to)
      return OPENREG_SANITIZER_NO;
  } else {
    answer = next_of_any(box, from, to, &found);
  }
  *start = box->low + (uint64_t)found;
  return answer;
}

openreg_sanitizer_answer openreg_box_find(const struct box *box, uint64_t begin, uint64_t end,
                                          openreg_sanitizer_run *run) {
  uint64_t low = begin >= box->run ? begin - box->run + 1 : 0, start;
  if (begin >= end)
    return OPENREG_SANITIZER_NO;
  openreg_sanitizer_answer answer = openreg_box_find_start(box, low, end - 1, &start);
  if (answer == OPENREG_SANITIZER_YES) {
    run->begin = start > begin ? start : begin;
    run->end = start + box->run < end ? start + box->run : end;
  }
  return answer;
}
