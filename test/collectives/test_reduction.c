/* Reductions against an independent reference that computes one element at a time. It rounds 16-bit
 * floats by the compiler's _Float16 and by comparing distances. base-float8 tests how float8
 * rounds.
 */
#include "base/float8.h"
#include "child.h"
#include "collectives/collectives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SOURCES = 8, LONGEST = 8200, GUARD = 64, MOST_BYTES = 16 };

/* ---- a number of any dtype ------------------------------------------------------------------- */

struct number {
  double real, imaginary; /* floats */
  uint64_t bits;          /* integers, sign-extended */
};

static double from_bfloat16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static uint16_t to_bfloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint16_t below = (uint16_t)(bits >> 16), above = (uint16_t)(below + 1);
  if (isnan(value))
    return below | 0x40;
  if (isinf(value))
    return below;
  /* The next number above the largest one would be 2^128, one more step of the same size. */
  double high = (above & 0x7FFF) == 0x7F80 ? copysign(0x1p128, value) : from_bfloat16(above);
  double to_below = fabs((double)value - from_bfloat16(below)), to_above = fabs(high - value);
  if (to_below != to_above)
    return to_below < to_above ? below : above;
  return below % 2 == 0 ? below : above;
}

static void to_half(float value, unsigned char *at) {
  _Float16 narrow = (_Float16)value;
  memcpy(at, &narrow, sizeof narrow);
}

#define READ(T, field)                                                                             \
  do {                                                                                             \
    T value;                                                                                       \
    memcpy(&value, at, sizeof value);                                                              \
    number.field = (__typeof__(number.field))value;                                                \
  } while (0)

static struct number read_number(openreg_dtype dtype, const unsigned char *at) {
  struct number number = {0};
  switch (dtype) {
  case OPENREG_DTYPE_BOOL:
    number.bits = *at != 0;
    break;
  case OPENREG_DTYPE_UINT8:
    number.bits = *at;
    break;
  case OPENREG_DTYPE_INT8:
    READ(int8_t, bits);
    break;
  case OPENREG_DTYPE_UINT16:
    READ(uint16_t, bits);
    break;
  case OPENREG_DTYPE_INT16:
    READ(int16_t, bits);
    break;
  case OPENREG_DTYPE_UINT32:
    READ(uint32_t, bits);
    break;
  case OPENREG_DTYPE_INT32:
    READ(int32_t, bits);
    break;
  case OPENREG_DTYPE_UINT64:
    READ(uint64_t, bits);
    break;
  case OPENREG_DTYPE_INT64:
    READ(int64_t, bits);
    break;
  case OPENREG_DTYPE_FLOAT8_E4M3:
    number.real = float_of_e4m3(*at);
    break;
  case OPENREG_DTYPE_FLOAT8_E5M2:
    number.real = float_of_e5m2(*at);
    break;
  case OPENREG_DTYPE_FLOAT16:
    READ(_Float16, real);
    break;
  case OPENREG_DTYPE_BFLOAT16:
    READ(uint16_t, bits);
    number.real = from_bfloat16((uint16_t)number.bits);
    break;
  case OPENREG_DTYPE_FLOAT32:
    READ(float, real);
    break;
  case OPENREG_DTYPE_FLOAT64:
    READ(double, real);
    break;
  case OPENREG_DTYPE_COMPLEX32:
    READ(_Float16, real);
    at += sizeof(_Float16);
    READ(_Float16, imaginary);
    break;
  case OPENREG_DTYPE_COMPLEX64:
    READ(float, real);
    at += sizeof(float);
    READ(float, imaginary);
    break;
  default:
    READ(double, real);
    at += sizeof(double);
    READ(double, imaginary);
  }
  return number;
}

