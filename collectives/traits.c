/* traits.c: properties of dtypes, reductions and collectives, from the lists of collectives.h. */
#include "collectives/collectives.h"

#include <assert.h>

size_t openreg_dtype_bytes(openreg_dtype dtype) {
  static const unsigned char bytes[] = {
#define X(name, size, text) size,
      OPENREG_DTYPE_LIST(X)
#undef X
  };
  assert(dtype < OPENREG_DTYPE_COUNT);
  return bytes[dtype];
}

const char *openreg_dtype_name(openreg_dtype dtype) {
  static const char *const names[] = {
#define X(name, size, text) text,
      OPENREG_DTYPE_LIST(X)
#undef X
  };
  assert(dtype < OPENREG_DTYPE_COUNT);
  return names[dtype];
}

const char *openreg_reduction_name(openreg_reduction reduction) {
  static const char *const names[] = {
#define X(name, text) text,
      OPENREG_REDUCTION_LIST(X)
#undef X
  };
  assert(reduction < OPENREG_REDUCTION_COUNT);
  return names[reduction];
}

const openreg_collective_traits *openreg_collective_traits_of(openreg_collective_kind kind) {
  static const openreg_collective_traits rows[] = {
#define X(kind_name, text, input_rule, output_rule, length_rule, flags, move)                      \
  [OPENREG_COLLECTIVE_##kind_name] = {                                                             \
      .name = text,                                                                                \
      .inputs = OPENREG_BUFFERS_##input_rule,                                                      \
      .outputs = OPENREG_BUFFERS_##output_rule,                                                    \
      .lengths = OPENREG_LENGTHS_##length_rule,                                                    \
      .has_root = ((flags)&OPENREG_HAS_ROOT) != 0,                                                 \
      .reduces = ((flags)&OPENREG_REDUCES) != 0,                                                   \
      .is_root_output_optional = ((flags)&OPENREG_ROOT_OUTPUT_IS_OPTIONAL) != 0,                   \
  },
      OPENREG_COLLECTIVE_LIST(X)
#undef X
  };
  assert(kind < OPENREG_COLLECTIVE_COUNT);
  return &rows[kind];
}

const char *openreg_collective_name(openreg_collective_kind kind) {
  return openreg_collective_traits_of(kind)->name;
}

static bool is_integer(openreg_dtype dtype) {
  return dtype >= OPENREG_DTYPE_UINT8 && dtype <= OPENREG_DTYPE_INT64;
}

static bool is_float8(openreg_dtype dtype) {
  return dtype == OPENREG_DTYPE_FLOAT8_E4M3 || dtype == OPENREG_DTYPE_FLOAT8_E5M2;
}

static bool is_complex(openreg_dtype dtype) {
  return dtype >= OPENREG_DTYPE_COMPLEX32 && dtype <= OPENREG_DTYPE_COMPLEX128;
}

bool openreg_reduction_is_defined(openreg_reduction reduction, openreg_dtype dtype) {
  if (dtype >= OPENREG_DTYPE_FLOAT8 || reduction >= OPENREG_REDUCTION_COUNT)
    return false;
  switch (reduction) {
  case OPENREG_REDUCE_AVG:
    return dtype != OPENREG_DTYPE_BOOL;
  case OPENREG_REDUCE_PREMUL_SUM:
    return dtype != OPENREG_DTYPE_BOOL && !is_integer(dtype) && !is_float8(dtype);
  case OPENREG_REDUCE_MIN:
  case OPENREG_REDUCE_MAX:
    return !is_complex(dtype);
  case OPENREG_REDUCE_BAND:
  case OPENREG_REDUCE_BOR:
  case OPENREG_REDUCE_BXOR:
    return dtype == OPENREG_DTYPE_BOOL || is_integer(dtype);
  default:
    return true;
  }
}
