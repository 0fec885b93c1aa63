/* reduction_loops.c: the loops of reduction.h.
 *
 * The build compiles this file once for each instruction set and defines REDUCTION_TABLE, the name
 * of its table. Sums and products of integers wrap around, so they are computed on unsigned numbers
 * of at least the width of int.
 */
#include "collectives/reduction.h"

#include "base/float8.h"
#include "base/half.h"

#define UNUSED __attribute__((unused))

/* Iterations are independent: an iteration writes at most the elements that it read itself. */
#define EACH _Pragma("GCC ivdep") for (size_t i = 0; i < count; i++)

/* ---- elements to accumulators and back ------------------------------------------------------- */

#define LOAD_AS_IS(x) (x)
#define LOAD_BOOL(x)  ((uint8_t)((x) != 0))

#define FACTOR_NONE(x, factor)  (x)
#define FACTOR_GIVEN(x, factor) ((x) * (factor))

/* Rounds a factor to the dtype. */
#define ROUND_FLOAT16(factor)  float_of_half(half_of_float((float)(factor)))
#define ROUND_BFLOAT16(factor) float_of_bfloat16(bfloat16_of_float((float)(factor)))
#define ROUND_FLOAT32(factor)  ((float)(factor))
#define ROUND_FLOAT64(factor)  (factor)
#define ROUND_NONE(factor)     0

/* ---- combining x, of an earlier source, and y, of a later one -------------------------------- */

#define SUM(x, y)     ((x) + (y))
#define PRODUCT(x, y) ((x) * (y))
#define BAND(x, y)    ((x) & (y))
#define BOR(x, y)     ((x) | (y))
#define BXOR(x, y)    ((x) ^ (y))
/* A number wins over a NaN, and the earlier of two equal values wins. */
#define MIN(x, y) ((y) < (x) || (x) != (x) ? (y) : (x))
#define MAX(x, y) ((y) > (x) || (x) != (x) ? (y) : (x))

/* LOOPS defines the loops for elements of type T that are accumulated in type A. COMBINE is
 * computed in type W. */
#define LOOPS(NAME, T, A, W, LOAD, FACTOR, ROUND, COMBINE)                                         \
  static void NAME##_load(void *to, const void *from, size_t count, UNUSED double given) {         \
    A *a = to;                                                                                     \
    const T *x = from;                                                                             \
    UNUSED const A factor = (A)ROUND(given);                                                       \
    EACH a[i] = FACTOR((A)LOAD(x[i]), factor);                                                     \
  }                                                                                                \
  static inline W NAME##_of_two(T x, UNUSED A x_factor, T y, UNUSED A y_factor) {                  \
    const W earlier = (W)FACTOR((A)LOAD(x), x_factor), later = (W)FACTOR((A)LOAD(y), y_factor);    \
    return COMBINE(earlier, later);                                                                \
  }                                                                                                \
  static void NAME##_load_two(void *to, void *also, const void *one, UNUSED double one_given,      \
                              const void *other, UNUSED double other_given, size_t count) {        \
    A *a = to, *b = also;                                                                          \
    const T *x = one, *y = other;                                                                  \
    UNUSED const A x_factor = (A)ROUND(one_given), y_factor = (A)ROUND(other_given);               \
    if (b == NULL)                                                                                 \
      EACH a[i] = (A)NAME##_of_two(x[i], x_factor, y[i], y_factor);                                \
    else                                                                                           \
      EACH a[i] = b[i] = (A)NAME##_of_two(x[i], x_factor, y[i], y_factor);                         \
  }                                                                                                \
  static void NAME##_add(void *accumulator, const void *from, size_t count, UNUSED double given) { \
    A *a = accumulator;                                                                            \
    const T *y = from;                                                                             \
    UNUSED const A factor = (A)ROUND(given);                                                       \
    EACH {                                                                                         \
      const W earlier = (W)a[i], later = (W)FACTOR((A)LOAD(y[i]), factor);                         \
      a[i] = (A)COMBINE(earlier, later);                                                           \
    }                                                                                              \
  }

/* STORE defines a loop that stores accumulators of type A as elements of type T. DIVIDE divides
 * them in type Q first. */
