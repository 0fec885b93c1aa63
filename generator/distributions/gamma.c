/* gamma.c: gamma numbers with a shape per element.
 *
 * The method is G. Marsaglia, W. W. Tsang, "A simple method for generating gamma variables", ACM
 * TOMS 26 (2000). It accepts or rejects the cube of a shifted normal number; a shape below 1 takes
 * one more uniform. Each element has its own subsequence. Its normal numbers and uniforms are
 * floats, and PyTorch's constants are floats too, even where the arithmetic is double. Here all
 * types share one implementation in double, which rounds after each step to the precision of the
 * type (see openreg_type_round_computed).
 */
#include "generator/share.h"
#include "generator/word_stream.h"
#include "generator/types.h"

#include <assert.h>
#include <float.h>
#include <math.h>

/* PyTorch's kernel asks for 10 words, and its generator rounds that up. */
enum { WORDS = 12 };

uint64_t openreg_gamma_words(void) {
  return WORDS;
}

static double smallest_normal(openreg_type type) {
  if (type == OPENREG_FLOAT64)
    return DBL_MIN;
  return type == OPENREG_FLOAT16 ? 0x1p-14 : (double)FLT_MIN; /* bfloat16 has float's exponents */
}

/* Returns (1 - u)^(1 / shape), the factor from a number of shape + 1 to one of `shape`. */
static double boost(openreg_type type, stream *stream, double shape) {
  const double base = openreg_type_round_computed(type, 1 - (double)stream_uniform(stream));
  return openreg_type_round_computed(type, pow(base, openreg_type_round_computed(type, 1 / shape)));
}

/* Whether v = (1 + c z)^3 is accepted. It tries a cheap bound first, then the exact rule. */
static bool is_accepted(openreg_type type, double u, double z, double v, double d) {
  const double square = openreg_type_round_computed(type, z * z);
  const double part = openreg_type_round_computed(type, (double)0.0331f * square);
  if (u < openreg_type_round_computed(type, fma(-part, square, 1)))
    return true;
  const double log_v = openreg_type_round_computed(type, log(v));
  const double factor =
      openreg_type_round_computed(type, openreg_type_round_computed(type, 1 - v) + log_v);
  return openreg_type_round_computed(type, log(u)) <
         openreg_type_round_computed(
             type, fma(d, factor, openreg_type_round_computed(type, 0.5 * square)));
}

static double sample(openreg_type type, stream *stream, double shape) {
  if (!(shape >= 0))
    return (double)NAN;
  if (shape == 0)
    return 0;
  double scale = 1;
  if (shape < 1) {
    scale = boost(type, stream, shape);
    shape = openreg_type_round_real(type, shape + 1);
  }
  const double d = openreg_type_round_computed(type, shape - (double)(1.0f / 3.0f));
  const double root =
      openreg_type_round_computed(type, sqrt(openreg_type_round_computed(type, 9 * d)));
  const double c = openreg_type_round_computed(type, 1 / root);
  for (;;) {
    double z, y;
    do {
      z = (double)stream_normal_float(stream);
      y = openreg_type_round_computed(type, fma(c, z, 1));
    } while (y <= 0);
    const double v =
        openreg_type_round_computed(type, openreg_type_round_computed(type, y * y) * y);
    const double u = openreg_type_round_computed(type, 1 - (double)stream_uniform(stream));
    if (is_accepted(type, u, z, v, d))
      return openreg_type_round_computed(type, openreg_type_round_computed(type, scale * d) * v);
  }
}

void openreg_gamma(openreg_type type, uint64_t n, const void *alpha, void *result,
                   openreg_share share, openreg_philox philox) {
  assert(openreg_type_is_floating(type) && philox.offset % 4 == 0);
  const double least = smallest_normal(type);
  const pieces elements = pieces_of(share, n);
  for (uint64_t i = elements.first; i < elements.end; i++) {
    stream stream = stream_start(philox, i);
    const double value = sample(type, &stream, openreg_type_load_real(type, alpha, i));
    openreg_type_store_real(type, least > value ? least : value, result, i);
  }
}
