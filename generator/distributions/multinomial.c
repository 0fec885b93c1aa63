/* multinomial.c: categories drawn with replacement, for more than one sample per row.
 *
 * Each sample is one uniform, looked up in the cumulative sums of its row. CUDA starts one row of
 * blocks for each distribution, at most as many as its grid has rows, and continues with the next
 * call.
 */
#include "generator/philox.h"
#include "generator/types.h"
#include "generator/words.h"

#include <assert.h>

enum {
  BLOCK_THREADS = 128, /* of PyTorch's sampleMultinomialWithReplacement */
  GRID_ROWS = 65535    /* CUDA's limit for a grid's second dimension, on every device */
};

static uint64_t rows_at_once(uint64_t rows) {
  return rows < GRID_ROWS ? rows : GRID_ROWS;
}

uint64_t openreg_multinomial_words(uint64_t rows, uint64_t samples) {
  if (rows == 0 || samples == 0)
    return 0;
  return ((rows - 1) / rows_at_once(rows) + 1) * 4;
}

typedef struct distribution {
  openreg_type type;
  const char *weights, *cumulative;
  uint64_t categories;
} distribution;

/* Returns the first category whose cumulative sum reaches u (doubles compare as the elements do).
 * If rounding left none, returns the last one with a weight. These are the steps of the GPU's
 * search, in the same order. */
static uint64_t choose(const distribution *d, double u) {
  uint64_t start = 0, end = d->categories;
  while (start < end) {
    uint64_t middle = start + (end - start) / 2;
    if (openreg_type_load_real(d->type, d->cumulative, middle) < u)
      start = middle + 1;
    else
      end = middle;
  }
  if (start == d->categories)
    start = d->categories - 1;
  while (start > 0 && openreg_type_load_real(d->type, d->weights, start) == 0)
    start--;
  return start;
}

static double uniform_of_type(openreg_type type, uint32_t word) {
  float u = uniform_float(word);
  return (double)(type == OPENREG_FLOAT64 ? u : openreg_type_round_float(type, u));
}

static void draw_row(const distribution *d, int64_t *output, uint64_t samples, uint64_t seed,
                     uint64_t subsequence, uint64_t block) {
  for (uint64_t first = 0; first < samples; first += PHILOX_BATCH) {
    philox_words words;
    const uint64_t left = samples - first;
    const unsigned count = left < PHILOX_BATCH ? (unsigned)left : PHILOX_BATCH;
    openreg_philox_fill(seed, subsequence + first, block, count, &words);
    for (unsigned j = 0; j < count; j++)
      output[first + j] = (int64_t)choose(d, uniform_of_type(d->type, words.lane[0][j]));
  }
}

void openreg_multinomial(int64_t *output, openreg_type type, const void *weights,
                         const void *cumulative, uint64_t rows, uint64_t categories,
                         uint64_t samples, openreg_philox philox) {
  assert(openreg_type_is_floating(type) && philox.offset % 4 == 0);
  assert(categories > 0 || rows == 0 || samples == 0);
  if (rows == 0 || samples == 0)
    return;
  const uint64_t together = rows_at_once(rows);
  const uint64_t row_threads = ((samples - 1) / BLOCK_THREADS + 1) * BLOCK_THREADS;
  const size_t row_bytes = categories * openreg_type_bytes(type);
  for (uint64_t row = 0; row < rows; row++) {
    const distribution d = {type, (const char *)weights + row * row_bytes,
                            (const char *)cumulative + row * row_bytes, categories};
    draw_row(&d, output + row * samples, samples, philox.seed, row % together * row_threads,
             philox.offset / 4 + row / together);
  }
}
