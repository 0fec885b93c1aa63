/* poisson.c: Poisson numbers with a mean per element, by the three methods of cuRAND.
 *
 * Below a mean of 64, it multiplies as many uniforms as necessary. Above 4000, it scales a double
 * normal number. In between, it accepts or rejects a candidate of a function that resembles the
 * distribution. Each element has its own subsequence. The middle method computes in float, and the
 * GPU uses approximating hardware for its logarithm, exponential and roots. So the GPU may decide
 * differently about a candidate at the boundary of rejection.
 */
#include "generator/hardware.h"
#include "generator/share.h"
#include "generator/word_stream.h"
#include "generator/types.h"

#include <assert.h>

/* cuRAND changes the method at these means. */
#define REJECTION_MIN_LAMBDA 64.0
#define MOST_OF_REJECTION    4000.0

/* PyTorch's kernel asks for this number of words. */
enum { WORDS = 20 };

uint64_t openreg_poisson_words(void) {
  return WORDS;
}

/* Converts as a GPU does to unsigned int. */
static double saturate(double value) {
  if (!(value > 0))
    return 0;
  return value < (double)UINT32_MAX ? (double)(uint32_t)value : (double)UINT32_MAX;
}

/* Counts how many uniforms fit into a product of at least e^-lambda. */
static double sample_by_multiplication(stream *stream, float lambda) {
  uint32_t count = 0;
  float product = expf(lambda);
  do {
    count++;
    product *= stream_uniform(stream);
  } while (product > 1.0f);
  return (double)(count - 1);
}

static double by_normal(stream *stream, double lambda) {
  return saturate(fma(sqrt(lambda), stream_normal_double(stream), lambda) + 0.5);
}

/* cuRAND's approximation of the incomplete gamma function with parameter `lambda`: 1 / (1 +
 * e^(steepness (lambda - x) - shift))^2. */
typedef struct envelope {
  float lambda, steepness, shift;
} envelope;

static envelope envelope_of(float lambda) {
  return (envelope){.lambda = lambda,
                    .steepness =
                        fmaf(1.43248035f, 1.0f / sqrtf(lambda - 0.124009793f), 0.000253610749f),
                    .shift = fmaf(0.210967349f, 1.0f / sqrtf(lambda - 1.97381164f), 0.942017341f)};
}

static float envelope_at(const envelope *e, float x) {
  const float root = 1.0f / (1.0f + hardware_expf(fmaf(e->steepness, e->lambda - x, -e->shift)));
  return root * root;
}

static float envelope_inverse(const envelope *e, float y) {
  const float t = e->shift + hardware_logf(1.0f / sqrtf(y) - 1.0f);
  return fmaf(-t, 1.0f / e->steepness, e->lambda);
}

static float log_of_factorial(float x) {
  int sign;
  return lgammaf_r(x + 1.0f, &sign); /* lgammaf writes a global variable */
}

static double by_rejection(stream *stream, float lambda) {
  const envelope e = envelope_of(lambda);
  const float log_lambda = hardware_logf(lambda);
  for (;;) {
    const float x = floorf(envelope_inverse(&e, stream_uniform(stream)));
    const float t = stream_uniform(stream);
    const float most = 1.3f * (envelope_at(&e, x + 1.0f) - envelope_at(&e, x));
    const float likelihood = hardware_expf(fmaf(x, log_lambda, -lambda) - log_of_factorial(x));
    if (t * most < likelihood && (double)most >= 1e-20)
      return saturate((double)x);
  }
}

static double sample(stream *stream, double lambda) {
  if (!(lambda >= 0))
    return (double)NAN;
  if (lambda < REJECTION_MIN_LAMBDA)
    return sample_by_multiplication(stream, (float)lambda);
  if (lambda > MOST_OF_REJECTION)
    return by_normal(stream, lambda);
  return by_rejection(stream, (float)lambda);
}

void openreg_poisson(openreg_type type, uint64_t n, const void *lambda, void *result,
                     openreg_share share, openreg_philox philox) {
  assert(openreg_type_is_floating(type) && philox.offset % 4 == 0);
  const pieces elements = pieces_of(share, n);
  for (uint64_t i = elements.first; i < elements.end; i++) {
    stream stream = stream_start(philox, i);
    openreg_type_store_real(type, sample(&stream, openreg_type_load_real(type, lambda, i)), result,
                            i);
  }
}
