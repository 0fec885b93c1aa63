/* binomial.c: binomial numbers with a count and a probability per element.
 *
 * For small means, it adds geometric numbers until they exceed the count. For large means, it uses
 * the transformed rejection of W. Hoermann, "The generation of binomial random variates", 1993
 * (BTRS). The mapping of elements to words is this kernel's own: blocks of 128 threads with 8
 * elements each, and the elements of a thread read one subsequence in turn. So the draws of an
 * element depend on those before it.
 *
 * PyTorch's arithmetic mixes three precisions. Parameters and the result have the type's own
 * precision, and intermediate values have the compute precision. Whatever a decimal constant
 * touches is double until it is stored. Here everything is double, rounded where a value of PyTorch
 * has less: `own` and `computed`.
 */
#include "generator/distributions/binomial.h"

#include "generator/layout.h"
#include "generator/share.h"
#include "generator/word_stream.h"
#include "generator/types.h"

#include <assert.h>
#include <math.h>

enum {
  WORDS = 44, /* PyTorch's kernel asks for 42, and its generator rounds that up */
  BLOCK_THREADS = 128,
  THREAD_ELEMENTS = 8,
  BLOCK_ELEMENTS = BLOCK_THREADS * THREAD_ELEMENTS
};

uint64_t openreg_binomial_words(void) {
  return WORDS;
}

/* The words of one element, and the precision of its computation. */
typedef struct source {
  openreg_type type;
  stream stream;
} source;

static double own(const source *s, double value) {
  return openreg_type_round_real(s->type, value);
}

static double computed(const source *s, double value) {
  return openreg_type_round_computed(s->type, value);
}

/* Returns a 24-bit number in [0, 1). It is not cuRAND's uniform, whose 1 the logarithms here could
 * not handle. */
static double uniform_24(source *s) {
  return (double)(stream_word(&s->stream) & 0xFFFFFF) * 0x1p-24;
}

static double log_of(const source *s, double value) {
  return computed(s, log(value));
}

/* Counts how many geometric numbers fit into the count. */
static double sample_by_inversion(source *s, double count, double p) {
  const double log_of_failure = computed(s, log1p(-p));
  double sum = 0, successes = 0;
  for (;;) {
    const double trials = ceil(computed(s, log_of(s, uniform_24(s)) / log_of_failure));
    sum = computed(s, sum + trials);
    if (sum > count)
      return successes;
    successes = own(s, successes + 1);
  }
}

