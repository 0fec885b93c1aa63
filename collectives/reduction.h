/* reduction.h: the loops of openreg_reduce, compiled once for each instruction set.
 *
 * A loop adds a tile of each source to an accumulator, one source after the other, and then stores
 * the accumulator to the destinations. The accumulator has the type of the elements, except that
 * floats of 8 and 16 bits use float. All reductions except products treat a complex number as two
 * numbers.
 */
#ifndef OPENREG_COLLECTIVES_REDUCTION_H
#define OPENREG_COLLECTIVES_REDUCTION_H

#include "collectives/collectives.h"

#pragma GCC visibility push(hidden)

/* The loops of one reduction and dtype. They multiply each element by the factor if the reduction
 * has one. A destination may be the same array as a source. */
struct openreg_reduction_loops {
  void (*load)(void *to, const void *from, size_t count, double factor);
  /* Loads `one` and adds `other`. Writes the result to `also`, too, unless that is NULL. */
  void (*load_two)(void *to, void *also, const void *one, double one_factor, const void *other,
                   double other_factor, size_t count);
  void (*add)(void *accumulator, const void *from, size_t count, double factor);
  /* Rounds and divides. NULL where the accumulator is the result. */
  void (*store)(void *to, const void *accumulator, size_t count, int divisor);
  size_t accumulator_bytes; /* of one number */
  size_t numbers;           /* numbers in an element of the dtype */
};

/* Returns NULL for a reduction that is not defined for the dtype. */
typedef const struct openreg_reduction_loops *openreg_reduction_table(openreg_reduction reduction,
                                                                      openreg_dtype dtype);
openreg_reduction_table openreg_reduction_c, openreg_reduction_avx2, openreg_reduction_avx512;

#pragma GCC visibility pop
#endif
