/* grid.h: the grid-stride mapping that most distributions of PyTorch's CUDA backend share.
 *
 * With T threads and F results a call, element i comes from subsequence i mod T; it is result
 * (i/T) mod F of call (i/T)/F, and every call is one block of Philox. So the results of one call
 * lie T elements apart, and neighbouring elements come from neighbouring subsequences: a batch of
 * subsequences gives F runs of neighbouring elements.
 */
#ifndef OPENREG_GENERATOR_GRID_H
#define OPENREG_GENERATOR_GRID_H

#include "generator/generator.h"
#include "generator/philox.h"

#pragma GCC visibility push(hidden)

/* Threads that CUDA starts for n > 0 elements; `grid` has room for one block at least. */
uint64_t openreg_grid_threads(uint64_t n, openreg_grid grid);

/* Words that n elements take when they are not cut; 0 for none. */
uint64_t openreg_grid_increment(uint64_t n, openreg_grid grid, int results_per_call);

/* One call of a batch of subsequences: words to be turned into results. Result l of subsequence j
 * is element j of values[l], in the output's type. Only the first counts[l] are wanted; the counts
 * do not increase from one l to the next, and those from results_per_call on are 0. */
typedef struct grid_batch {
  const philox_words *words;
  unsigned counts[4];
  void *values[4];
} grid_batch;

typedef void grid_converter(const void *parameters, const grid_batch *batch);

/* The two halves of every operator on the grid: the words it takes, and filling the output. */
uint64_t openreg_grid_words(const openreg_output *output, openreg_grid grid, int results_per_call);
void openreg_grid_fill(const openreg_output *output, openreg_share share, openreg_philox philox,
                       openreg_grid grid, int results_per_call, grid_converter *convert,
                       const void *parameters);

/* Results a call: 4 words, or 2 of 64 bits. */
enum { GRID_RESULTS_32 = 4, GRID_RESULTS_64 = 2 };

/* Of operators that make a float64 of 64 bits, and all else of 32. */
static inline int grid_results_of(openreg_type type) {
  return type == OPENREG_FLOAT64 ? GRID_RESULTS_64 : GRID_RESULTS_32;
}

#pragma GCC visibility pop
#endif
