/* stand_in.c: names and plain arithmetic, until the vectorised one is here. */
#include "base/half.h"
#include "collectives/reduction.h"

#include <complex.h>
#include <math.h>

size_t openreg_dtype_bytes(openreg_dtype dtype) {
  static const size_t bytes[] = {
#define X(name, bytes, text) bytes,
      OPENREG_DTYPE_LIST(X)
#undef X
  };
  return bytes[dtype];
}

const char *openreg_dtype_name(openreg_dtype dtype) {
  static const char *const names[] = {
#define X(name, bytes, text) text,
      OPENREG_DTYPE_LIST(X)
#undef X
  };
  return names[dtype];
}

const char *openreg_reduction_name(openreg_reduction reduction) {
  static const char *const names[] = {
#define X(name, text) text,
      OPENREG_REDUCTION_LIST(X)
#undef X
  };
  return names[reduction];
}

const char *openreg_collective_name(openreg_collective_kind kind) {
  static const char *const names[] = {
#define X(name, text) text,
      OPENREG_COLLECTIVE_LIST(X)
#undef X
  };
  return names[kind];
}

static bool is_complex(openreg_dtype dtype) {
  return dtype >= OPENREG_DTYPE_COMPLEX32 && dtype <= OPENREG_DTYPE_COMPLEX128;
}

bool openreg_reduction_is_defined(openreg_reduction reduction, openreg_dtype dtype) {
  if (dtype >= OPENREG_DTYPE_FLOAT8)
    return false;
  bool is_integer = dtype <= OPENREG_DTYPE_INT64;
  switch (reduction) {
  case OPENREG_REDUCE_AVG:
    return dtype != OPENREG_DTYPE_BOOL;
  case OPENREG_REDUCE_PREMUL_SUM:
    return !is_integer;
  case OPENREG_REDUCE_MIN:
  case OPENREG_REDUCE_MAX:
    return !is_complex(dtype);
  case OPENREG_REDUCE_BAND:
  case OPENREG_REDUCE_BOR:
  case OPENREG_REDUCE_BXOR:
    return is_integer;
  default:
    return true;
  }
}

#define REAL(T, A, LOAD, STORE)                                                                    \
  for (size_t i = 0; i < job->count; i++) {                                                        \
    A sum = 0;                                                                                     \
    for (int s = 0; s < job->source_count; s++) {                                                  \
      A value = LOAD(((const T *)job->sources[s])[i]);                                             \
      if (job->factors != NULL)                                                                    \
        value *= (A)job->factors[s];                                                               \
      if (s == 0)                                                                                  \
        sum = value;                                                                               \
      else                                                                                         \
        switch (job->reduction) {                                                                  \
        case OPENREG_REDUCE_PRODUCT:                                                               \
          sum *= value;                                                                            \
          break;                                                                                   \
        case OPENREG_REDUCE_MIN:                                                                   \
          sum = sum != sum || value < sum ? value : sum;                                           \
          break;                                                                                   \
        case OPENREG_REDUCE_MAX:                                                                   \
          sum = sum != sum || value > sum ? value : sum;                                           \
          break;                                                                                   \
        default:                                                                                   \
          sum += value;                                                                            \
        }                                                                                          \
    }                                                                                              \
    if (job->reduction == OPENREG_REDUCE_AVG)                                                      \
      sum /= (A)job->source_count;                                                                 \
    for (int d = 0; d < job->destination_count; d++)                                               \
      ((T *)job->destinations[d])[i] = STORE(sum);                                                 \
  }                                                                                                \
  break

#define INTEGER(T, A)                                                                              \
  for (size_t i = 0; i < job->count; i++) {                                                        \
    A sum = ((const T *)job->sources[0])[i];                                                       \
    for (int s = 1; s < job->source_count; s++) {                                                  \
      A value = ((const T *)job->sources[s])[i];                                                   \
      switch (job->reduction) {                                                                    \
      case OPENREG_REDUCE_PRODUCT:                                                                 \
        sum = (A)((uint64_t)sum * (uint64_t)value);                                                \
        break;                                                                                     \
      case OPENREG_REDUCE_MIN:                                                                     \
        sum = value < sum ? value : sum;                                                           \
        break;                                                                                     \
      case OPENREG_REDUCE_MAX:                                                                     \
        sum = value > sum ? value : sum;                                                           \
        break;                                                                                     \
      case OPENREG_REDUCE_BAND:                                                                    \
        sum &= value;                                                                              \
        break;                                                                                     \
      case OPENREG_REDUCE_BOR:                                                                     \
        sum |= value;                                                                              \
        break;                                                                                     \
      case OPENREG_REDUCE_BXOR:                                                                    \
        sum ^= value;                                                                              \
        break;                                                                                     \
      default:                                                                                     \
        sum = (A)((uint64_t)sum + (uint64_t)value);                                                \
      }                                                                                            \
    }                                                                                              \
    sum = (T)sum;                                                                                  \
    if (job->reduction == OPENREG_REDUCE_AVG)                                                      \
      sum /= (A)job->source_count;                                                                 \
    for (int d = 0; d < job->destination_count; d++)                                               \
      ((T *)job->destinations[d])[i] = (T)sum;                                                     \
  }                                                                                                \
  break

