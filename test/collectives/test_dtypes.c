/* Every defined reduction of every dtype, through each collective that reduces, small and large,
 * with factors. The values are small numbers that every dtype represents exactly, so all results
 * are known. test_reduction.c tests how results are rounded.
 */
#include "base/float8.h"
#include "ranks.h"

#include <stdio.h>
#include <string.h>

enum { SIZE = 3, OUT = MEMORY_BYTES / 2 };

/* ---- numbers in memory ----------------------------------------------------------------------- */

/* Writes a number; the imaginary part of a complex one is 0. */
static void store(openreg_dtype dtype, void *memory, size_t place, double number) {
  unsigned char *at = (unsigned char *)memory + place * openreg_dtype_bytes(dtype);
  int64_t integer = (int64_t)number; /* little endian, so its first bytes serve all lengths */
  uint16_t half;
  float single = (float)number;
  memset(at, 0, openreg_dtype_bytes(dtype));
  switch (dtype) {
  case OPENREG_DTYPE_FLOAT16:
  case OPENREG_DTYPE_COMPLEX32:
    half = half_of_float(single);
    memcpy(at, &half, sizeof half);
    break;
  case OPENREG_DTYPE_BFLOAT16:
    half = bfloat16_of_float(single);
    memcpy(at, &half, sizeof half);
    break;
  case OPENREG_DTYPE_FLOAT8_E4M3:
    *at = e4m3_of_float(single);
    break;
  case OPENREG_DTYPE_FLOAT8_E5M2:
    *at = e5m2_of_float(single);
    break;
  case OPENREG_DTYPE_FLOAT32:
  case OPENREG_DTYPE_COMPLEX64:
    memcpy(at, &single, sizeof single);
    break;
  case OPENREG_DTYPE_FLOAT64:
  case OPENREG_DTYPE_COMPLEX128:
    memcpy(at, &number, sizeof number);
    break;
  default:
    memcpy(at, &integer, openreg_dtype_bytes(dtype));
  }
}

/* ---- expected results ------------------------------------------------------------------------ */

static double input_of(openreg_dtype dtype, int rank, size_t place) {
  if (dtype == OPENREG_DTYPE_BOOL)
    return (double)((place >> rank) & 1);
  return (double)(2 * (place % 5) + 2 +
                  2 * (size_t)rank); /* even numbers whose sum is a multiple of 3 */
}

static const double factors[SIZE] = {0.5, 2, 1.5};

static double combine(openreg_reduction reduction, openreg_dtype dtype, double one, double other) {
  uint64_t left = (uint64_t)one, right = (uint64_t)other;
  double sum = one + other;
  switch (reduction) {
  case OPENREG_REDUCE_PRODUCT:
    return one * other;
  case OPENREG_REDUCE_MIN:
    return one < other ? one : other;
  case OPENREG_REDUCE_MAX:
    return one > other ? one : other;
  case OPENREG_REDUCE_BAND:
    return (double)(left & right);
  case OPENREG_REDUCE_BOR:
    return (double)(left | right);
  case OPENREG_REDUCE_BXOR:
    return (double)(left ^ right);
  default:
    return dtype == OPENREG_DTYPE_BOOL && sum > 1 ? 1 : sum;
  }
}

