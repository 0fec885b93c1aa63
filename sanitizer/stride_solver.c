/* stride_solver.c: decides exactly whether a sum of strides lies in an interval.
 *
 * Whether two regions share a byte is the question whether
 *     low <= i_1 s_1 + ... + i_n s_n <= high,   0 <= i_k < size_k
 * has a solution (overlap.c): a bounded linear problem. With one dimension, a division answers it.
 * With two, the question is for the smallest x with  l <= a x mod m <= r, and a variant of Euclid's
 * algorithm answers it. With more, the code tries the possible indices of the outermost dimensions
 * one by one; nested regions have at most two for each dimension. It skips an index if the
 * remaining interval holds no multiple of the greatest common divisor of the remaining strides. The
 * number of tries is limited; beyond the limit the answer is UNKNOWN.
 */
#include "sanitizer/strided_region.h"

enum {
  MAX_DIMS = 2 * OPENREG_SANITIZER_MAX_DIMS, /* of two regions */
  MAX_TRIES = 4096                           /* less than a millisecond */
};

__extension__ typedef __int128 wide;

/* Division that rounds down, and up. The divisor is positive. */
static int64_t divide_down(int64_t a, int64_t b) {
  return a / b - (a % b < 0);
}

static int64_t divide_up(int64_t a, int64_t b) {
  return a / b + (a % b > 0);
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* The smallest x >= 0 with  low <= a x mod m <= high, for 0 <= a < m and 0 < low <= high < m; -1 if
 * there is none.
 *
 * If no multiple of a itself lies between, a x - m y does for some y > 0. Then  m y mod a  lies
 * between -high and -low modulo a, which is the same question with m mod a and a. Its smallest y
 * belongs to the smallest x. */
static int64_t first_residue(int64_t a, int64_t m, int64_t low, int64_t high) {
  if (a == 0)
    return -1;
  int64_t x = divide_up(low, a);
  if ((wide)a * x <= high)
    return x;
  int64_t y = first_residue(m % a, a, a - high % a, a - low % a);
  return y < 0 ? -1 : (int64_t)(((wide)m * y + low + a - 1) / a);
}

static bool reaches_with_one(const struct dim *dim, int64_t low, int64_t high) {
  int64_t stride = (int64_t)dim->stride;
  return high >= 0 && smaller((int64_t)dim->size - 1, high / stride) * stride >= low;
}

/* The outer index x leaves  low - x s <= y t <= high - x s. The largest y that satisfies the second
 * inequality is floor((high - x s) / t). It must be in range, which bounds x, and satisfy the first
 * inequality: (high - x s) mod t <= high - low. */
static bool reaches_with_two(const struct dim dim[], int64_t low, int64_t high) {
  int64_t t = (int64_t)dim[0].stride, s = (int64_t)dim[1].stride, width = high - low;
  int64_t inner = ((int64_t)dim[0].size - 1) * t; /* the largest y t */
  if (high < 0)
    return false;
  /* An interval as long as t holds a multiple of t wherever y t can reach. */
  int64_t reach = width + 1 >= t ? inner + width : inner + t - 1;
  int64_t first = larger(0, divide_up(high - reach, s));
  int64_t last = smaller((int64_t)dim[1].size - 1, high / s);
  if (first > last)
    return false;
  if (width + 1 >= t)
    return true;
  int64_t rest = (high - first * s) % t;
  if (rest <= width)
    return true;
  int64_t x = first_residue((t - s % t) % t, t, t - rest, t - rest + width);
  return x >= 0 && x <= last - first;
}

struct search {
  const struct dim *dim;
  int64_t reach[MAX_DIMS], divisor[MAX_DIMS]; /* of dimensions 0 to k */
  int tries;
};

static int64_t common_divisor(int64_t a, int64_t b) {
  while (b != 0) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static void prepare(struct search *search, const struct dim dim[], int dims) {
  int64_t reach = 0, divisor = 0;
  search->dim = dim;
  search->tries = MAX_TRIES;
  for (int k = 0; k < dims; k++) {
    reach += ((int64_t)dim[k].size - 1) * (int64_t)dim[k].stride;
    divisor = common_divisor((int64_t)dim[k].stride, divisor);
    search->reach[k] = reach;
    search->divisor[k] = divisor;
  }
}

/* Also returns false when no tries are left; `tries` is negative then. */
static bool reaches(struct search *search, int dims, int64_t low, int64_t high) {
  int64_t divisor = search->divisor[dims - 1];
  if (high < 0 || low > search->reach[dims - 1] || divide_down(high, divisor) * divisor < low)
    return false;
  if (dims == 1)
    return reaches_with_one(search->dim, low, high);
  if (dims == 2)
    return reaches_with_two(search->dim, low, high);
  const struct dim *outer = &search->dim[dims - 1];
  int64_t stride = (int64_t)outer->stride;
  int64_t first = larger(0, divide_up(low - search->reach[dims - 2], stride));
  int64_t last = smaller((int64_t)outer->size - 1, high / stride);
  for (int64_t i = first; i <= last; i++) {
    if (search->tries-- <= 0)
      return false;
    if (reaches(search, dims - 1, low - i * stride, high - i * stride))
      return true;
  }
  return false;
}

openreg_sanitizer_answer openreg_dims_reach(const struct dim dim[], int dims, int64_t low,
                                            int64_t high) {
  struct search search;
  if (dims == 0)
    return low <= 0 && high >= 0 ? OPENREG_SANITIZER_YES : OPENREG_SANITIZER_NO;
  if (dims == 1)
    return reaches_with_one(dim, low, high) ? OPENREG_SANITIZER_YES : OPENREG_SANITIZER_NO;
  if (dims == 2)
    return reaches_with_two(dim, low, high) ? OPENREG_SANITIZER_YES : OPENREG_SANITIZER_NO;
  prepare(&search, dim, dims);
  if (reaches(&search, dims, low, high))
    return OPENREG_SANITIZER_YES;
  return search.tries < 0 ? OPENREG_SANITIZER_UNKNOWN : OPENREG_SANITIZER_NO;
}
