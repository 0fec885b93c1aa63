/* types.h: converts computed values to elements of a type.
 *
 * Kernels compute batches in float, double or 64-bit integers, and store them with these functions.
 * They convert as C++'s static_cast does in PyTorch's kernels. 16-bit floats are converted through
 * float, as c10's are: an int64 is rounded to float first, then again.
 */
#ifndef OPENREG_GENERATOR_TYPES_H
#define OPENREG_GENERATOR_TYPES_H

#include "generator/generator.h"

#pragma GCC visibility push(hidden)

bool openreg_type_is_floating(openreg_type type);

/* Whether kernels of this type compute in float: floating types except float64. */
bool openreg_type_is_float_computed(openreg_type type);

/* Converts `values` to `count` elements of `type`, for which openreg_type_is_float_computed must
 * hold. */
void openreg_type_store_floats(openreg_type type, const float *values, size_t count,
                               void *elements);

/* Returns where to compute floats that will become `elements`. For float32 that is `elements`
 * itself, and openreg_type_store_floats has nothing left to do. Otherwise it is `room`. */
static inline float *type_float_buffer(openreg_type type, void *elements, float *room) {
  return type == OPENREG_FLOAT32 ? elements : room;
}

/* The inverse conversion, which is exact. */
void openreg_type_load_floats(openreg_type type, const void *elements, size_t count, float *values);

/* Replaces values by the nearest ones that the type holds. */
void openreg_type_round_floats(openreg_type type, float *values, size_t count);
float openreg_type_round_float(openreg_type type, float value);

/* Load one element of a floating type as a double, exactly, and store a double as an element,
 * rounded. For 16-bit types it is rounded to float first. */
double openreg_type_load_real(openreg_type type, const void *elements, uint64_t index);
void openreg_type_store_real(openreg_type type, double value, void *elements, uint64_t index);

/* Rounds to the precision in which kernels of a floating type compute: float, or double for
 * float64. A sum, product, quotient or root of numbers of that precision, computed in double and
 * rounded by this, equals the result in that precision, because 53 bits are more than twice 24 and
 * 2. */
double openreg_type_round_computed(openreg_type type, double value);

/* Rounds to the type's own precision. */
double openreg_type_round_real(openreg_type type, double value);

/* Every type; for bool, whether the value is not 0. */
void openreg_type_store_int32s(openreg_type type, const int32_t *values, size_t count,
                               void *elements);
void openreg_type_store_int64s(openreg_type type, const int64_t *values, size_t count,
                               void *elements);

#pragma GCC visibility pop
#endif
