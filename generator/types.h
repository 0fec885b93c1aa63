/* types.h: how computed values become elements of a type.
 *
 * Kernels compute in float, double or 64-bit integers, a batch at a time, and store the batch
 * through these functions: converting as C++'s static_cast does in PyTorch's kernels. 16-bit floats
 * are reached through float, as c10's are: an int64 is rounded to float first, then again.
 */
#ifndef OPENREG_GENERATOR_TYPES_H
#define OPENREG_GENERATOR_TYPES_H

#include "generator/generator.h"

#pragma GCC visibility push(hidden)

bool openreg_type_is_floating(openreg_type type);

/* Floating types but float64, whose kernels compute in float. */
bool openreg_type_is_float_computed(openreg_type type);

/* `values` becomes `count` elements of `type`; openreg_type_is_float_computed must hold. */
void openreg_type_store_floats(openreg_type type, const float *values, size_t count,
                               void *elements);

/* Where to compute floats that are to become `elements`: there, if they are of float32, and then
 * openreg_type_store_floats has nothing left to do; else in `room`. */
static inline float *type_place_for_floats(openreg_type type, void *elements, float *room) {
  return type == OPENREG_FLOAT32 ? elements : room;
}

/* The way back, exact. */
void openreg_type_load_floats(openreg_type type, const void *elements, size_t count, float *values);

/* Replaces values by the nearest ones that the type holds. */
void openreg_type_round_floats(openreg_type type, float *values, size_t count);
float openreg_type_round_float(openreg_type type, float value);

/* One element of a floating type as a double, exactly, and a double as an element, rounded: to
 * float first for 16-bit types. */
double openreg_type_load_real(openreg_type type, const void *elements, uint64_t index);
void openreg_type_store_real(openreg_type type, double value, void *elements, uint64_t index);

/* The precision in which kernels of a floating type compute: float, or double for float64. A sum,
 * product, quotient or root of numbers of that precision, worked out in double and rounded by this,
 * is what the precision itself gives: 53 bits are more than twice 24 and 2. */
double openreg_type_round_computed(openreg_type type, double value);

/* The type's own precision. */
double openreg_type_round_real(openreg_type type, double value);

/* Every type; for bool, whether the value is not 0. */
void openreg_type_store_int32s(openreg_type type, const int32_t *values, size_t count,
                               void *elements);
void openreg_type_store_int64s(openreg_type type, const int64_t *values, size_t count,
                               void *elements);

#pragma GCC visibility pop
#endif