#define STORE(NAME, T, A, BACK)                                                                    \
  static void NAME##_store(void *to, const void *accumulator, size_t count, UNUSED int divisor) {  \
    T *x = to;                                                                                     \
    const A *a = accumulator;                                                                      \
    EACH x[i] = BACK(a[i]);                                                                        \
  }
#define DIVIDE(NAME, T, A, Q, BACK)                                                                \
  static void NAME##_divide(void *to, const void *accumulator, size_t count, int divisor) {        \
    T *x = to;                                                                                     \
    const A *a = accumulator;                                                                      \
    const Q by = (Q)divisor;                                                                       \
    EACH x[i] = (T)BACK((Q)a[i] / by);                                                             \
  }

/* ---- the loops of all dtypes ----------------------------------------------------------------- */

/* X(dtype, element type, accumulator type, type to combine in, type to divide in). */
#define INTEGERS(X)                                                                                \
  X(UINT8, uint8_t, uint8_t, unsigned, uint64_t)                                                   \
  X(INT8, int8_t, int8_t, unsigned, int64_t)                                                       \
  X(UINT16, uint16_t, uint16_t, unsigned, uint64_t)                                                \
  X(INT16, int16_t, int16_t, unsigned, int64_t)                                                    \
  X(UINT32, uint32_t, uint32_t, uint32_t, uint64_t)                                                \
  X(INT32, int32_t, int32_t, uint32_t, int64_t)                                                    \
  X(UINT64, uint64_t, uint64_t, uint64_t, uint64_t)                                                \
  X(INT64, int64_t, int64_t, uint64_t, int64_t)

/* X(dtype, element type, accumulator type, conversion to it, conversion back). */
#define FLOATS(X)                                                                                  \
  X(FLOAT16, uint16_t, float, float_of_half, half_of_float)                                        \
  X(BFLOAT16, uint16_t, float, float_of_bfloat16, bfloat16_of_float)                               \
  X(FLOAT32, float, float, LOAD_AS_IS, LOAD_AS_IS)                                                 \
  X(FLOAT64, double, double, LOAD_AS_IS, LOAD_AS_IS)

