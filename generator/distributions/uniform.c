/* uniform.c: uniform numbers in [from, to).
 *
 * cuRAND's uniform lies in (0, 1]. PyTorch reverses the interval: it returns `from` where the
 * result, rounded to the output's type, equals `to`. For 16-bit types that is every u that rounds
 * to 1. The bounds and their difference are rounded to the output's type first.
 */
#include "generator/grid.h"
#include "generator/lanes/lanes.h"
#include "generator/types.h"

#include <assert.h>

typedef struct float_parameters {
  openreg_type type;
  float from, to, range;
} float_parameters;

static void convert_to_floats(const void *parameters, const grid_batch *batch) {
  const float_parameters *p = parameters;
  for (int lane = 0; lane < 4; lane++) {
    float room[PHILOX_BATCH];
    float *values = type_float_buffer(p->type, batch->values[lane], room);
    const unsigned count = batch->counts[lane];
    openreg_lanes_chosen()->scale(batch->words->lane[lane], count, p->range, p->from, values);
    openreg_type_round_floats(p->type, values, count);
    openreg_lanes_chosen()->replace(values, count, p->to, p->from);
    openreg_type_store_floats(p->type, values, count, batch->values[lane]);
  }
}

typedef struct double_parameters {
  double from, to, range;
} double_parameters;

static void convert_to_doubles(const void *parameters, const grid_batch *batch) {
  const double_parameters *p = parameters;
  for (int lane = 0; lane < 2; lane++) {
    const uint32_t *a = batch->words->lane[2 * lane], *b = batch->words->lane[2 * lane + 1];
    double *values = batch->values[lane];
    const unsigned count = batch->counts[lane];
    openreg_lanes_chosen()->scale_doubles(a, b, count, p->range, p->from, values);
    openreg_lanes_chosen()->replace_doubles(values, count, p->to, p->from);
  }
}

uint64_t openreg_uniform_words(const openreg_output *output, openreg_grid grid) {
  return openreg_grid_words(output, grid, grid_results_of(output->type));
}

void openreg_uniform(const openreg_output *output, openreg_share share, openreg_philox philox,
                     openreg_grid grid, double from, double to) {
  assert(openreg_type_is_floating(output->type));
  const int results = grid_results_of(output->type);
  if (output->type == OPENREG_FLOAT64) {
    double_parameters p = {from, to, to - from};
    openreg_grid_fill(output, share, philox, grid, results, convert_to_doubles, &p);
  } else {
    float_parameters p = {.type = output->type,
                          .from = openreg_type_round_float(output->type, (float)from),
                          .to = openreg_type_round_float(output->type, (float)to)};
    p.range = openreg_type_round_float(output->type, p.to - p.from);
    openreg_grid_fill(output, share, philox, grid, results, convert_to_floats, &p);
  }
}
