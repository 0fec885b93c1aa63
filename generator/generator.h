/* generator.h: the public interface of the random number layer.
 *
 * It implements Philox4x32-10 as NVIDIA GPUs run it, and the distributions that PyTorch builds on
 * it, element for element. The number of an element depends on the seed, the offset, the element's
 * position in memory order, and the grid of the simulated GPU. Kernels are pure functions of their
 * arguments and write only their output. From device.h this layer uses only openreg_simd_chosen.
 *
 * Any number of threads may use a generator object. Pointers are plain addressable memory.
 */
#ifndef OPENREG_GENERATOR_H
#define OPENREG_GENERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the function ---------------------------------------------------------------------------- */

/* Computes ten rounds of Philox4x32: words = f(counter, key). */
void openreg_philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]);

/* The position of a generator. `offset` counts 32-bit words of every subsequence. */
typedef struct openreg_philox {
  uint64_t seed, offset;
} openreg_philox;

/* Computes four words: block `block` (= offset / 4) of subsequence `subsequence` for a seed. */
void openreg_philox_block(uint64_t seed, uint64_t subsequence, uint64_t block, uint32_t words[4]);

/* ---- generators ------------------------------------------------------------------------------ */

typedef struct openreg_generator openreg_generator;

enum { OPENREG_GENERATOR_STATE_BYTES = 16 };
#define OPENREG_GENERATOR_DEFAULT_SEED UINT64_C(67280421310721) /* c10::default_rng_seed_val */

/* Creates a generator with the default seed and offset 0. The caller destroys it. NULL if the host
 * has no memory. */
openreg_generator *openreg_generator_create(void);
void openreg_generator_destroy(openreg_generator *generator); /* NULL is allowed */

/* Sets the seed, and the offset to 0. */
void openreg_generator_seed(openreg_generator *generator, uint64_t seed);

/* Returns a nondeterministic seed from the system. It has 53 bits, which a double can hold, like
 * those of torch.cuda.seed(). */
uint64_t openreg_generator_entropy(void);

openreg_philox openreg_generator_get(openreg_generator *generator);

/* Sets seed and offset. Returns false and changes nothing if the offset is not a multiple of 4. */
bool openreg_generator_set(openreg_generator *generator, openreg_philox philox);

/* Takes `increment` words, rounded up to a multiple of 4: returns the position of the generator and
 * advances its offset, atomically. An increment of 0 takes nothing. */
openreg_philox openreg_generator_take(openreg_generator *generator, uint64_t increment);

/* Writes 16 bytes, seed and offset in little-endian order, as CUDA serializes its generator. */
void openreg_generator_get_state(openreg_generator *generator, uint8_t state[16]);

/* Accepts 16 bytes, or 8 (the seed; the offset becomes 0). Returns false and changes nothing for
 * any other length, or an offset that is not a multiple of 4. */
bool openreg_generator_set_state(openreg_generator *generator, const uint8_t *state, size_t bytes);

/* ---- outputs --------------------------------------------------------------------------------- */

typedef enum openreg_type {
  OPENREG_UINT8,
  OPENREG_INT8,
  OPENREG_INT16,
  OPENREG_INT32,
  OPENREG_INT64,
  OPENREG_UINT16,
  OPENREG_UINT32,
  OPENREG_UINT64,
  OPENREG_BOOL,
  OPENREG_FLOAT16,
  OPENREG_BFLOAT16,
  OPENREG_FLOAT32,
  OPENREG_FLOAT64,
} openreg_type;

size_t openreg_type_bytes(openreg_type type);

enum { OPENREG_MAX_DIMENSIONS = 64 };

/* The grid of the simulated GPU: at least 1 multiprocessor with at least 256 threads. */
typedef struct openreg_grid {
  int multiprocessor_count;
  int max_threads_per_multiprocessor;
} openreg_grid;

/* A strided tensor to fill. Sizes and strides count elements; strides are >= 0. A tensor of 0
 * dimensions has one element. Elements must not overlap. */
typedef struct openreg_output {
  void *data;
  openreg_type type;
  int dimensions;
  const int64_t *sizes, *strides;
} openreg_output;

