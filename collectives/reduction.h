/* reduction.h: the loops of openreg_reduce, once for each instruction set.
 *
 * A tile of each source goes into an accumulator, one after the other, and the accumulator into the
 * destinations. The accumulator has the numbers' own type, but float for 16-bit floats. Complex
 * numbers are pairs of numbers to all but products.
 */
#ifndef OPENREG_COLLECTIVES_REDUCTION_H
#define OPENREG_COLLECTIVES_REDUCTION_H

#include "collectives/collectives.h"

#pragma GCC visibility push(hidden)

/* Elements from `from` on, each times the factor, if the reduction has one. `to` may be a source of
 * elements itself, at the same place. */
struct openreg_reduction_loops {
  void (*load)(void *to, const void *from, size_t count, double factor);
  /* Load, then add; the same into `also`, unless that is NULL. */
  void (*load_two)(void *to, void *also, const void *one, double one_factor, const void *other,
                   double other_factor, size_t count);
  void (*add)(void *accumulator, const void *from, size_t count, double factor);
  /* Rounds and divides; NULL where the accumulator is the result. */
  void (*store)(void *to, const void *accumulator, size_t count, int divisor);
  size_t accumulator_bytes; /* of an element */
  size_t numbers;           /* that an element of the dtype is */
};

/* NULL for what is not defined. */
typedef const struct openreg_reduction_loops *openreg_reduction_table(openreg_reduction reduction,
                                                                      openreg_dtype dtype);
openreg_reduction_table openreg_reduction_c, openreg_reduction_avx2, openreg_reduction_avx512;

#pragma GCC visibility pop
#endif
