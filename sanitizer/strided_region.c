/* strided_region.c: brings a region to its normal form, and finds its runs. */
#include "sanitizer/strided_region.h"

#include <assert.h>

static const uint64_t max_address = (uint64_t)1 << 63;

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

/* Visits the dimensions in order of their strides. A stride that leaves no gap extends the run.
 * Then no dimension precedes it, because a preceding stride would be no longer. A stride that is q
 * times the one before, where q is at most that one's size, continues it:
 *   { i s + j q s : i < n, j < m }  =  { k s : k < n + q (m - 1) }.
 * Dimensions of equal strides are the case q = 1. Dimensions that follow each other in memory are
 * the case q = n. */
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

bool openreg_strided_is_nested(const struct strided_region *strided) {
  uint64_t span_bytes = strided->run;
  for (int i = 0; i < strided->dims; i++) {
    if (strided->dim[i].stride < span_bytes)
      return false;
    span_bytes += (strided->dim[i].size - 1) * strided->dim[i].stride;
  }
  return true;
}

/* Extends the bounds by a dimension. Returns false if they leave the range of addresses. */
static bool widen(struct strided_region *strided, uint64_t size, int64_t stride, uint64_t *step) {
  uint64_t span;
  *step = stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
  if (__builtin_mul_overflow(size - 1, *step, &span) || span > max_address)
    return false;
  if (stride >= 0)
    return (strided->high += span) <= max_address;
  if (span > strided->low)
    return false;
  strided->low -= span;
  return true;
}

bool openreg_strided_make(struct strided_region *strided,
                          struct dim room[OPENREG_SANITIZER_MAX_DIMS],
                          const openreg_sanitizer_region *region) {
  bool is_empty = region->element_bytes == 0;
  int dims = 0;
  if (region->dims < 0 || region->dims > OPENREG_SANITIZER_MAX_DIMS ||
      region->address > max_address || region->element_bytes > max_address - region->address)
    return false;
  strided->low = region->address;
  strided->high = region->address + region->element_bytes;
  strided->run = region->element_bytes;
  strided->dim = room;
  for (int i = 0; i < region->dims; i++) {
    int64_t size = region->sizes[i];
    if (size < 0)
      return false;
    is_empty |= size == 0;
  }
  if (is_empty) {
    strided->high = strided->low = region->address;
    strided->dims = 0;
    strided->is_nested = true;
    return true;
  }
  /* Begins with the last dimension, which usually has the smallest stride. */
  for (int i = region->dims - 1; i >= 0; i--) {
    uint64_t size = (uint64_t)region->sizes[i], step;
    if (size == 1 || region->strides[i] == 0)
      continue;
    if (!widen(strided, size, region->strides[i], &step))
      return false;
    room[dims++] = (struct dim){size, step};
  }
  strided->dims = dims == 0 ? 0 : openreg_dims_reduce(room, dims, &strided->run);
  strided->is_nested = openreg_strided_is_nested(strided);
  assert(strided->dims > 0 || strided->run == strided->high - strided->low);
  return true;
}

/* ---- finding runs ---------------------------------------------------------------------------- */

enum { NONE = -1 };

/* Returns the smallest sum of strides that is at least `low`, for nested dimensions. There, the
 * runs that begin within one step of the outermost dimension end before the next step begins. */
static int64_t next_of_nested(const struct dim dim[], int dims, int64_t low) {
  int64_t passed = 0;
  if (low <= 0)
    return 0;
  /* The result is after `passed`. `fallback` is the start of the next step of an outer dimension.
   */
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

/* The same for any dimensions. It halves the interval. */
static openreg_sanitizer_answer next_of_any(const struct strided_region *strided, int64_t low,
                                            int64_t high, int64_t *start) {
  openreg_sanitizer_answer answer = openreg_dims_reach(strided->dim, strided->dims, low, high);
  while (answer == OPENREG_SANITIZER_YES && low < high) {
    int64_t middle = low + (high - low) / 2;
    answer = openreg_dims_reach(strided->dim, strided->dims, low, middle);
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

openreg_sanitizer_answer openreg_strided_find_start(const struct strided_region *strided,
                                                    uint64_t low, uint64_t high, uint64_t *start) {
  openreg_sanitizer_answer answer = OPENREG_SANITIZER_YES;
  uint64_t last = strided->high - strided->run;
  int64_t found;
  if (openreg_strided_is_empty(strided) || low > last || high < strided->low || low > high)
    return OPENREG_SANITIZER_NO;
  if (low <= strided->low) {
    *start = strided->low;
    return OPENREG_SANITIZER_YES;
  }
  if (high > last)
    high = last;
  int64_t from = (int64_t)(low - strided->low), to = (int64_t)(high - strided->low);
  if (strided->is_nested) {
    found = next_of_nested(strided->dim, strided->dims, from);
    if (found == NONE || found > to)
      return OPENREG_SANITIZER_NO;
  } else {
    answer = next_of_any(strided, from, to, &found);
  }
  *start = strided->low + (uint64_t)found;
  return answer;
}

openreg_sanitizer_answer openreg_strided_find(const struct strided_region *strided, uint64_t begin,
                                              uint64_t end, openreg_sanitizer_run *run) {
  uint64_t low = begin >= strided->run ? begin - strided->run + 1 : 0, start;
  if (begin >= end)
    return OPENREG_SANITIZER_NO;
  openreg_sanitizer_answer answer = openreg_strided_find_start(strided, low, end - 1, &start);
  if (answer == OPENREG_SANITIZER_YES) {
    run->begin = start > begin ? start : begin;
    run->end = start + strided->run < end ? start + strided->run : end;
  }
  return answer;
}
