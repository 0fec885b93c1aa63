/* normal.c: normal numbers: fma(z, standard deviation, mean) of a standard normal z.
 *
 * How close they are to the GPU's is said in box_muller.h.
 */
#include "box_muller.h"
#include "grid.h"
#include "types.h"

#include <assert.h>
#include <math.h>

typedef struct float_parameters {
  openreg_type type;
  float mean, standard_deviation;
} float_parameters;

static void convert_to_floats(const void *parameters, const grid_batch *batch) {
  const float_parameters *p = parameters;
  for (int lane = 0; lane < 4; lane += 2) {
    float rooms[2][PHILOX_BATCH];
    float *sines = type_place_for_floats(p->type, batch->values[lane], rooms[0]);
    float *cosines = type_place_for_floats(p->type, batch->values[lane + 1], rooms[1]);
    const unsigned sine_count = batch->counts[lane], cosine_count = batch->counts[lane + 1];
    box_muller_floats(batch->words->lane[lane], batch->words->lane[lane + 1], sine_count,
                      cosine_count, p->standard_deviation, p->mean, sines, cosines);
    type_store_floats(p->type, sines, sine_count, batch->values[lane]);
    type_store_floats(p->type, cosines, cosine_count, batch->values[lane + 1]);
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
    sines[j] = fma(sine, p->standard_deviation, p->mean);
    if (j < batch->counts[1])
      cosines[j] = fma(cosine, p->standard_deviation, p->mean);
  }
}

static int results_per_call(openreg_type type) {
  assert(type_is_floating(type));
  return type == OPENREG_FLOAT64 ? GRID_RESULTS_64 : GRID_RESULTS_32;
}

uint64_t openreg_normal_words(const openreg_output *output, openreg_grid grid) {
  return grid_words(output, grid, results_per_call(output->type));
}

void openreg_normal(const openreg_output *output, openreg_share share, openreg_philox philox,
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