/* Returns the error of Stirling's formula for ln k!: exact values, then a series in 1 / (k + 1). */
static double stirling_tail(const source *s, double k) {
  static const double tails[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983,
                                 0.02079067210376509, 0.0166446911898211, 0.0138761288230707,
                                 0.0118967099458917,  0.0104112652619720, 0.00925546218271273,
                                 0.00833056343336287};
  if (k < (double)(sizeof tails / sizeof tails[0]))
    return computed(s, tails[(int)k]);
  const double next = computed(s, k + 1), square = computed(s, next * next);
  return computed(s, (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / next);
}

/* The names are the paper's: b, a, c shape the candidates; v_r is the height below which the box is
 * tight; r is the odds; m is the mode. */
typedef struct btrs {
  double count, b, a, c, v_r, r, alpha, m;
} btrs;

static btrs btrs_of(const source *s, double count, double p) {
  btrs t = {.count = count};
  const double mean = own(s, count * p), failure = own(s, 1 - p);
  const double deviation = computed(s, sqrt(own(s, mean * failure)));
  t.b = computed(s, 1.15 + 2.53 * deviation);
  t.a = computed(s, -0.0873 + 0.0248 * t.b + 0.01 * p);
  t.c = computed(s, mean + 0.5);
  t.v_r = computed(s, 0.92 - 4.2 / t.b);
  t.r = own(s, p / failure);
  t.alpha = computed(s, (2.83 + 5.1 / t.b) * deviation);
  t.m = floor(own(s, own(s, count + 1) * p));
  return t;
}

/* Returns the logarithm of the probability of k, relative to that of the mode. */
static double log_likelihood(const source *s, const btrs *t, double k) {
  const double m = t->m;
  const double failures_of_mode = computed(s, t->count - m), failures = own(s, t->count - k);
  const double a = computed(s, failures_of_mode + 1), b = own(s, failures + 1);
  const double at_mode = log_of(s, computed(s, computed(s, m + 1) / computed(s, t->r * a)));
  const double between = log_of(s, computed(s, a / b));
  const double at_k = log_of(s, computed(s, computed(s, t->r * b) / own(s, k + 1)));
  const double factorials = (m + 0.5) * at_mode + computed(s, own(s, t->count + 1) * between) +
                            (k + 0.5) * at_k + stirling_tail(s, m);
  return computed(s, factorials + stirling_tail(s, failures_of_mode) - stirling_tail(s, k) -
                         stirling_tail(s, failures));
}

static double sample_by_rejection(source *s, double count, double p) {
  const btrs t = btrs_of(s, count, p);
  for (;;) {
    const double u = uniform_24(s) - 0.5, v = uniform_24(s);
    const double us = 0.5 - fabs(u);
    const double slope = computed(s, computed(s, 2 * t.a / us) + t.b);
    const double k = own(s, floor(computed(s, fma(slope, u, t.c))));
    if (k < 0 || k > count)
      continue;
    if (us >= 0.07 && v <= t.v_r)
      return k;
    const double height = computed(s, computed(s, t.a / computed(s, us * us)) + t.b);
    const double scaled = computed(s, computed(s, v * t.alpha) / height);
    if (log_of(s, scaled) <= log_likelihood(s, &t, k))
      return k;
  }
}

/* Uses the method for the mean. Both require p <= 1/2. */
static double sample_by_mean(source *s, double count, double p) {
  return own(s, count * p) >= 10 ? sample_by_rejection(s, count, p)
                                 : sample_by_inversion(s, count, p);
}

static double sample(source *s, double count, double p) {
  if (isnan(count) || isnan(p))
    return (double)NAN;
  if (count <= 0 || p <= 0)
    return 0;
  if (p >= 1)
    return count;
  if (p <= 0.5)
    return sample_by_mean(s, count, p);
  return own(s, count - sample_by_mean(s, count, own(s, 1 - p)));
}

typedef struct job {
  openreg_type type;
  const void *count, *p;
  void *result;
  openreg_share share;
  openreg_philox philox;
} job;

/* Draws elements first, ..., first + n - 1 of the job, numbered as by the GPU's blocks and threads.
 */
static void draw(const job *job, uint64_t first, uint64_t n) {
  const pieces blocks = pieces_of(job->share, (n + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS);
  for (uint64_t block = blocks.first; block < blocks.end; block++) {
    const uint64_t start = block * BLOCK_ELEMENTS;
    const uint64_t left = n - start;
    for (uint64_t thread = 0; thread < BLOCK_THREADS && thread < left; thread++) {
      source s = {job->type, stream_start(job->philox, block * BLOCK_THREADS + thread)};
      for (uint64_t e = thread; e < BLOCK_ELEMENTS && e < left; e += BLOCK_THREADS) {
        const uint64_t i = first + start + e;
        const double count = openreg_type_load_real(job->type, job->count, i);
        const double p = openreg_type_load_real(job->type, job->p, i);
        openreg_type_store_real(job->type, sample(&s, count, p), job->result, i);
      }
    }
  }
}

static void draw_part(const layout *part, void *context) {
  draw(context, (uint64_t)part->start, part->n);
}

void openreg_binomial_within(uint64_t limit, openreg_type type, uint64_t n, const void *count,
                             const void *p, void *result, openreg_share share,
                             openreg_philox philox) {
  assert(openreg_type_is_floating(type) && philox.offset % 4 == 0);
  const int64_t size = (int64_t)n, stride = 1;
  const openreg_output output = {result, type, 1, &size, &stride};
  job job = {type, count, p, result, share, philox};
  layout whole;
  openreg_layout_in_memory_order(&whole, &output);
  openreg_layout_for_each_part(&whole, limit, draw_part, &job);
}

void openreg_binomial(openreg_type type, uint64_t n, const void *count, const void *p, void *result,
                      openreg_share share, openreg_philox philox) {
  openreg_binomial_within(LAYOUT_INDEX_LIMIT, type, n, count, p, result, share, philox);
}
