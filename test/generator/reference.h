/* reference.h: the formulas again, one element at a time, written for reading, not for speed.
 *
 * Nothing here calls or includes the layer's own Philox, conversions, layout or grid: the tests
 * compare two implementations of the same description.
 */
#ifndef OPENREG_TEST_GENERATOR_REFERENCE_H
#define OPENREG_TEST_GENERATOR_REFERENCE_H

#include "generator/generator.h"

void reference_philox(uint64_t seed, uint64_t subsequence, uint64_t block, uint32_t words[4]);

/* CUDA's threads for n elements, and the words that an operator on the grid takes for them. */
uint64_t reference_threads(uint64_t n, openreg_grid grid);
uint64_t reference_increment(uint64_t n, openreg_grid grid, int results_per_call);

/* The call that element i of n gets, and the index of its result. */
typedef struct reference_draw {
  uint32_t words[4];
  int result;
} reference_draw;

reference_draw reference_draw_of(uint64_t i, uint64_t n, openreg_philox philox, openreg_grid grid,
                                 int results_per_call);

float reference_uniform_of_word(uint32_t word);

/* Returns the result of a call as a uniform in (0, 1], a standard normal, a 32-bit or a 64-bit
 * word. */
double reference_uniform(const reference_draw *draw, bool in_double);
double reference_normal(const reference_draw *draw, bool in_double);
uint64_t reference_word(const reference_draw *draw, int results_per_call);

/* A subsequence that is read word by word. Initialize it with the number of words already read. */
typedef struct reference_stream {
  openreg_philox philox;
  uint64_t subsequence, read;
} reference_stream;

uint32_t reference_stream_word(reference_stream *stream);
double reference_stream_uniform(reference_stream *stream);

/* Returns the number of a floating type that is nearest to `value`, ties to even. */
double reference_round(openreg_type type, double value);

/* Returns element `index` of an array. */
double reference_element(openreg_type type, const void *elements, uint64_t index);

/* Sets element `index` of a floating type to the number nearest to `value`, and returns that. */
double reference_put(openreg_type type, void *elements, uint64_t index, double value);

/* Whether all bytes of an element are `pattern`. */
bool reference_is_untouched(openreg_type type, const void *elements, uint64_t index, int pattern);

#endif
