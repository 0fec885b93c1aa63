/* normal.c: normal numbers by the method of Box and Muller, as cuRAND pairs them.
 *
 * A pair of uniforms gives a radius and an angle; the first result is the sine, the second the
 * cosine. The GPU takes the sine and cosine of a float from approximating hardware (absolute error
 * about 2^-20), of which no table exists; here the C library's accurate functions stand in, so
 * floats agree with the GPU within rounding, about 1e-6, and doubles within their last places.
 */
#include "grid.h"
#include "types.h"
#include "words.h"

#include <assert.h>
#include <math.h>

/* 2 pi as cuRAND has it in float, times the steps of a word. All three are exact in binary. */
#define TWO_PI_FLOAT 6.2831855f
#define ANGLE_STEP   (0x1p-32f * TWO_PI_FLOAT)
#define ANGLE_START  (0x1p-33f * TWO_PI_FLOAT)

typedef struct float_parameters {
  openreg_type type;
  float mean, standard_deviation;
} float_parameters;

static void scale_and_store(const float_parameters *p, float *values, unsigned count,
                            void *elements) {
  for (unsigned j = 0; j < count; j++)
    values[j] = fmaf(values[j], p->standard_deviation, p->mean);
  type_store_floats(p->type, values, count, elements);
}

static void convert_to_floats(const void *parameters, const grid_batch *batch) {
  const float_parameters *p = parameters;
  float radius[PHILOX_BATCH], angle[PHILOX_BATCH], values[PHILOX_BATCH];
  for (int lane = 0; lane < 4; lane += 2) {
    const uint32_t *first = batch->words->lane[lane], *second = batch->words->lane[lane + 1];
    const unsigned sines = batch->counts[lane], cosines = batch->counts[lane + 1];
    for (unsigned j = 0; j < sines; j++) {
      radius[j] = sqrtf(-2.0f * logf(uniform_float(first[j])));
      angle[j] = fmaf((float)second[j], ANGLE_STEP, ANGLE_START);
    }
    for (unsigned j = 0; j < sines; j++)
      values[j] = radius[j] * sinf(angle[j]);
    scale_and_store(p, values, sines, batch->values[lane]);
    for (unsigned j = 0; j < cosines; j++)
      values[j] = radius[j] * cosf(angle[j]);
    scale_and_store(p, values, cosines, batch->values[lane + 1]);
  }
}

/* sin and cos of pi * v for v in (0, 2]: v less the nearest multiple of 1/2 is exact and at most
 * 1/4 away, so the argument's one rounding costs no more than a last place of the result. */
static double sine_of_pi_times(double v) {
  int quarter_turns = (int)(2.0 * v + 0.5);
  double x = 3.141592653589793 * (v - 0.5 * quarter_turns);
  switch (quarter_turns % 4) {
  case 0:
    return sin(x);
  case 1:
    return cos(x);
  case 2:
    return -sin(x);
  default:
    return -cos(x);
  }
}

static double cosine_of_pi_times(double v) {
  int quarter_turns = (int)(2.0 * v + 0.5);
  double x = 3.141592653589793 * (v - 0.5 * quarter_turns);
  switch (quarter_turns % 4) {
  case 0:
    return cos(x);
  case 1:
    return -sin(x);
  case 2:
    return -cos(x);
  default:
    return sin(x);
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
    double u = uniform_double(words->lane[0][j], words->lane[1][j]);
    /* Twice the uniform: half turns in (0, 2]. */
    double v = 2.0 * uniform_double(words->lane[2][j], words->lane[3][j]);
    double radius = sqrt(-2.0 * log(u));
    sines[j] = fma(radius * sine_of_pi_times(v), p->standard_deviation, p->mean);
    if (j < batch->counts[1])
      cosines[j] = fma(radius * cosine_of_pi_times(v), p->standard_deviation, p->mean);
  }
}

static int results_per_call(openreg_type type) {
  assert(type_is_floating(type));
  return type == OPENREG_FLOAT64 ? GRID_RESULTS_64 : GRID_RESULTS_32;
}

uint64_t openreg_normal_words(const openreg_output *output, openreg_grid grid) {
  return grid_words(output, grid, results_per_call(output->type));
}

void openreg_normal(const openreg_output *output, openreg_philox philox, openreg_grid grid,
                    double mean, double standard_deviation) {
  const int results = results_per_call(output->type);
  if (output->type == OPENREG_FLOAT64) {
    double_parameters p = {mean, standard_deviation};
    grid_fill(output, philox, grid, results, convert_to_doubles, &p);
  } else {
    float_parameters p = {output->type, (float)mean, (float)standard_deviation};
    grid_fill(output, philox, grid, results, convert_to_floats, &p);
  }
}
