/* gamma.c: gamma numbers with a shape an element.
 *
 * G. Marsaglia, W. W. Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000):
 * the cube of a shifted normal number is accepted or rejected; a shape below 1 takes one uniform
 * more. Every element has a subsequence of its own; its normals and uniforms are floats, and
 * PyTorch's constants are floats too, also where the arithmetic is double. Here it is written once,
 * in double, and rounded after each step to the precision of the type (see type_round_computed).
 */
#include "share.h"
#include "stream.h"
#include "types.h"

#include <assert.h>
#include <float.h>
#include <math.h>

/* PyTorch's kernel asks for 10 words, which its generator rounds up. */
enum { WORDS = 12 };

uint64_t openreg_gamma_words(uint64_t n) {
  return n ? WORDS : 0;
}

static double smallest_normal(openreg_type type) {
  if (type == OPENREG_FLOAT64)
    return DBL_MIN;
  return type == OPENREG_FLOAT16 ? 0x1p-14 : (double)FLT_MIN; /* bfloat16 has float's exponents */
}

/* (1 - u)^(1 / shape), which makes a number of shape + 1 one of `shape`. */
static double boost(openreg_type type, stream *stream, double shape) {
  const double base = type_round_computed(type, 1 - (double)stream_uniform(stream));
  return type_round_computed(type, pow(base, type_round_computed(type, 1 / shape)));
}

/* Whether v = (1 + c z)^3 is kept: a bound that is quick to work out, then the exact rule. */
static bool is_accepted(openreg_type type, double u, double z, double v, double d) {
  const double square = type_round_computed(type, z * z);
  const double part = type_round_computed(type, (double)0.0331f * square);
  if (u < type_round_computed(type, fma(-part, square, 1)))
    return true;
  const double log_v = type_round_computed(type, log(v));
  const double factor = type_round_computed(type, type_round_computed(type, 1 - v) + log_v);
  return type_round_computed(type, log(u)) <
         type_round_computed(type, fma(d, factor, type_round_computed(type, 0.5 * square)));
}

static double sample(openreg_type type, stream *stream, double shape) {
  if (!(shape >= 0))
    return (double)NAN;
  if (shape == 0)
    return 0;
  double scale = 1;
  if (shape < 1) {
    scale = boost(type, stream, shape);
    shape = type_round_real(type, shape + 1);
  }
  const double d = type_round_computed(type, shape - (double)(1.0f / 3.0f));
  const double root = type_round_computed(type, sqrt(type_round_computed(type, 9 * d)));
  const double c = type_round_computed(type, 1 / root);
  for (;;) {
    double z, y;
    do {
      z = (double)stream_normal_float(stream);
      y = type_round_computed(type, fma(c, z, 1));
    } while (y <= 0);
    const double v = type_round_computed(type, type_round_computed(type, y * y) * y);
    const double u = type_round_computed(type, 1 - (double)stream_uniform(stream));
    if (is_accepted(type, u, z, v, d))
      return type_round_computed(type, type_round_computed(type, scale * d) * v);
  }
}

void openreg_gamma(openreg_type type, uint64_t n, const void *alpha, void *result,
                   openreg_share share, openreg_philox philox) {
  assert(type_is_floating(type) && philox.offset % 4 == 0);
  const double least = smallest_normal(type);
  const pieces elements = pieces_of(share, n);
  for (uint64_t i = elements.first; i < elements.end; i++) {
    stream stream = stream_start(philox, i);
    const double value = sample(type, &stream, type_load_real(type, alpha, i));
    type_store_real(type, least > value ? least : value, result, i);
  }
}
