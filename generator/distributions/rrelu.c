/* rrelu.c: the randomized leaky rectifier in training, whose negative slopes are uniform.
 *
 * Elements are those of the grid. Each takes its word, whether it needs a slope or not. The uniform
 * is rounded to the type, scaled in double, and rounded again. u can be 1, so a slope can be
 * `upper`. CUDA does not split large tensors here.
 */
#include "generator/grid.h"
#include "generator/share.h"
#include "generator/types.h"
#include "generator/words.h"

#include <assert.h>
#include <math.h>

static int results_per_call(openreg_type type) {
  assert(openreg_type_is_floating(type));
  return type == OPENREG_FLOAT64 ? GRID_RESULTS_64 : GRID_RESULTS_32;
}

uint64_t openreg_rrelu_words(openreg_type type, uint64_t n, openreg_grid grid) {
  return openreg_grid_increment(n, grid, results_per_call(type));
}

typedef struct job {
  openreg_type type;
  const void *x;
  void *noise, *result;
  double lower, range;
} job;

static void rectify(const job *job, uint64_t element, double u) {
  const double x = openreg_type_load_real(job->type, job->x, element);
  double slope = 1, value = x;
  if (x <= 0) {
    slope = fma(openreg_type_round_real(job->type, u), job->range, job->lower);
    slope = openreg_type_round_real(job->type, slope);
    value = x * slope;
  }
  openreg_type_store_real(job->type, slope, job->noise, element);
  openreg_type_store_real(job->type, value, job->result, element);
}

static double uniform_of(const philox_words *words, int results, int result, unsigned j) {
  if (results == GRID_RESULTS_32)
    return (double)uniform_float(words->lane[result][j]);
  return uniform_double(words->lane[2 * result][j], words->lane[2 * result + 1][j]);
}

void openreg_rrelu(openreg_type type, uint64_t n, const void *x, void *noise, void *result,
                   openreg_share share, openreg_philox philox, openreg_grid grid, double lower,
                   double upper) {
  assert(philox.offset % 4 == 0 && lower <= upper);
  if (n == 0)
    return;
  const job job = {type, x, noise, result, lower, upper - lower};
  const int results = results_per_call(type);
  const uint64_t threads = openreg_grid_threads(n, grid);
  const uint64_t batches = threads / PHILOX_BATCH;
  const uint64_t call_elements = threads * (uint64_t)results;
  const uint64_t calls = (n - 1) / call_elements + 1;
  const pieces pieces = pieces_of(share, calls * batches);
  for (uint64_t piece = pieces.first; piece < pieces.end; piece++) {
    const uint64_t call = piece / batches, first = piece % batches * PHILOX_BATCH;
    philox_words words;
    openreg_philox_fill(philox.seed, first, philox.offset / 4 + call, PHILOX_BATCH, &words);
    for (int r = 0; r < results; r++) {
      const uint64_t element = call * call_elements + (uint64_t)r * threads + first;
      for (unsigned j = 0; j < PHILOX_BATCH && element + j < n; j++)
        rectify(&job, element + j, uniform_of(&words, results, r, j));
    }
  }
}
