/* geometric.c: the number of trials up to the first success, ceil(log(u) / log(1 - p)), for every
 * type.
 *
 * It computes in float, or in double for a double output. As on the GPU, u can be 1, and then the
 * result is 0; and for p below about 2^-25, where 1 - p is 1 as a float, the result is not finite.
 * The logarithms of the GPU and of this file differ in their last bits, so a quotient next to an
 * integer may be rounded differently: see hardware.h.
 */
#include "generator/grid.h"
#include "generator/hardware.h"
#include "generator/lanes/lanes.h"
#include "generator/types.h"
#include "generator/words.h"

#include <assert.h>
#include <math.h>

typedef struct float_parameters {
  openreg_type type;
  float log_of_failure;
} float_parameters;

/* Converts as a GPU does: values beyond the range become its ends, and NaN the lowest value. */
static int64_t saturate(float value) {
  if (!(value >= -0x1p63f))
    return INT64_MIN;
  return value < 0x1p63f ? (int64_t)value : INT64_MAX;
}

static void convert_from_floats(const void *parameters, const grid_batch *batch) {
  const float_parameters *p = parameters;
  for (int lane = 0; lane < 4; lane++) {
    float values[PHILOX_BATCH];
    int64_t integers[PHILOX_BATCH];
    const uint32_t *words = batch->words->lane[lane];
    const unsigned count = batch->counts[lane];
    openreg_lanes_chosen()->logarithms(words, count, values);
    for (unsigned j = 0; j < count; j++)
      values[j] = ceilf(values[j] / p->log_of_failure);
    if (openreg_type_is_float_computed(p->type)) {
      openreg_type_store_floats(p->type, values, count, batch->values[lane]);
    } else {
      for (unsigned j = 0; j < count; j++)
        integers[j] = saturate(values[j]);
      openreg_type_store_int64s(p->type, integers, count, batch->values[lane]);
    }
  }
}

static void convert_from_doubles(const void *parameters, const grid_batch *batch) {
  const double *log_of_failure = parameters;
  for (int lane = 0; lane < 2; lane++) {
    const uint32_t *a = batch->words->lane[2 * lane], *b = batch->words->lane[2 * lane + 1];
    double *values = batch->values[lane];
    for (unsigned j = 0; j < batch->counts[lane]; j++)
      values[j] = ceil(log(uniform_double(a[j], b[j])) / *log_of_failure);
  }
}

uint64_t openreg_geometric_words(const openreg_output *output, openreg_grid grid) {
  return openreg_grid_words(output, grid, grid_results_of(output->type));
}

void openreg_geometric(const openreg_output *output, openreg_share share, openreg_philox philox,
                       openreg_grid grid, double p) {
  assert(p > 0 && p < 1);
  const int results = grid_results_of(output->type);
  if (output->type == OPENREG_FLOAT64) {
    double log_of_failure = log1p(-p);
    openreg_grid_fill(output, share, philox, grid, results, convert_from_doubles, &log_of_failure);
  } else {
    float_parameters parameters = {output->type, hardware_logf(1.0f - (float)p)};
    openreg_grid_fill(output, share, philox, grid, results, convert_from_floats, &parameters);
  }
}