#define DEFINE_INTEGER(D, T, A, W, Q)                                                              \
  LOOPS(SUM_##D, T, A, W, LOAD_AS_IS, FACTOR_NONE, ROUND_NONE, SUM)                                \
  LOOPS(PRODUCT_##D, T, A, W, LOAD_AS_IS, FACTOR_NONE, ROUND_NONE, PRODUCT)                        \
  LOOPS(MIN_##D, T, A, T, LOAD_AS_IS, FACTOR_NONE, ROUND_NONE, MIN)                                \
  LOOPS(MAX_##D, T, A, T, LOAD_AS_IS, FACTOR_NONE, ROUND_NONE, MAX)                                \
  LOOPS(BAND_##D, T, A, T, LOAD_AS_IS, FACTOR_NONE, ROUND_NONE, BAND)                              \
  LOOPS(BOR_##D, T, A, T, LOAD_AS_IS, FACTOR_NONE, ROUND_NONE, BOR)                                \
  LOOPS(BXOR_##D, T, A, T, LOAD_AS_IS, FACTOR_NONE, ROUND_NONE, BXOR)                              \
  DIVIDE(D, T, A, Q, LOAD_AS_IS)
INTEGERS(DEFINE_INTEGER)

#define FLOATS8(X)                                                                                 \
  X(FLOAT8_E4M3, uint8_t, float, float_of_e4m3, e4m3_of_float)                                     \
  X(FLOAT8_E5M2, uint8_t, float, float_of_e5m2, e5m2_of_float)

#define DEFINE_FLOAT(D, T, A, LOAD, BACK)                                                          \
  LOOPS(SUM_##D, T, A, A, LOAD, FACTOR_NONE, ROUND_NONE, SUM)                                      \
  LOOPS(PRODUCT_##D, T, A, A, LOAD, FACTOR_NONE, ROUND_NONE, PRODUCT)                              \
  LOOPS(MIN_##D, T, A, A, LOAD, FACTOR_NONE, ROUND_NONE, MIN)                                      \
  LOOPS(MAX_##D, T, A, A, LOAD, FACTOR_NONE, ROUND_NONE, MAX)                                      \
  DIVIDE(D, T, A, A, BACK)
FLOATS(DEFINE_FLOAT)
FLOATS8(DEFINE_FLOAT)

#define DEFINE_PREMUL_SUM(D, T, A, LOAD, BACK)                                                     \
  LOOPS(PREMUL_SUM_##D, T, A, A, LOAD, FACTOR_GIVEN, ROUND_##D, SUM)
FLOATS(DEFINE_PREMUL_SUM)

STORE(FLOAT16, uint16_t, float, half_of_float)
STORE(BFLOAT16, uint16_t, float, bfloat16_of_float)
STORE(FLOAT8_E4M3, uint8_t, float, e4m3_of_float)
STORE(FLOAT8_E5M2, uint8_t, float, e5m2_of_float)

LOOPS(OR_BOOL, uint8_t, uint8_t, uint8_t, LOAD_BOOL, FACTOR_NONE, ROUND_NONE, BOR)
LOOPS(AND_BOOL, uint8_t, uint8_t, uint8_t, LOAD_BOOL, FACTOR_NONE, ROUND_NONE, BAND)
LOOPS(XOR_BOOL, uint8_t, uint8_t, uint8_t, LOAD_BOOL, FACTOR_NONE, ROUND_NONE, BXOR)

/* Products of complex numbers, accumulated as pairs of A. The volatile variables prevent gcc 12
 * from fusing multiplication and addition, which it does here in spite of -ffp-contract=off. */
#define COMPLEX_PRODUCT(NAME, T, A, LOAD)                                                          \
  static inline void NAME##_multiply(A *to, const A x[2], const A y[2]) {                          \
    const volatile A real = x[1] * y[1];                                                           \
    const volatile A imaginary = x[1] * y[0];                                                      \
    to[0] = x[0] * y[0] - real;                                                                    \
    to[1] = x[0] * y[1] + imaginary;                                                               \
  }                                                                                                \
  static void NAME##_load(void *to, const void *from, size_t count, UNUSED double factor) {        \
    A *a = to;                                                                                     \
    const T *x = from;                                                                             \
    for (size_t i = 0; i < 2 * count; i++)                                                         \
      a[i] = LOAD(x[i]);                                                                           \
  }                                                                                                \
  static void NAME##_add(void *accumulator, const void *from, size_t count,                        \
                         UNUSED double factor) {                                                   \
    A *a = accumulator;                                                                            \
    const T *y = from;                                                                             \
    for (size_t i = 0; i < 2 * count; i += 2) {                                                    \
      const A earlier[2] = {a[i], a[i + 1]}, later[2] = {LOAD(y[i]), LOAD(y[i + 1])};              \
      NAME##_multiply(a + i, earlier, later);                                                      \
    }                                                                                              \
  }                                                                                                \
  static void NAME##_load_two(void *to, void *also, const void *one, UNUSED double one_factor,     \
                              const void *other, UNUSED double other_factor, size_t count) {       \
    const T *x = one, *y = other;                                                                  \
    A *a = to, *b = also;                                                                          \
    for (size_t i = 0; i < 2 * count; i += 2) {                                                    \
      const A earlier[2] = {LOAD(x[i]), LOAD(x[i + 1])}, later[2] = {LOAD(y[i]), LOAD(y[i + 1])};  \
      NAME##_multiply(a + i, earlier, later);                                                      \
      if (b != NULL)                                                                               \
        memcpy(b + i, a + i, 2 * sizeof(A));                                                       \
    }                                                                                              \
  }
COMPLEX_PRODUCT(PRODUCT_COMPLEX32, uint16_t, float, float_of_half)
COMPLEX_PRODUCT(PRODUCT_COMPLEX64, float, float, LOAD_AS_IS)
COMPLEX_PRODUCT(PRODUCT_COMPLEX128, double, double, LOAD_AS_IS)

static void COMPLEX32_store(void *to, const void *accumulator, size_t count, UNUSED int divisor) {
  FLOAT16_store(to, accumulator, 2 * count, divisor);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define ENTRY(NAME, STORE, BYTES, NUMBERS)                                                         \
  { NAME##_load, NAME##_load_two, NAME##_add, STORE, BYTES, NUMBERS }

/* The store function of a dtype: KEPT where the accumulator is the result (except for AVG), BACK
 * where it is rounded to the dtype. */
#define KEPT(D) NULL
#define BACK(D) D##_store

#define SUMS(DTYPE, D, STORE, A, NUMBERS)                                                          \
  [OPENREG_DTYPE_##DTYPE][OPENREG_REDUCE_SUM] = ENTRY(SUM_##D, STORE(D), sizeof(A), NUMBERS),      \
  [OPENREG_DTYPE_##DTYPE][OPENREG_REDUCE_AVG] = ENTRY(SUM_##D, D##_divide, sizeof(A), NUMBERS)

#define OTHER(DTYPE, REDUCTION, NAME, STORE, A)                                                    \
  [OPENREG_DTYPE_##DTYPE][OPENREG_REDUCE_##REDUCTION] = ENTRY(NAME, STORE, sizeof(A), 1)

#define INTEGER_ROW(D, T, A, W, Q)                                                                 \
  SUMS(D, D, KEPT, A, 1), OTHER(D, PRODUCT, PRODUCT_##D, NULL, A),                                 \
      OTHER(D, MIN, MIN_##D, NULL, A), OTHER(D, MAX, MAX_##D, NULL, A),                            \
      OTHER(D, BAND, BAND_##D, NULL, A), OTHER(D, BOR, BOR_##D, NULL, A),                          \
      OTHER(D, BXOR, BXOR_##D, NULL, A),

#define FLOAT8_ROW(D)                                                                              \
  SUMS(D, D, BACK, float, 1), OTHER(D, PRODUCT, PRODUCT_##D, BACK(D), float),                      \
      OTHER(D, MIN, MIN_##D, BACK(D), float), OTHER(D, MAX, MAX_##D, BACK(D), float)
#define FLOAT_ROW(D, STORE, A)                                                                     \
  SUMS(D, D, STORE, A, 1), OTHER(D, PREMUL_SUM, PREMUL_SUM_##D, STORE(D), A),                      \
      OTHER(D, PRODUCT, PRODUCT_##D, STORE(D), A), OTHER(D, MIN, MIN_##D, STORE(D), A),            \
      OTHER(D, MAX, MAX_##D, STORE(D), A)

/* Sums of complex numbers use the loops of their parts; products have their own. */
#define COMPLEX_ROW(C, D, STORE, A, PRODUCT_STORE)                                                 \
  SUMS(C, D, STORE, A, 2),                                                                         \
      [OPENREG_DTYPE_##C][OPENREG_REDUCE_PREMUL_SUM] =                                             \
          ENTRY(PREMUL_SUM_##D, STORE(D), sizeof(A), 2),                                           \
      [OPENREG_DTYPE_##C][OPENREG_REDUCE_PRODUCT] =                                                \
          ENTRY(PRODUCT_##C, PRODUCT_STORE, 2 * sizeof(A), 1)

#define BOOL_ENTRY(REDUCTION, NAME) OTHER(BOOL, REDUCTION, NAME, NULL, uint8_t)

const struct openreg_reduction_loops *REDUCTION_TABLE(openreg_reduction reduction,
                                                      openreg_dtype dtype) {
  static const struct openreg_reduction_loops table[OPENREG_DTYPE_COUNT][OPENREG_REDUCTION_COUNT] =
      {
          INTEGERS(INTEGER_ROW) FLOAT_ROW(FLOAT16, BACK, float),
          FLOAT_ROW(BFLOAT16, BACK, float),
          FLOAT_ROW(FLOAT32, KEPT, float),
          FLOAT_ROW(FLOAT64, KEPT, double),
          FLOAT8_ROW(FLOAT8_E4M3),
          FLOAT8_ROW(FLOAT8_E5M2),
          COMPLEX_ROW(COMPLEX32, FLOAT16, BACK, float, COMPLEX32_store),
          COMPLEX_ROW(COMPLEX64, FLOAT32, KEPT, float, NULL),
          COMPLEX_ROW(COMPLEX128, FLOAT64, KEPT, double, NULL),
          BOOL_ENTRY(SUM, OR_BOOL),
          BOOL_ENTRY(MAX, OR_BOOL),
          BOOL_ENTRY(BOR, OR_BOOL),
          BOOL_ENTRY(PRODUCT, AND_BOOL),
          BOOL_ENTRY(MIN, AND_BOOL),
          BOOL_ENTRY(BAND, AND_BOOL),
          BOOL_ENTRY(BXOR, XOR_BOOL),
      };
  const struct openreg_reduction_loops *loops = &table[dtype][reduction];
  return loops->load == NULL ? NULL : loops;
}