/* One of `count` >= 1 shares of a kernel's work, index < count. A call of a kernel writes only the
 * elements of its share. Shares have about equal size, do not overlap, and together cover the whole
 * output, so they may run in parallel. The value of an element does not depend on its share. */
typedef struct openreg_share {
  uint32_t index, count;
} openreg_share;

static const openreg_share openreg_whole = {0, 1};

/* ---- kernels --------------------------------------------------------------------------------- */

/* Each pair has a function that returns how many words the operator takes from the generator (the
 * argument of openreg_generator_take), and the operator itself, which starts at a generator's
 * position. An output of 0 elements takes nothing, where no other rule is given. The number of
 * words does not depend on the data. Formulas and layout are those of PyTorch's CUDA kernels.
 * Tensors that CUDA splits because they exceed 32-bit indices are split in the same way. */

/* uniform in [from, to): floating types. */
uint64_t openreg_uniform_words(const openreg_output *output, openreg_grid grid);
void openreg_uniform(const openreg_output *output, openreg_share share, openreg_philox philox,
                     openreg_grid grid, double from, double to);

/* normal: floating types. */
uint64_t openreg_normal_words(const openreg_output *output, openreg_grid grid);
void openreg_normal(const openreg_output *output, openreg_share share, openreg_philox philox,
                    openreg_grid grid, double mean, double standard_deviation);

/* log_normal, the exponential of a normal number: floating types. */
uint64_t openreg_log_normal_words(const openreg_output *output, openreg_grid grid);
void openreg_log_normal(const openreg_output *output, openreg_share share, openreg_philox philox,
                        openreg_grid grid, double mean, double standard_deviation);

/* cauchy with sigma > 0: floating types. */
uint64_t openreg_cauchy_words(const openreg_output *output, openreg_grid grid);
void openreg_cauchy(const openreg_output *output, openreg_share share, openreg_philox philox,
                    openreg_grid grid, double median, double sigma);

/* exponential with rate lambda > 0: floating types. */
uint64_t openreg_exponential_words(const openreg_output *output, openreg_grid grid);
void openreg_exponential(const openreg_output *output, openreg_share share, openreg_philox philox,
                         openreg_grid grid, double lambda);

/* geometric, the number of trials up to the first success, with a probability in (0, 1): every
 * type. */
uint64_t openreg_geometric_words(const openreg_output *output, openreg_grid grid);
void openreg_geometric(const openreg_output *output, openreg_share share, openreg_philox philox,
                       openreg_grid grid, double p);

/* bernoulli with one probability p in [0, 1], 1 with probability p, else 0: every type. */
uint64_t openreg_bernoulli_words(const openreg_output *output, openreg_grid grid);
void openreg_bernoulli(const openreg_output *output, openreg_share share, openreg_philox philox,
                       openreg_grid grid, double probability);

/* bernoulli with a probability per element. `probabilities` are contiguous floats, or doubles if
 * `output->type` is OPENREG_FLOAT64, in row-major order of the output. */
uint64_t openreg_bernoulli_tensor_words(const openreg_output *output);
void openreg_bernoulli_tensor(const openreg_output *output, openreg_share share,
                              openreg_philox philox, const void *probabilities);

/* Random integers of every type: the three forms of random_. */
typedef enum openreg_random_form {
  OPENREG_RANDOM_FROM_TO,   /* base + word mod range; range >= 1 */
  OPENREG_RANDOM_FULL_64,   /* all 2^64 values: int64, float64, float32, bfloat16 */
  OPENREG_RANDOM_WHOLE_TYPE /* random_(): all values from 0 up that the type holds exactly */
} openreg_random_form;

uint64_t openreg_random_words(const openreg_output *output, openreg_grid grid,
                              openreg_random_form form, uint64_t range);
void openreg_random(const openreg_output *output, openreg_share share, openreg_philox philox,
                    openreg_grid grid, openreg_random_form form, uint64_t range, int64_t base);

/* native_dropout, forward: result = x * mask * 1/(1-p). The mask is true with probability 1-p; p is
 * in [0, 1). x, result and mask have `n` elements of floating types. They are contiguous in the
 * order that openreg_dropout_vector_width assumes. */
int openreg_dropout_vector_width(openreg_type type, uint64_t n, uintptr_t device_address,
                                 bool dense);
