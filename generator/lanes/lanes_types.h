/* lanes_types.h: converts batches of numbers to elements of a type and back, for lanes.c. See
 * types.h.
 *
 * The loops run over whole arrays, one for each type, with the switch outside, so that compilers
 * vectorize them.
 */
#ifndef OPENREG_GENERATOR_LANES_TYPES_H
#define OPENREG_GENERATOR_LANES_TYPES_H

#include "generator/generator.h"
#include "base/half.h"

static void store_floats(openreg_type type, const float *values, size_t count, void *elements) {
  float *floats = elements;
  uint16_t *halves = elements;
  if (type == OPENREG_FLOAT32) {
    for (size_t j = 0; j < count; j++)
      floats[j] = values[j];
  } else if (type == OPENREG_FLOAT16) {
    for (size_t j = 0; j < count; j++)
      halves[j] = cuda_half_of_float(values[j]);
  } else {
    for (size_t j = 0; j < count; j++)
      halves[j] = cuda_bfloat16_of_float(values[j]);
  }
}

static void load_floats(openreg_type type, const void *elements, size_t count, float *values) {
  const float *floats = elements;
  const uint16_t *halves = elements;
  if (type == OPENREG_FLOAT32) {
    for (size_t j = 0; j < count; j++)
      values[j] = floats[j];
  } else if (type == OPENREG_FLOAT16) {
    for (size_t j = 0; j < count; j++)
      values[j] = float_of_half(halves[j]);
  } else {
    for (size_t j = 0; j < count; j++)
      values[j] = float_of_bfloat16(halves[j]);
  }
}

static void round_floats(openreg_type type, float *values, size_t count) {
  if (type == OPENREG_FLOAT16) {
    for (size_t j = 0; j < count; j++)
      values[j] = float_of_half(cuda_half_of_float(values[j]));
  } else if (type == OPENREG_BFLOAT16) {
    for (size_t j = 0; j < count; j++)
      values[j] = float_of_bfloat16(cuda_bfloat16_of_float(values[j]));
  }
}

#define STORE_AS(name, number, element, convert)                                                   \
  static void name(const number *values, size_t count, void *elements) {                           \
    element *to = elements;                                                                        \
    for (size_t j = 0; j < count; j++)                                                             \
      to[j] = convert(values[j]);                                                                  \
  }

/* 16-bit floats are converted through float. */
#define HALF_OF_INTEGER(value)     cuda_half_of_float((float)(value))
#define BFLOAT16_OF_INTEGER(value) cuda_bfloat16_of_float((float)(value))

/* Signed and unsigned integers of the same width store the same bits. */
#define STORE_INTEGERS(name, number)                                                               \
  STORE_AS(name##_as_8, number, uint8_t, (uint8_t))                                                \
  STORE_AS(name##_as_16, number, uint16_t, (uint16_t))                                             \
  STORE_AS(name##_as_32, number, uint32_t, (uint32_t))                                             \
  STORE_AS(name##_as_64, number, uint64_t, (uint64_t))                                             \
  STORE_AS(name##_as_bool, number, bool, (bool))                                                   \
  STORE_AS(name##_as_half, number, uint16_t, HALF_OF_INTEGER)                                      \
  STORE_AS(name##_as_bfloat16, number, uint16_t, BFLOAT16_OF_INTEGER)                              \
  STORE_AS(name##_as_float, number, float, (float))                                                \
  STORE_AS(name##_as_double, number, double, (double))                                             \
                                                                                                   \
  static void name(openreg_type type, const number *values, size_t count, void *elements) {        \
    switch (type) {                                                                                \
    case OPENREG_UINT8:                                                                            \
    case OPENREG_INT8:                                                                             \
      return name##_as_8(values, count, elements);                                                 \
    case OPENREG_INT16:                                                                            \
    case OPENREG_UINT16:                                                                           \
      return name##_as_16(values, count, elements);                                                \
    case OPENREG_INT32:                                                                            \
    case OPENREG_UINT32:                                                                           \
      return name##_as_32(values, count, elements);                                                \
    case OPENREG_INT64:                                                                            \
    case OPENREG_UINT64:                                                                           \
      return name##_as_64(values, count, elements);                                                \
    case OPENREG_BOOL:                                                                             \
      return name##_as_bool(values, count, elements);                                              \
    case OPENREG_FLOAT16:                                                                          \
      return name##_as_half(values, count, elements);                                              \
    case OPENREG_BFLOAT16:                                                                         \
      return name##_as_bfloat16(values, count, elements);                                          \
    case OPENREG_FLOAT32:                                                                          \
      return name##_as_float(values, count, elements);                                             \
    case OPENREG_FLOAT64:                                                                          \
      return name##_as_double(values, count, elements);                                            \
    }                                                                                              \
  }

STORE_INTEGERS(store_int32s, int32_t)
STORE_INTEGERS(store_int64s, int64_t)

#endif