static void write_number(openreg_dtype dtype, struct number number, unsigned char *at) {
  float narrow[2] = {(float)number.real, (float)number.imaginary};
  double wide[2] = {number.real, number.imaginary};
  uint16_t bits;
  switch (dtype) {
  case OPENREG_DTYPE_FLOAT8_E4M3:
    *at = e4m3_of_float(narrow[0]);
    break;
  case OPENREG_DTYPE_FLOAT8_E5M2:
    *at = e5m2_of_float(narrow[0]);
    break;
  case OPENREG_DTYPE_FLOAT16:
    to_half(narrow[0], at);
    break;
  case OPENREG_DTYPE_BFLOAT16:
    bits = to_bfloat16(narrow[0]);
    memcpy(at, &bits, sizeof bits);
    break;
  case OPENREG_DTYPE_COMPLEX32:
    to_half(narrow[0], at);
    to_half(narrow[1], at + 2);
    break;
  case OPENREG_DTYPE_FLOAT32:
  case OPENREG_DTYPE_COMPLEX64:
    memcpy(at, narrow, openreg_dtype_bytes(dtype));
    break;
  case OPENREG_DTYPE_FLOAT64:
  case OPENREG_DTYPE_COMPLEX128:
    memcpy(at, wide, openreg_dtype_bytes(dtype));
    break;
  default:
    memcpy(at, &number.bits, openreg_dtype_bytes(dtype));
  }
}

static bool is_float(openreg_dtype dtype) {
  return dtype >= OPENREG_DTYPE_FLOAT16 && dtype < OPENREG_DTYPE_FLOAT8;
}

static bool is_signed(openreg_dtype dtype) {
  return dtype == OPENREG_DTYPE_INT8 || dtype == OPENREG_DTYPE_INT16 ||
         dtype == OPENREG_DTYPE_INT32 || dtype == OPENREG_DTYPE_INT64;
}

/* Rounds every step to the accumulator: double, or float for narrower types. A value too large for
 * a float becomes infinite: `volatile` forces the compiler to round it when the program runs. */
static double step(openreg_dtype dtype, double value) {
  volatile float narrow = (float)value;
  bool is_double = dtype == OPENREG_DTYPE_FLOAT64 || dtype == OPENREG_DTYPE_COMPLEX128;
  return is_double ? value : (double)narrow;
}

/* ---- the reference --------------------------------------------------------------------------- */

static struct number combine_floats(openreg_dtype dtype, openreg_reduction reduction,
                                    struct number x, struct number y) {
  struct number result = {0};
  switch (reduction) {
  case OPENREG_REDUCE_PRODUCT:
    if (dtype < OPENREG_DTYPE_COMPLEX32 || dtype > OPENREG_DTYPE_COMPLEX128) {
      result.real = step(dtype, x.real * y.real);
      break;
    }
    result.real =
        step(dtype, step(dtype, x.real * y.real) - step(dtype, x.imaginary * y.imaginary));
    result.imaginary =
        step(dtype, step(dtype, x.real * y.imaginary) + step(dtype, x.imaginary * y.real));
    break;
  case OPENREG_REDUCE_MIN:
    result.real = isnan(x.real) || y.real < x.real ? y.real : x.real;
    break;
  case OPENREG_REDUCE_MAX:
    result.real = isnan(x.real) || y.real > x.real ? y.real : x.real;
    break;
  default:
    result.real = step(dtype, x.real + y.real);
    result.imaginary = step(dtype, x.imaginary + y.imaginary);
  }
  return result;
}

static uint64_t combine_bits(openreg_dtype dtype, openreg_reduction reduction, uint64_t x,
                             uint64_t y) {
  bool is_bool = dtype == OPENREG_DTYPE_BOOL;
  bool is_less = is_signed(dtype) ? (int64_t)y < (int64_t)x : y < x;
  switch (reduction) {
  case OPENREG_REDUCE_PRODUCT:
    return x * y;
  case OPENREG_REDUCE_MIN:
    return is_less ? y : x;
  case OPENREG_REDUCE_MAX:
    return is_less ? x : y;
  case OPENREG_REDUCE_BAND:
    return x & y;
  case OPENREG_REDUCE_BOR:
    return x | y;
  case OPENREG_REDUCE_BXOR:
    return x ^ y;
  default:
    return is_bool ? x | y : x + y;
  }
}

