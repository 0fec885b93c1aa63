/* exponential.c: exponential numbers: -log(u) / lambda.
 *
 * As PyTorch does on CUDA, the logarithm of a u that is 1 or next to it is replaced by -epsilon/2,
 * so that 0 never occurs. Floats agree with the GPU within rounding: its hardware approximates the
 * logarithm, and no table of that exists.
 */
#include "generator/grid.h"
#include "generator/lanes/lanes.h"
#include "generator/types.h"
#include "generator/words.h"

#include <assert.h>
#include <float.h>
#include <math.h>

typedef struct float_parameters {
  openreg_type type;
  float factor; /* -1 / lambda */
} float_parameters;

/* The logarithms above -epsilon/2 are those of uniforms of at least 1 - epsilon/2. */
static void convert_to_floats(const void *parameters, const grid_batch *batch) {
  const float_parameters *p = parameters;
  for (int lane = 0; lane < 4; lane++) {
    float room[PHILOX_BATCH];
    float *values = type_float_buffer(p->type, batch->values[lane], room);
    const unsigned count = batch->counts[lane];
    openreg_lanes_chosen()->logarithms(batch->words->lane[lane], count, values);
    openreg_lanes_chosen()->limit_and_multiply(values, count, -FLT_EPSILON / 2, p->factor);
    openreg_type_store_floats(p->type, values, count, batch->values[lane]);
  }
}

static inline double log_of_uniform_double(double u) {
  const double least = DBL_EPSILON / 2;
  return u >= 1.0 - least ? -least : log(u);
}

static void convert_to_doubles(const void *parameters, const grid_batch *batch) {
  const double *factor = parameters;
  for (int lane = 0; lane < 2; lane++) {
    const uint32_t *a = batch->words->lane[2 * lane], *b = batch->words->lane[2 * lane + 1];
    double *values = batch->values[lane];
    for (unsigned j = 0; j < batch->counts[lane]; j++)
      values[j] = *factor * log_of_uniform_double(uniform_double(a[j], b[j]));
  }
}

uint64_t openreg_exponential_words(const openreg_output *output, openreg_grid grid) {
  return openreg_grid_words(output, grid, grid_results_of(output->type));
}

void openreg_exponential(const openreg_output *output, openreg_share share, openreg_philox philox,
                         openreg_grid grid, double lambda) {
  assert(openreg_type_is_floating(output->type));
  assert(lambda > 0);
  const int results = grid_results_of(output->type);
  if (output->type == OPENREG_FLOAT64) {
    double factor = -1.0 / lambda;
    openreg_grid_fill(output, share, philox, grid, results, convert_to_doubles, &factor);
  } else {
    float_parameters p = {output->type, -1.0f / (float)lambda};
    openreg_grid_fill(output, share, philox, grid, results, convert_to_floats, &p);
  }
}
