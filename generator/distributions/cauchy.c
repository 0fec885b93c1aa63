/* cauchy.c: Cauchy numbers: median + sigma * tan(pi * (u - 1/2)).
 *
 * A float u is kept an epsilon away from 0 and 1, where the GPU's tangent would overflow. A double
 * is used as it is. Near those ends the tangent magnifies the error of the GPU's approximation. So
 * floats agree with the GPU within 1e-6 of their distance from the median only in the middle.
 */
#include "generator/grid.h"
#include "generator/hardware.h"
#include "generator/types.h"
#include "generator/words.h"

#include <assert.h>
#include <float.h>
#include <math.h>

typedef struct float_parameters {
  openreg_type type;
  float median, sigma;
} float_parameters;

static inline float tangent_of_uniform(float u) {
  const float inside = fminf(fmaxf(u, FLT_EPSILON), 1.0f - FLT_EPSILON);
  return hardware_tanf(3.1415927f * (inside - 0.5f));
}

static void convert_to_floats(const void *parameters, const grid_batch *batch) {
  const float_parameters *p = parameters;
  for (int lane = 0; lane < 4; lane++) {
    float values[PHILOX_BATCH];
    const uint32_t *words = batch->words->lane[lane];
    for (unsigned j = 0; j < batch->counts[lane]; j++)
      values[j] = fmaf(p->sigma, tangent_of_uniform(uniform_float(words[j])), p->median);
    openreg_type_store_floats(p->type, values, batch->counts[lane], batch->values[lane]);
  }
}

typedef struct double_parameters {
  double median, sigma;
} double_parameters;

static void convert_to_doubles(const void *parameters, const grid_batch *batch) {
  const double_parameters *p = parameters;
  for (int lane = 0; lane < 2; lane++) {
    const uint32_t *a = batch->words->lane[2 * lane], *b = batch->words->lane[2 * lane + 1];
    double *values = batch->values[lane];
    for (unsigned j = 0; j < batch->counts[lane]; j++) {
      const double u = uniform_double(a[j], b[j]);
      values[j] = fma(p->sigma, tan(3.141592653589793 * (u - 0.5)), p->median);
    }
  }
}

uint64_t openreg_cauchy_words(const openreg_output *output, openreg_grid grid) {
  return openreg_grid_words(output, grid, grid_results_of(output->type));
}

void openreg_cauchy(const openreg_output *output, openreg_share share, openreg_philox philox,
                    openreg_grid grid, double median, double sigma) {
  assert(openreg_type_is_floating(output->type));
  assert(sigma > 0);
  const int results = grid_results_of(output->type);
  if (output->type == OPENREG_FLOAT64) {
    double_parameters p = {median, sigma};
    openreg_grid_fill(output, share, philox, grid, results, convert_to_doubles, &p);
  } else {
    float_parameters p = {output->type, (float)median, (float)sigma};
    openreg_grid_fill(output, share, philox, grid, results, convert_to_floats, &p);
  }
}
