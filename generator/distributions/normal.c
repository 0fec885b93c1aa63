/* normal.c: normal numbers, fma(z, standard deviation, mean) of a standard normal z, and log-normal
 * numbers, which are the exponential of normal ones.
 *
 * box_muller.h says how close normal numbers are to the GPU's, and hardware.h says it for the
 * exponential of floats. For 16-bit types the exponential is taken of the float, not of a rounded
 * normal number.
 */
#include "generator/distributions/box_muller.h"
#include "generator/grid.h"
#include "generator/hardware.h"
#include "generator/types.h"

#include <assert.h>
#include <math.h>

typedef struct distribution {
  double mean, standard_deviation;
  openreg_type type;
  bool is_of_logarithms;
} distribution;

static void finish_floats(const distribution *d, float *values, unsigned count, void *elements) {
  for (unsigned j = 0; d->is_of_logarithms && j < count; j++)
    values[j] = hardware_expf(values[j]);
  openreg_type_store_floats(d->type, values, count, elements);
}

static void convert_to_floats(const void *parameters, const grid_batch *batch) {
  const distribution *d = parameters;
  for (int lane = 0; lane < 4; lane += 2) {
    float rooms[2][PHILOX_BATCH];
    float *sines = type_float_buffer(d->type, batch->values[lane], rooms[0]);
    float *cosines = type_float_buffer(d->type, batch->values[lane + 1], rooms[1]);
    const unsigned sine_count = batch->counts[lane], cosine_count = batch->counts[lane + 1];
    openreg_box_muller_floats(batch->words->lane[lane], batch->words->lane[lane + 1], sine_count,
                              cosine_count, (float)d->standard_deviation, (float)d->mean, sines,
                              cosines);
    finish_floats(d, sines, sine_count, batch->values[lane]);
    finish_floats(d, cosines, cosine_count, batch->values[lane + 1]);
  }
}

static double finished_double(const distribution *d, double z) {
  const double value = fma(z, d->standard_deviation, d->mean);
  return d->is_of_logarithms ? exp(value) : value;
}

static void convert_to_doubles(const void *parameters, const grid_batch *batch) {
  const distribution *d = parameters;
  const philox_words *words = batch->words;
  double *sines = batch->values[0], *cosines = batch->values[1];
  for (unsigned j = 0; j < batch->counts[0]; j++) {
    const uint32_t block[4] = {words->lane[0][j], words->lane[1][j], words->lane[2][j],
                               words->lane[3][j]};
    double sine, cosine;
    openreg_box_muller_double(block, &sine, &cosine);
    sines[j] = finished_double(d, sine);
    if (j < batch->counts[1])
      cosines[j] = finished_double(d, cosine);
  }
}

static void fill(const openreg_output *output, openreg_share share, openreg_philox philox,
                 openreg_grid grid, const distribution *d) {
  assert(openreg_type_is_floating(output->type));
  openreg_grid_fill(output, share, philox, grid, grid_results_of(output->type),
                    output->type == OPENREG_FLOAT64 ? convert_to_doubles : convert_to_floats, d);
}

uint64_t openreg_normal_words(const openreg_output *output, openreg_grid grid) {
  return openreg_grid_words(output, grid, grid_results_of(output->type));
}

void openreg_normal(const openreg_output *output, openreg_share share, openreg_philox philox,
                    openreg_grid grid, double mean, double standard_deviation) {
  fill(output, share, philox, grid,
       &(distribution){mean, standard_deviation, output->type, .is_of_logarithms = false});
}

uint64_t openreg_log_normal_words(const openreg_output *output, openreg_grid grid) {
  return openreg_normal_words(output, grid);
}

void openreg_log_normal(const openreg_output *output, openreg_share share, openreg_philox philox,
                        openreg_grid grid, double mean, double standard_deviation) {
  fill(output, share, philox, grid,
       &(distribution){mean, standard_deviation, output->type, .is_of_logarithms = true});
}
