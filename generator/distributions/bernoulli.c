/* bernoulli.c: ones with a given probability, else zeros.
 *
 * As on CUDA, the two operators differ in more than their argument. With one probability: u < p on
 * the grid, in double for a double output. With a probability per element: u <= p, where four
 * neighbors in row-major order share one subsequence and u is always a float.
 */
#include "generator/grid.h"
#include "generator/lanes/lanes.h"
#include "generator/layout.h"
#include "generator/share.h"
#include "generator/types.h"
#include "generator/words.h"

#include <assert.h>

typedef struct parameters {
  openreg_type type;
  double probability; /* rounded to float unless the output is double */
} parameters;

static void convert_from_floats(const void *context, const grid_batch *batch) {
  const parameters *p = context;
  for (int lane = 0; lane < 4; lane++) {
    float room[PHILOX_BATCH];
    float *ones = type_float_buffer(p->type, batch->values[lane], room);
    int32_t integers[PHILOX_BATCH];
    const unsigned count = batch->counts[lane];
    openreg_lanes_chosen()->below(batch->words->lane[lane], count, (float)p->probability, ones);
    if (openreg_type_is_float_computed(p->type)) {
      openreg_type_store_floats(p->type, ones, count, batch->values[lane]);
    } else {
      for (unsigned j = 0; j < count; j++)
        integers[j] = (int32_t)ones[j];
      openreg_type_store_int32s(p->type, integers, count, batch->values[lane]);
    }
  }
}

static void convert_from_doubles(const void *context, const grid_batch *batch) {
  const parameters *p = context;
  for (int lane = 0; lane < 2; lane++) {
    const uint32_t *a = batch->words->lane[2 * lane], *b = batch->words->lane[2 * lane + 1];
    openreg_lanes_chosen()->below_doubles(a, b, batch->counts[lane], p->probability,
                                          batch->values[lane]);
  }
}

uint64_t openreg_bernoulli_words(const openreg_output *output, openreg_grid grid) {
  return openreg_grid_words(output, grid, grid_results_of(output->type));
}

void openreg_bernoulli(const openreg_output *output, openreg_share share, openreg_philox philox,
                       openreg_grid grid, double probability) {
  assert(probability >= 0 && probability <= 1);
  const parameters p = {output->type, probability};
  openreg_grid_fill(output, share, philox, grid, grid_results_of(output->type),
                    output->type == OPENREG_FLOAT64 ? convert_from_doubles : convert_from_floats,
                    &p);
}

/* PyTorch's kernel asks for 10 words, and its generator rounds that up. */
enum { TENSOR_WORDS = 12 };

enum { BATCH_ELEMENTS = 4 * PHILOX_BATCH };

uint64_t openreg_bernoulli_tensor_words(const openreg_output *output) {
  layout layout;
  openreg_layout_in_row_major_order(&layout, output);
  return layout.n ? TENSOR_WORDS : 0;
}

static bool is_one(openreg_type type, float u, const void *probabilities, uint64_t element) {
  if (type == OPENREG_FLOAT64)
    return u <= ((const double *)probabilities)[element];
  return u <= ((const float *)probabilities)[element];
}

void openreg_bernoulli_tensor(const openreg_output *output, openreg_share share,
                              openreg_philox philox, const void *probabilities) {
  assert(philox.offset % 4 == 0);
  layout layout;
  openreg_layout_in_row_major_order(&layout, output);
  const pieces batches = pieces_of(share, (layout.n + BATCH_ELEMENTS - 1) / BATCH_ELEMENTS);
  for (uint64_t batch = batches.first; batch < batches.end; batch++) {
    const uint64_t first = batch * BATCH_ELEMENTS;
    philox_words words;
    int64_t ones[BATCH_ELEMENTS];
    char values[BATCH_ELEMENTS * sizeof(uint64_t)] __attribute__((aligned(8)));
    const uint64_t left = layout.n - first;
    const unsigned count = left < BATCH_ELEMENTS ? (unsigned)left : BATCH_ELEMENTS;
    openreg_philox_fill(philox.seed, first / 4, philox.offset / 4, (count + 3) / 4, &words);
    for (unsigned j = 0; j < count; j++)
      ones[j] =
          is_one(output->type, uniform_float(words.lane[j % 4][j / 4]), probabilities, first + j);
    openreg_type_store_int64s(output->type, ones, count, values);
    openreg_layout_store(&layout, first, count, values);
  }
}