/* Wraps the sum around in the dtype before it divides. */
static uint64_t divide_bits(openreg_dtype dtype, uint64_t sum, int by) {
  unsigned char bytes[MOST_BYTES];
  write_number(dtype, (struct number){.bits = sum}, bytes);
  uint64_t value = read_number(dtype, bytes).bits;
  return is_signed(dtype) ? (uint64_t)((int64_t)value / by) : value / (uint64_t)by;
}

static double rounded_factor(openreg_dtype dtype, double factor) {
  openreg_dtype real = dtype == OPENREG_DTYPE_COMPLEX32    ? OPENREG_DTYPE_FLOAT16
                       : dtype == OPENREG_DTYPE_COMPLEX64  ? OPENREG_DTYPE_FLOAT32
                       : dtype == OPENREG_DTYPE_COMPLEX128 ? OPENREG_DTYPE_FLOAT64
                                                           : dtype;
  unsigned char bytes[MOST_BYTES];
  write_number(real, (struct number){.real = factor}, bytes);
  return read_number(real, bytes).real;
}

static struct number term(const openreg_reduction_job *job, int source, size_t element) {
  const unsigned char *from = job->sources[source];
  struct number number = read_number(job->dtype, from + element * openreg_dtype_bytes(job->dtype));
  if (job->reduction == OPENREG_REDUCE_PREMUL_SUM) {
    double factor = rounded_factor(job->dtype, job->factors[source]);
    number.real = step(job->dtype, number.real * factor);
    number.imaginary = step(job->dtype, number.imaginary * factor);
  }
  return number;
}

static void reduce_plainly(const openreg_reduction_job *job, unsigned char *result) {
  for (size_t i = 0; i < job->count; i++) {
    struct number total = term(job, 0, i);
    for (int source = 1; source < job->source_count; source++) {
      struct number next = term(job, source, i);
      if (is_float(job->dtype))
        total = combine_floats(job->dtype, job->reduction, total, next);
      else
        total.bits = combine_bits(job->dtype, job->reduction, total.bits, next.bits);
    }
    if (job->reduction == OPENREG_REDUCE_AVG) {
      int by = job->divisor == 0 ? job->source_count : job->divisor;
      total.real = step(job->dtype, total.real / by);
      total.imaginary = step(job->dtype, total.imaginary / by);
      if (!is_float(job->dtype))
        total.bits = divide_bits(job->dtype, total.bits, by);
    }
    write_number(job->dtype, total, result + i * openreg_dtype_bytes(job->dtype));
  }
}

/* ---- inputs and comparison ------------------------------------------------------------------- */

