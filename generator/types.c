/* types.c: sizes of types, and conversion of single elements. See types.h. lanes_types.h has the
 * loops over batches. */
#include "generator/types.h"

#include "base/half.h"
#include "generator/lanes/lanes.h"

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

bool openreg_type_is_floating(openreg_type type) {
  return openreg_type_is_float_computed(type) || type == OPENREG_FLOAT64;
}

bool openreg_type_is_float_computed(openreg_type type) {
  return type == OPENREG_FLOAT16 || type == OPENREG_BFLOAT16 || type == OPENREG_FLOAT32;
}

void openreg_type_store_floats(openreg_type type, const float *values, size_t count,
                               void *elements) {
  assert(openreg_type_is_float_computed(type));
  if (values != elements)
    openreg_lanes_chosen()->store_floats(type, values, count, elements);
}

void openreg_type_load_floats(openreg_type type, const void *elements, size_t count,
                              float *values) {
  assert(openreg_type_is_float_computed(type));
  openreg_lanes_chosen()->load_floats(type, elements, count, values);
}

void openreg_type_round_floats(openreg_type type, float *values, size_t count) {
  assert(openreg_type_is_float_computed(type));
  openreg_lanes_chosen()->round_floats(type, values, count);
}

void openreg_type_store_int32s(openreg_type type, const int32_t *values, size_t count,
                               void *elements) {
  openreg_lanes_chosen()->store_int32s(type, values, count, elements);
}

void openreg_type_store_int64s(openreg_type type, const int64_t *values, size_t count,
                               void *elements) {
  openreg_lanes_chosen()->store_int64s(type, values, count, elements);
}

float openreg_type_round_float(openreg_type type, float value) {
  openreg_type_round_floats(type, &value, 1);
  return value;
}

double openreg_type_load_real(openreg_type type, const void *elements, uint64_t index) {
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

void openreg_type_store_real(openreg_type type, double value, void *elements, uint64_t index) {
  switch (type) {
  case OPENREG_FLOAT16:
    ((uint16_t *)elements)[index] = cuda_half_of_float((float)value);
    break;
  case OPENREG_BFLOAT16:
    ((uint16_t *)elements)[index] = cuda_bfloat16_of_float((float)value);
    break;
  case OPENREG_FLOAT32:
    ((float *)elements)[index] = (float)value;
    break;
  default:
    assert(type == OPENREG_FLOAT64);
    ((double *)elements)[index] = value;
  }
}

double openreg_type_round_computed(openreg_type type, double value) {
  return type == OPENREG_FLOAT64 ? value : (double)(float)value;
}

double openreg_type_round_real(openreg_type type, double value) {
  return type == OPENREG_FLOAT64 ? value : (double)openreg_type_round_float(type, (float)value);
}
