/* log_normal.c: numbers whose logarithms are normal: exp(fma(z, standard deviation, mean)).
 *
 * In 16-bit types the exponential is taken of the float, not of a rounded normal number. Floats
 * agree with the GPU within the rounding of the normal number times the result: box_muller.h and
 * hardware.h say why.
 */
#include "box_muller.h"
#include "grid.h"
#include "hardware.h"
#include "types.h"

#include <assert.h>
#include <math.h>

typedef struct float_parameters {
  openreg_type type;
  float mean, standard_deviation;
} float_parameters;

static void raise_and_store(const float_parameters *p, float *values, unsigned count,
                            void *elements) {
  for (unsigned j = 0; j < count; j++)
    values[j] = hardware_expf(values[j]);
  type_store_floats(p->type, values, count, elements);
}

static void convert_to_floats(const void *parameters, const grid_batch *batch) {
  const float_parameters *p = parameters;
  for (int lane = 0; lane < 4; lane += 2) {
    float sines[PHILOX_BATCH], cosines[PHILOX_BATCH];
    const unsigned sine_count = batch->counts[lane], cosine_count = batch->counts[lane + 1];
    box_muller_floats(batch->words->lane[lane], batch->words->lane[lane + 1], sine_count,
                      cosine_count, p->standard_deviation, p->mean, sines, cosines);
    raise_and_store(p, sines, sine_count, batch->values[lane]);
    raise_and_store(p, cosines, cosine_count, batch->values[lane + 1]);
  }
}

typedef struct double_parameters {
  double mean, standard_deviation;
} double_parameters;

static void convert_to_doubles(const void *parameters, const grid_batch *batch) {
  const double_parameters *p = parameters;
  const philox_words *words = batch->words;
  double *sines = batch->values[0], *cosines = batch->values[1];
  for (unsigned j = 0; j < batch->counts[0]; j++) {
    const uint32_t block[4] = {words->lane[0][j], words->lane[1][j], words->lane[2][j],
                               words->lane[3][j]};
    double sine, cosine;
    box_muller_double(block, &sine, &cosine);
    sines[j] = exp(fma(sine, p->standard_deviation, p->mean));
    if (j < batch->counts[1])
      cosines[j] = exp(fma(cosine, p->standard_deviation, p->mean));
  }
}

static int results_per_call(openreg_type type) {
  assert(type_is_floating(type));
  return type == OPENREG_FLOAT64 ? GRID_RESULTS_64 : GRID_RESULTS_32;
}

uint64_t openreg_log_normal_words(const openreg_output *output, openreg_grid grid) {
  return grid_words(output, grid, results_per_call(output->type));
}

void openreg_log_normal(const openreg_output *output, openreg_share share, openreg_philox philox,
                        openreg_grid grid, double mean, double standard_deviation) {
  const int results = results_per_call(output->type);
  if (output->type == OPENREG_FLOAT64) {
    double_parameters p = {mean, standard_deviation};
    grid_fill(output, share, philox, grid, results, convert_to_doubles, &p);
  } else {
    float_parameters p = {output->type, (float)mean, (float)standard_deviation};
    grid_fill(output, share, philox, grid, results, convert_to_floats, &p);
  }
}
