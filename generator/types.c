/* types.c: sizes of types and conversion of batches. See types.h.
 *
 * Loops over whole arrays, one a type, with the switch outside: what compilers vectorise.
 */
#include "types.h"

#include "half.h"

#include <assert.h>

size_t openreg_type_bytes(openreg_type type) {
  switch (type) {
  case OPENREG_UINT8:
  case OPENREG_INT8:
  case OPENREG_BOOL:
    return 1;
  case OPENREG_INT16:
  case OPENREG_UINT16:
  case OPENREG_FLOAT16:
  case OPENREG_BFLOAT16:
    return 2;
  case OPENREG_INT32:
  case OPENREG_UINT32:
  case OPENREG_FLOAT32:
    return 4;
  case OPENREG_INT64:
  case OPENREG_UINT64:
  case OPENREG_FLOAT64:
    return 8;
  }
  return 0;
}

bool type_is_floating(openreg_type type) {
  return type_is_float_computed(type) || type == OPENREG_FLOAT64;
}

bool type_is_float_computed(openreg_type type) {
  return type == OPENREG_FLOAT16 || type == OPENREG_BFLOAT16 || type == OPENREG_FLOAT32;
}

void type_store_floats(openreg_type type, const float *values, size_t count, void *elements) {
  assert(type_is_float_computed(type));
  float *floats = elements;
  uint16_t *halves = elements;
  if (type == OPENREG_FLOAT32) {
    for (size_t j = 0; j < count; j++)
      floats[j] = values[j];
  } else if (type == OPENREG_FLOAT16) {
    for (size_t j = 0; j < count; j++)
      halves[j] = half_of_float(values[j]);
  } else {
    for (size_t j = 0; j < count; j++)
      halves[j] = bfloat16_of_float(values[j]);
  }
}

void type_load_floats(openreg_type type, const void *elements, size_t count, float *values) {
  assert(type_is_float_computed(type));
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

void type_round_floats(openreg_type type, float *values, size_t count) {
  assert(type_is_float_computed(type));
  if (type == OPENREG_FLOAT16) {
    for (size_t j = 0; j < count; j++)
      values[j] = float_of_half(half_of_float(values[j]));
  } else if (type == OPENREG_BFLOAT16) {
    for (size_t j = 0; j < count; j++)
      values[j] = float_of_bfloat16(bfloat16_of_float(values[j]));
  }
}

float type_round_float(openreg_type type, float value) {
  type_round_floats(type, &value, 1);
  return value;
}

double type_load_real(openreg_type type, const void *elements, uint64_t index) {
  switch (type) {
  case OPENREG_FLOAT16:
    return (double)float_of_half(((const uint16_t *)elements)[index]);
  case OPENREG_BFLOAT16:
    return (double)float_of_bfloat16(((const uint16_t *)elements)[index]);
  case OPENREG_FLOAT32:
    return (double)((const float *)elements)[index];
  default:
    assert(type == OPENREG_FLOAT64);
    return ((const double *)elements)[index];
  }
}

void type_store_real(openreg_type type, double value, void *elements, uint64_t index) {
  switch (type) {
  case OPENREG_FLOAT16:
    ((uint16_t *)elements)[index] = half_of_float((float)value);
    break;
  case OPENREG_BFLOAT16:
    ((uint16_t *)elements)[index] = bfloat16_of_float((float)value);
    break;
  case OPENREG_FLOAT32:
    ((float *)elements)[index] = (float)value;
    break;
  default:
    assert(type == OPENREG_FLOAT64);
    ((double *)elements)[index] = value;
  }
}

double type_round_computed(openreg_type type, double value) {
  return type == OPENREG_FLOAT64 ? value : (double)(float)value;
}

double type_round_real(openreg_type type, double value) {
  return type == OPENREG_FLOAT64 ? value : (double)type_round_float(type, (float)value);
}

#define STORE_AS(name, element, convert)                                                           \
  static void name(const int64_t *values, size_t count, void *elements) {                          \
    element *to = elements;                                                                        \
    for (size_t j = 0; j < count; j++)                                                             \
      to[j] = convert(values[j]);                                                                  \
  }

static inline uint16_t half_of_integer(int64_t value) {
  return half_of_float((float)value);
}

static inline uint16_t bfloat16_of_integer(int64_t value) {
  return bfloat16_of_float((float)value);
}

/* Signed and unsigned integers of one width store the same bits. */
STORE_AS(store_8, uint8_t, (uint8_t))
STORE_AS(store_16, uint16_t, (uint16_t))
STORE_AS(store_32, uint32_t, (uint32_t))
STORE_AS(store_64, uint64_t, (uint64_t))
STORE_AS(store_bool, bool, (bool))
STORE_AS(store_half, uint16_t, half_of_integer)
STORE_AS(store_bfloat16, uint16_t, bfloat16_of_integer)
STORE_AS(store_float, float, (float))
STORE_AS(store_double, double, (double))

void type_store_integers(openreg_type type, const int64_t *values, size_t count, void *elements) {
  switch (type) {
  case OPENREG_UINT8:
  case OPENREG_INT8:
    return store_8(values, count, elements);
  case OPENREG_INT16:
  case OPENREG_UINT16:
    return store_16(values, count, elements);
  case OPENREG_INT32:
  case OPENREG_UINT32:
    return store_32(values, count, elements);
  case OPENREG_INT64:
  case OPENREG_UINT64:
    return store_64(values, count, elements);
  case OPENREG_BOOL:
    return store_bool(values, count, elements);
  case OPENREG_FLOAT16:
    return store_half(values, count, elements);
  case OPENREG_BFLOAT16:
    return store_bfloat16(values, count, elements);
  case OPENREG_FLOAT32:
    return store_float(values, count, elements);
  case OPENREG_FLOAT64:
    return store_double(values, count, elements);
  }
}
