/* grid.h: the grid-stride mapping of most distributions in PyTorch's CUDA backend.
 *
 * With T threads and F results per call, element i comes from subsequence i mod T, and is result
 * (i/T) mod F of call (i/T)/F. Each call is one Philox block. So the results of one call lie T
 * elements apart, and neighboring elements come from neighboring subsequences. A batch of
 * subsequences gives F runs of neighboring elements.
 */
#ifndef OPENREG_GENERATOR_GRID_H
#define OPENREG_GENERATOR_GRID_H

#include "generator/generator.h"
#include "generator/philox.h"

#pragma GCC visibility push(hidden)

/* Returns the number of threads that CUDA starts for n > 0 elements. `grid` has room for at least
 * one block. */
uint64_t openreg_grid_threads(uint64_t n, openreg_grid grid);

/* Returns the number of words that n elements take if they are not split; 0 for no elements. */
uint64_t openreg_grid_increment(uint64_t n, openreg_grid grid, int results_per_call);

/* The words of one call of a batch of subsequences, and their results. Result l of subsequence j is
 * element j of values[l], in the output's type. Only the first counts[l] are wanted. The counts do
 * not increase with l, and those from results_per_call on are 0. */
typedef struct grid_batch {
  const philox_words *words;
  unsigned counts[4];
  void *values[4];
} grid_batch;

typedef void grid_converter(const void *parameters, const grid_batch *batch);

/* The two halves of every operator on the grid: the number of words, and filling the output. */
uint64_t openreg_grid_words(const openreg_output *output, openreg_grid grid, int results_per_call);
void openreg_grid_fill(const openreg_output *output, openreg_share share, openreg_philox philox,
                       openreg_grid grid, int results_per_call, grid_converter *convert,
                       const void *parameters);

/* Results per call: 4 of 32 bits, or 2 of 64 bits. */
enum { GRID_RESULTS_32 = 4, GRID_RESULTS_64 = 2 };

/* For operators that make a float64 from 64 bits, and all other types from 32. */
static inline int grid_results_of(openreg_type type) {
  return type == OPENREG_FLOAT64 ? GRID_RESULTS_64 : GRID_RESULTS_32;
}

#pragma GCC visibility pop
#endif
