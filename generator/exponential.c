/* exponential.c: exponential numbers: -log(u) / lambda.
 *
 * The logarithm of a u that is 1 or next to it is replaced by -epsilon/2, so that 0 never comes,
 * as PyTorch does on CUDA. Floats agree with the GPU within rounding: see hardware.h.
 */
#include "grid.h"
#include "hardware.h"
#include "types.h"
#include "words.h"

#include <assert.h>
#include <float.h>
#include <math.h>

typedef struct float_parameters {
  openreg_type type;
  float factor; /* -1 / lambda */
} float_parameters;

static inline float log_of_uniform_float(float u) {
  const float least = FLT_EPSILON / 2;
  return u >= 1.0f - least ? -least : hardware_logf(u);
}

static void convert_to_floats(const void *parameters, const grid_batch *batch) {
  const float_parameters *p = parameters;
  for (int lane = 0; lane < 4; lane++) {
    float values[PHILOX_BATCH];
    const uint32_t *words = batch->words->lane[lane];
    for (unsigned j = 0; j < batch->counts[lane]; j++)
      values[j] = p->factor * log_of_uniform_float(uniform_float(words[j]));
    type_store_floats(p->type, values, batch->counts[lane], batch->values[lane]);
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

static int results_per_call(openreg_type type) {
  assert(type_is_floating(type));
  return type == OPENREG_FLOAT64 ? GRID_RESULTS_64 : GRID_RESULTS_32;
}

uint64_t openreg_exponential_words(const openreg_output *output, openreg_grid grid) {
  return grid_words(output, grid, results_per_call(output->type));
}

void openreg_exponential(const openreg_output *output, openreg_philox philox, openreg_grid grid,
                         double lambda) {
  assert(lambda > 0);
  const int results = results_per_call(output->type);
  if (output->type == OPENREG_FLOAT64) {
    double factor = -1.0 / lambda;
    grid_fill(output, philox, grid, results, convert_to_doubles, &factor);
  } else {
    float_parameters p = {output->type, -1.0f / (float)lambda};
    grid_fill(output, philox, grid, results, convert_to_floats, &p);
  }
}