uint64_t openreg_dropout_words(uint64_t n, openreg_grid grid);
void openreg_dropout(openreg_type type, uint64_t n, int vector_width, const void *x, void *result,
                     bool *mask, openreg_share share, openreg_philox philox, openreg_grid grid,
                     double p);

/* rrelu in training, forward. Where x <= 0, noise is uniform in [lower, upper] and result = x *
 * noise; elsewhere noise is 1 and result = x. x, noise and result have `n` elements of one floating
 * type and are contiguous in row-major order. result may be x. A large tensor is not split. */
uint64_t openreg_rrelu_words(openreg_type type, uint64_t n, openreg_grid grid);
void openreg_rrelu(openreg_type type, uint64_t n, const void *x, void *noise, void *result,
                   openreg_share share, openreg_philox philox, openreg_grid grid, double lower,
                   double upper);

/* The next three operators have parameters per element. Parameters and result have `n` elements of
 * one floating type and are contiguous in row-major order. As on the GPU, an element draws as often
 * as it needs, even beyond the words that were taken, and the grid has no effect. The words are
 * taken for an empty result, too. Invalid parameters draw nothing and give NaN; GPUs assert for
 * these, or never finish. */

/* poisson: a count with mean lambda, at most 2^32 - 1. Invalid: negative lambda, NaN. */
uint64_t openreg_poisson_words(void);
void openreg_poisson(openreg_type type, uint64_t n, const void *lambda, void *result,
                     openreg_share share, openreg_philox philox);

/* _standard_gamma: shape alpha, scale 1; at least the smallest normal number of the type. Invalid:
 * negative alpha, NaN. A Dirichlet sample is gamma numbers divided by their sum. */
uint64_t openreg_gamma_words(void);
void openreg_gamma(openreg_type type, uint64_t n, const void *alpha, void *result,
                   openreg_share share, openreg_philox philox);

/* binomial: the successes of `count` trials with probability p each; 0 for p <= 0 or count <= 0,
 * count for p >= 1. Invalid: NaN. */
uint64_t openreg_binomial_words(void);
void openreg_binomial(openreg_type type, uint64_t n, const void *count, const void *p, void *result,
                      openreg_share share, openreg_philox philox);

/* randperm: a permutation of 0..n-1 as int64. Returns false if the host has no memory. */
uint64_t openreg_randperm_words(uint64_t n, openreg_grid grid);
bool openreg_randperm(int64_t *output, uint64_t n, openreg_philox philox, openreg_grid grid);

/* multinomial with replacement, for more than one sample. `weights` has `rows` x `categories`
 * elements, and each row is scaled to the sum 1. `cumulative` has the cumulative sums of each row.
 * Both have a floating type. `output` has rows x samples elements. As on CUDA, a sample is the
 * first category whose cumulative sum reaches u, stepping down past zero weights. The grid has no
 * effect. */
uint64_t openreg_multinomial_words(uint64_t rows, uint64_t samples);
void openreg_multinomial(int64_t *output, openreg_type type, const void *weights,
                         const void *cumulative, uint64_t rows, uint64_t categories,
                         uint64_t samples, openreg_philox philox);

/* ---- keys ------------------------------------------------------------------------------------ */

/* A key gives random numbers without a generator (torch.func._random): the same key, the same
 * numbers, on every GPU. `offset` counts blocks of four words of subsequence 0. */
typedef struct openreg_key {
  uint64_t seed, offset;
} openreg_key;

/* Returns the key made of block `index` of a key. */
openreg_key openreg_key_derive(openreg_key key, uint64_t index);

/* Writes numbers first..first + count - 1 of a key to `elements`, a contiguous array of a floating
 * type. `first` is a multiple of 4. Uniform numbers lie in [from, to], because they are rounded to
 * the type; normal ones are as close to the GPU's as those of openreg_normal. */
void openreg_keyed_uniform(openreg_type type, openreg_key key, uint64_t first, uint64_t count,
                           double from, double to, void *elements);
void openreg_keyed_normal(openreg_type type, openreg_key key, uint64_t first, uint64_t count,
                          double mean, double standard_deviation, void *elements);

#ifdef __cplusplus
}
#endif
#endif
