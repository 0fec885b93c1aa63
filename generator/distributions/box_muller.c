/* box_muller.c: see box_muller.h. */
#include "generator/distributions/box_muller.h"

#include "generator/lanes/lanes.h"
#include "generator/words.h"

#include <assert.h>
#include <math.h>

void openreg_box_muller_floats(const uint32_t *first, const uint32_t *second, unsigned sine_count,
                               unsigned cosine_count, float deviation, float mean, float *sines,
                               float *cosines) {
  assert(cosine_count <= sine_count && sine_count <= PHILOX_BATCH);
  openreg_lanes_chosen()->normals(first, second, sine_count, cosine_count, deviation, mean, sines,
                                  cosines);
}

/* Return sin and cos of pi * v for v in (0, 2]. v minus the nearest multiple of 1/2 is exact and at
 * most 1/4 from 0. So the single rounding of the argument costs at most the last place of the
 * result. */
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

void openreg_box_muller_double(const uint32_t words[4], double *sine, double *cosine) {
  const double u = uniform_double(words[0], words[1]);
  const double v = 2.0 * uniform_double(words[2], words[3]); /* half turns in (0, 2] */
  const double radius = sqrt(-2.0 * log(u));
  *sine = radius * sine_of_pi_times(v);
  *cosine = radius * cosine_of_pi_times(v);
}