#define COMPLEX(T)                                                                                 \
  for (size_t i = 0; i < job->count; i++) {                                                        \
    T sum = 0;                                                                                     \
    for (int s = 0; s < job->source_count; s++) {                                                  \
      T value = ((const T *)job->sources[s])[i];                                                   \
      if (job->factors != NULL)                                                                    \
        value *= (T)job->factors[s];                                                               \
      if (s == 0)                                                                                  \
        sum = value;                                                                               \
      else if (job->reduction == OPENREG_REDUCE_PRODUCT)                                           \
        sum *= value;                                                                              \
      else                                                                                         \
        sum += value;                                                                              \
    }                                                                                              \
    if (job->reduction == OPENREG_REDUCE_AVG)                                                      \
      sum /= (T)job->source_count;                                                                 \
    for (int d = 0; d < job->destination_count; d++)                                               \
      ((T *)job->destinations[d])[i] = sum;                                                        \
  }                                                                                                \
  break

#define SAME(value) (value)

static void reduce_bool(const openreg_reduction_job *job) {
  for (size_t i = 0; i < job->count; i++) {
    bool sum = ((const uint8_t *)job->sources[0])[i] != 0;
    for (int s = 1; s < job->source_count; s++) {
      bool value = ((const uint8_t *)job->sources[s])[i] != 0;
      bool both = job->reduction == OPENREG_REDUCE_PRODUCT ||
                  job->reduction == OPENREG_REDUCE_MIN || job->reduction == OPENREG_REDUCE_BAND;
      sum = both                                    ? sum && value
            : job->reduction == OPENREG_REDUCE_BXOR ? sum != value
                                                    : sum || value;
    }
    for (int d = 0; d < job->destination_count; d++)
      ((uint8_t *)job->destinations[d])[i] = sum;
  }
}

static void reduce_tile(const openreg_reduction_job *job) {
  switch (job->dtype) {
  case OPENREG_DTYPE_BOOL:
    reduce_bool(job);
    break;
  case OPENREG_DTYPE_UINT8:
    INTEGER(uint8_t, uint64_t);
  case OPENREG_DTYPE_INT8:
    INTEGER(int8_t, int64_t);
  case OPENREG_DTYPE_UINT16:
    INTEGER(uint16_t, uint64_t);
  case OPENREG_DTYPE_INT16:
    INTEGER(int16_t, int64_t);
  case OPENREG_DTYPE_UINT32:
    INTEGER(uint32_t, uint64_t);
  case OPENREG_DTYPE_INT32:
    INTEGER(int32_t, int64_t);
  case OPENREG_DTYPE_UINT64:
    INTEGER(uint64_t, uint64_t);
  case OPENREG_DTYPE_INT64:
    INTEGER(int64_t, int64_t);
  case OPENREG_DTYPE_FLOAT16:
    REAL(uint16_t, float, float_of_half, half_of_float);
  case OPENREG_DTYPE_BFLOAT16:
    REAL(uint16_t, float, float_of_bfloat16, bfloat16_of_float);
  case OPENREG_DTYPE_FLOAT32:
    REAL(float, float, SAME, SAME);
  case OPENREG_DTYPE_FLOAT64:
    REAL(double, double, SAME, SAME);
  case OPENREG_DTYPE_COMPLEX64:
    COMPLEX(float complex);
  case OPENREG_DTYPE_COMPLEX128:
    COMPLEX(double complex);
  default:
    break;
  }
}

bool openreg_reduce(const openreg_reduction_job *job, bool (*is_ended)(const void *),
                    const void *context) {
  enum { TILE = 1024 };
  const void *sources[OPENREG_MAX_RANKS];
  void *destinations[OPENREG_MAX_RANKS];
  size_t element = openreg_dtype_bytes(job->dtype);
  for (size_t done = 0; done < job->count; done += TILE) {
    if (is_ended != NULL && is_ended(context))
      return false;
    openreg_reduction_job tile = *job;
    tile.count = job->count - done < TILE ? job->count - done : TILE;
    tile.sources = sources;
    tile.destinations = destinations;
    for (int i = 0; i < job->source_count; i++)
      sources[i] = (const char *)job->sources[i] + done * element;
    for (int i = 0; i < job->destination_count; i++)
      destinations[i] = (char *)job->destinations[i] + done * element;
    reduce_tile(&tile);
  }
  return true;
}