static double expected(openreg_reduction reduction, openreg_dtype dtype, size_t place) {
  double result = 0;
  for (int rank = 0; rank < SIZE; rank++) {
    double value = input_of(dtype, rank, place);
    if (reduction == OPENREG_REDUCE_PREMUL_SUM)
      value *= factors[rank];
    result = rank == 0 ? value : combine(reduction, dtype, result, value);
  }
  return reduction == OPENREG_REDUCE_AVG ? result / SIZE : result;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void require_result(const rank *self, const openreg_collective *what, size_t first) {
  unsigned char number[16];
  size_t bytes = openreg_dtype_bytes(what->dtype);
  const unsigned char *seen = see(what->outputs[0].address);
  for (size_t i = 0; i < what->outputs[0].count; i++) {
    store(what->dtype, number, 0, expected(what->reduction, what->dtype, first + i));
    if (memcmp(seen + i * bytes, number, bytes) == 0)
      continue;
    fprintf(stderr, "%s, %s of %s: rank %d, place %zu of %zu\n",
            openreg_collective_name(what->kind), openreg_reduction_name(what->reduction),
            openreg_dtype_name(what->dtype), self->rank, i, what->outputs[0].count);
    REQUIRE(!"the expected number");
  }
}

static void lay_inputs(const rank *self, openreg_dtype dtype, size_t count) {
  for (size_t i = 0; i < count; i++)
    store(dtype, see(self->memory), i, input_of(dtype, self->rank, i));
}

static void reduce(rank *self, openreg_collective what, openreg_collective_kind kind, size_t count,
                   bool is_in_place) {
  bool scatters = kind == OPENREG_COLLECTIVE_REDUCE_SCATTER;
  size_t first = scatters ? (size_t)self->rank * count : 0;
  openreg_comm_buffer in = {self->memory, scatters ? SIZE * count : count};
  openreg_comm_buffer out = {
      self->memory + (is_in_place ? first * openreg_dtype_bytes(what.dtype) : OUT), count};
  what.kind = kind;
  what.root = 1;
  what.inputs = &in;
  what.outputs = &out;
  what.input_count = 1;
  what.output_count = kind != OPENREG_COLLECTIVE_REDUCE || self->rank == 1;
  what.timeout_ns = AGES_NS;
  lay_inputs(self, what.dtype, in.count);
  REQUIRE_OK(openreg_comm_run(self->comm, &what));
  if (what.output_count == 1)
    require_result(self, &what, first);
}

static void reduce_all_ways(rank *self, openreg_collective what) {
  static const size_t counts[] = {5, 1001, 20011};
  static const openreg_collective_kind kinds[] = {
      OPENREG_COLLECTIVE_ALL_REDUCE, OPENREG_COLLECTIVE_REDUCE, OPENREG_COLLECTIVE_REDUCE_SCATTER};
  for (int kind = 0; kind < 3; kind++)
    for (int i = 0; i < 3; i++) {
      reduce(self, what, kinds[kind], counts[i], false);
      reduce(self, what, kinds[kind], counts[i], true);
    }
}

static void reduce_everything(rank *self) {
  openreg_dtype dtype = *(const openreg_dtype *)self->context;
  for (int reduction = 0; reduction < OPENREG_REDUCTION_COUNT; reduction++) {
    openreg_collective what = {
        .dtype = dtype, .reduction = (openreg_reduction)reduction, .factor = factors[self->rank]};
    if (!openreg_reduction_is_defined(what.reduction, dtype))
      continue;
    reduce_all_ways(self, what);
    if (what.reduction != OPENREG_REDUCE_PREMUL_SUM)
      continue;
    unsigned char *factor = self->memory + MEMORY_BYTES;
    store(dtype, see(factor), 0, factors[self->rank]);
    what.factor = 1000;
    what.factor_address = factor;
    reduce_all_ways(self, what);
  }
}

static void reduce_all_dtypes(void) {
  for (int i = 0; i < OPENREG_DTYPE_COUNT; i++) {
    openreg_dtype dtype = (openreg_dtype)i;
    run_as_processes(SIZE, 1, reduce_everything, &dtype);
  }
}

static void every_reduction_of_every_dtype(void **state) {
  (void)state;
  child_expect_pass(reduce_all_dtypes, MANY_DEVICES);
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* Every byte pattern arrives unchanged. */
static void move_everything(rank *self) {
  for (int i = 0; i < OPENREG_DTYPE_COUNT; i++)
    for (size_t count = 3; count < 60000; count *= 19) {
      openreg_comm_buffer in = {self->memory, count}, out = {self->memory + OUT, SIZE * count};
      openreg_collective what = {.kind = OPENREG_COLLECTIVE_ALL_GATHER,
                                 .dtype = (openreg_dtype)i,
                                 .inputs = &in,
                                 .outputs = &out,
                                 .input_count = 1,
                                 .output_count = 1,
                                 .timeout_ns = AGES_NS};
      size_t bytes = count * openreg_dtype_bytes(what.dtype);
      unsigned char *seen = see(self->memory);
      for (size_t j = 0; j < bytes; j++)
        seen[j] = (unsigned char)(j * 31 + (size_t)self->rank * 7);
      REQUIRE_OK(openreg_comm_run(self->comm, &what));
      seen = see(self->memory + OUT);
      for (size_t j = 0; j < SIZE * bytes; j++)
        REQUIRE(seen[j] == (unsigned char)(j % bytes * 31 + j / bytes * 7));
    }
}

static void move_all_dtypes(void) {
  run_as_processes(SIZE, 1, move_everything, NULL);
}

static void every_dtype_is_moved_unchanged(void **state) {
  (void)state;
  child_expect_pass(move_all_dtypes, MANY_DEVICES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_reduction_of_every_dtype),
      cmocka_unit_test(every_dtype_is_moved_unchanged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