static uint64_t state = 88172645463325252;
static uint64_t draw(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

/* Random bits for integers; for floats numbers of many magnitudes, and sometimes special values. */
static void fill(openreg_dtype dtype, unsigned char *bytes, size_t count) {
  static const double special[] = {INFINITY, -INFINITY, NAN, 0.0, -0.0, 0x1p-24, 65504, 1e38};
  size_t element = openreg_dtype_bytes(dtype);
  for (size_t i = 0; i < count; i++) {
    struct number number = {.bits = draw() >> draw() % 64};
    number.real = ((double)(draw() % 4096) - 2048) / 512;
    number.imaginary = ((double)(draw() % 4096) - 2048) / 512;
    if (draw() % 16 == 0)
      number.real = special[draw() % (sizeof special / sizeof special[0])];
    write_number(dtype, number, bytes + i * element);
  }
}

static bool is_same_float(double one, double other) {
  return (isnan(one) && isnan(other)) || (one == other && signbit(one) == signbit(other));
}

static bool is_same(openreg_dtype dtype, const unsigned char *one, const unsigned char *other,
                    size_t count) {
  size_t element = openreg_dtype_bytes(dtype);
  for (size_t i = 0; i < count; i++) {
    struct number x = read_number(dtype, one + i * element);
    struct number y = read_number(dtype, other + i * element);
    bool same = is_float(dtype)
                    ? is_same_float(x.real, y.real) && is_same_float(x.imaginary, y.imaginary)
                    : memcmp(one + i * element, other + i * element, element) == 0;
    if (!same)
      return false;
  }
  return true;
}

/* Sources, one after the other with guard bytes between them. */
static unsigned char *memory[MOST_SOURCES + 2];
static unsigned char expected[LONGEST * MOST_BYTES];

static int make_memory(void **unused) {
  (void)unused;
  for (int i = 0; i < MOST_SOURCES + 2; i++)
    memory[i] = calloc(1, LONGEST * MOST_BYTES + GUARD);
  return 0;
}

static int free_memory(void **unused) {
  (void)unused;
  for (int i = 0; i < MOST_SOURCES + 2; i++)
    free(memory[i]);
  return 0;
}

static const double factors[MOST_SOURCES] = {0.1, 2, -0.333, 1, 0, 1.5, 1e-3, 7};

static openreg_reduction_job job_of(openreg_dtype dtype, openreg_reduction reduction, int sources,
                                    size_t count) {
  for (int i = 0; i < sources; i++)
    fill(dtype, memory[i], count);
  openreg_reduction_job job = {
      .reduction = reduction,
      .dtype = dtype,
      .source_count = sources,
      .sources = (const void *const *)memory,
      .factors = reduction == OPENREG_REDUCE_PREMUL_SUM ? factors : NULL,
      .count = count,
  };
  reduce_plainly(&job, expected);
  return job;
}

static void expect_result(openreg_reduction_job job, void *const *destinations, int count) {
  size_t bytes = job.count * openreg_dtype_bytes(job.dtype);
  for (int i = 0; i < count; i++)
    memset((char *)destinations[i] + bytes, 0x5A, GUARD);
  job.destinations = destinations;
  job.destination_count = count;
  assert_true(openreg_reduce(&job, NULL, NULL));
  for (int i = 0; i < count; i++) {
    const unsigned char *result = destinations[i];
    if (!is_same(job.dtype, result, expected, job.count))
      fail_msg("%s of %s, %d sources, %zu elements", openreg_reduction_name(job.reduction),
               openreg_dtype_name(job.dtype), job.source_count, job.count);
    for (int j = 0; j < GUARD; j++)
      assert_int_equal(result[bytes + (size_t)j], 0x5A);
  }
}

typedef void check_function(openreg_dtype dtype, openreg_reduction reduction, int sources,
                            size_t count);

static void for_all(check_function *check) {
  static const int sources[] = {1, 2, 3, 8};
  static const size_t counts[] = {0, 1, 7, 513, 2048, LONGEST};
  for (openreg_dtype dtype = 0; dtype < OPENREG_DTYPE_COUNT; dtype++)
    for (openreg_reduction reduction = 0; reduction < OPENREG_REDUCTION_COUNT; reduction++)
      for (int i = 0; openreg_reduction_is_defined(reduction, dtype) && i < 4; i++)
        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++)
          check(dtype, reduction, sources[i], counts[j]);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void to_other_memory(openreg_dtype dtype, openreg_reduction reduction, int sources,
                            size_t count) {
  void *const destinations[] = {memory[MOST_SOURCES], memory[MOST_SOURCES + 1]};
  for (int used = 1; used <= 2; used++)
    expect_result(job_of(dtype, reduction, sources, count), destinations, used);
}

static void all_are_what_the_plain_one_gives(void **unused) {
  (void)unused;
  for_all(to_other_memory);
}

static void to_one_of_the_sources(openreg_dtype dtype, openreg_reduction reduction, int sources,
                                  size_t count) {
  for (int i = 0; i < sources; i++) {
    void *const destination = memory[i];
    expect_result(job_of(dtype, reduction, sources, count), &destination, 1);
  }
}

static void to_all_of_the_sources(openreg_dtype dtype, openreg_reduction reduction, int sources,
                                  size_t count) {
  expect_result(job_of(dtype, reduction, sources, count), (void *const *)memory, sources);
}

static void a_destination_may_be_a_source(void **unused) {
  (void)unused;
  for_all(to_one_of_the_sources);
  for_all(to_all_of_the_sources);
}

static void an_average_is_divided_by_what_is_given(void **unused) {
  (void)unused;
  for (openreg_dtype dtype = OPENREG_DTYPE_UINT8; dtype < OPENREG_DTYPE_FLOAT8; dtype++) {
    openreg_reduction_job job = job_of(dtype, OPENREG_REDUCE_AVG, 2, 100);
    job.divisor = 6;
    reduce_plainly(&job, expected);
    expect_result(job, (void *const *)&memory[MOST_SOURCES], 1);
  }
}

static void any_byte_but_zero_is_true(void **unused) {
  (void)unused;
  const unsigned char one[] = {0, 2, 0, 255}, other[] = {0, 0, 128, 3};
  const void *sources[] = {one, other};
  unsigned char result[4];
  void *const destination = result;
  openreg_reduction_job job = {.dtype = OPENREG_DTYPE_BOOL,
                               .source_count = 2,
                               .destination_count = 1,
                               .sources = sources,
                               .destinations = &destination,
                               .count = 4};
  static const struct {
    openreg_reduction reduction;
    unsigned char results[4];
  } cases[] = {
      {OPENREG_REDUCE_SUM, {0, 1, 1, 1}},  {OPENREG_REDUCE_PRODUCT, {0, 0, 0, 1}},
      {OPENREG_REDUCE_MIN, {0, 0, 0, 1}},  {OPENREG_REDUCE_MAX, {0, 1, 1, 1}},
      {OPENREG_REDUCE_BXOR, {0, 1, 1, 0}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    job.reduction = cases[i].reduction;
    assert_true(openreg_reduce(&job, NULL, NULL));
    assert_memory_equal(result, cases[i].results, 4);
  }
}

static bool count_down(const void *context) {
  int *left = (int *)context;
  return --*left < 0;
}

static void it_ends_between_tiles(void **unused) {
  (void)unused;
  enum { TWO_TILES = 4096 / MOST_BYTES * 4 };
  openreg_reduction_job job = job_of(OPENREG_DTYPE_FLOAT64, OPENREG_REDUCE_SUM, 3, LONGEST);
  job.destinations = (void *const *)&memory[MOST_SOURCES];
  job.destination_count = 1;
  memset(memory[MOST_SOURCES], 0, LONGEST * MOST_BYTES);
  int left = 2;
  assert_false(openreg_reduce(&job, count_down, &left));
  assert_true(is_same(job.dtype, memory[MOST_SOURCES], expected, TWO_TILES));
  static const unsigned char zeros[8];
  assert_memory_equal(memory[MOST_SOURCES] + (LONGEST - 1) * 8, zeros, 8);
  left = 0;
  assert_false(openreg_reduce(&job, count_down, &left));
}

static void an_undefined_operation_is_reported(void **unused) {
  (void)unused;
  assert_false(openreg_reduction_is_defined(OPENREG_REDUCE_AVG, OPENREG_DTYPE_BOOL));
  assert_false(openreg_reduction_is_defined(OPENREG_REDUCE_PREMUL_SUM, OPENREG_DTYPE_INT32));
  assert_false(openreg_reduction_is_defined(OPENREG_REDUCE_MAX, OPENREG_DTYPE_COMPLEX64));
  assert_false(openreg_reduction_is_defined(OPENREG_REDUCE_BXOR, OPENREG_DTYPE_FLOAT32));
  assert_false(openreg_reduction_is_defined(OPENREG_REDUCE_SUM, OPENREG_DTYPE_FLOAT8));
  assert_false(openreg_reduction_is_defined(OPENREG_REDUCE_SUM, OPENREG_DTYPE_BYTES));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_are_what_the_plain_one_gives),
      cmocka_unit_test(a_destination_may_be_a_source),
      cmocka_unit_test(an_average_is_divided_by_what_is_given),
      cmocka_unit_test(any_byte_but_zero_is_true),
      cmocka_unit_test(it_ends_between_tiles),
      cmocka_unit_test(an_undefined_operation_is_reported),
  };
  return cmocka_run_group_tests(tests, make_memory, free_memory);
}
