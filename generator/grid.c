/* grid.c: runs an operator over the grid, part by part and batch by batch. See grid.h.
 *
 * A tensor that exceeds 32-bit indices is split. Then the words of the whole tensor are taken once
 * and not used, and each part takes its own. That is the effect of the recursion in PyTorch's
 * distribution_nullary_kernel. All functions below write only their own elements and depend only on
 * their arguments. So parts, calls and batches can run in any order, and shares of them in
 * parallel.
 */
#include "generator/grid.h"

#include "generator/layout.h"
#include "generator/share.h"

#include <assert.h>

enum { BLOCK_THREADS = 256 /* block_size_bound in PyTorch's DistributionTemplates.h */ };

_Static_assert(BLOCK_THREADS % PHILOX_BATCH == 0,
               "batches must not straddle the threads of a call");

uint64_t openreg_grid_threads(uint64_t n, openreg_grid grid) {
  assert(n > 0);
  assert(grid.multiprocessor_count > 0 && grid.max_threads_per_multiprocessor >= BLOCK_THREADS);
  uint64_t room = (uint64_t)grid.multiprocessor_count *
                  (uint64_t)(grid.max_threads_per_multiprocessor / BLOCK_THREADS);
  uint64_t blocks = (n - 1) / BLOCK_THREADS + 1;
  return BLOCK_THREADS * (blocks < room ? blocks : room);
}

uint64_t openreg_grid_increment(uint64_t n, openreg_grid grid, int results_per_call) {
  if (n == 0)
    return 0;
  return ((n - 1) / (openreg_grid_threads(n, grid) * (uint64_t)results_per_call) + 1) * 4;
}

/* What the parts of one operator share, and where the next part starts. */
typedef struct run {
  openreg_grid grid;
  int results_per_call;
  openreg_share share;
  uint64_t seed, offset;
  grid_converter *convert; /* NULL: only count words */
  const void *parameters;
} run;

/* Runs one call of subsequences first, ..., first + count - 1. */
static void fill_batch(const run *run, const layout *part, uint64_t threads, uint64_t call,
                       uint64_t first, unsigned count) {
  _Alignas(64) char scattered[4][PHILOX_BATCH * sizeof(uint64_t)];
  const bool dense = openreg_layout_is_dense(part);
  philox_words words;
  grid_batch batch = {.words = &words};
  uint64_t elements[4];
  for (int l = 0; l < run->results_per_call; l++) {
    uint64_t element = (call * (uint64_t)run->results_per_call + (uint64_t)l) * threads + first;
    if (element >= part->n)
      break;
    elements[l] = element;
    batch.counts[l] = part->n - element < count ? (unsigned)(part->n - element) : count;
    batch.values[l] = dense ? openreg_layout_dense_element(part, element) : scattered[l];
  }
  openreg_philox_fill(run->seed, first, run->offset / 4 + call, count, &words);
  run->convert(run->parameters, &batch);
  for (int l = 0; !dense && l < 4 && batch.counts[l]; l++)
    openreg_layout_store(part, elements[l], batch.counts[l], batch.values[l]);
}

/* Goes batch by batch, call by call, which is also the memory order of the results. */
static void fill_part(const layout *part, void *context) {
  run *run = context;
  if (run->convert && part->n > 0) {
    const uint64_t threads = openreg_grid_threads(part->n, run->grid),
                   batches = threads / PHILOX_BATCH;
    const uint64_t call_elements = threads * (uint64_t)run->results_per_call;
    const uint64_t calls = (part->n - 1) / call_elements + 1;
    const pieces pieces = pieces_of(run->share, calls * batches);
    for (uint64_t piece = pieces.first; piece < pieces.end; piece++) {
      const uint64_t call = piece / batches, first = piece % batches * PHILOX_BATCH;
      const uint64_t start = call * call_elements + first;
      if (start >= part->n)
        break;
      const uint64_t left = part->n - start;
      fill_batch(run, part, threads, call, first,
                 left < PHILOX_BATCH ? (unsigned)left : PHILOX_BATCH);
    }
  }
  run->offset += openreg_grid_increment(part->n, run->grid, run->results_per_call);
}

static void visit(const openreg_output *output, run *run) {
  layout whole;
  openreg_layout_in_memory_order(&whole, output);
  if (!openreg_layout_is_within(&whole, LAYOUT_INDEX_LIMIT))
    run->offset += openreg_grid_increment(whole.n, run->grid, run->results_per_call);
  openreg_layout_for_each_part(&whole, LAYOUT_INDEX_LIMIT, fill_part, run);
}

uint64_t openreg_grid_words(const openreg_output *output, openreg_grid grid, int results_per_call) {
  run run = {.grid = grid, .results_per_call = results_per_call};
  visit(output, &run);
  return run.offset;
}

void openreg_grid_fill(const openreg_output *output, openreg_share share, openreg_philox philox,
                       openreg_grid grid, int results_per_call, grid_converter *convert,
                       const void *parameters) {
  assert(philox.offset % 4 == 0);
  run run = {.grid = grid,
             .results_per_call = results_per_call,
             .share = share,
             .seed = philox.seed,
             .offset = philox.offset,
             .convert = convert,
             .parameters = parameters};
  visit(output, &run);
}
