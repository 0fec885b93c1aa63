/* dropout.c: the forward kernel of native_dropout.
 *
 * CUDA has two variants. If x can be read as vectors of V elements, V neighbors come from one
 * subsequence: V consecutive words. A block has 4 words. V = 2 discards half of its block, and V
 * = 8 reads two blocks. Otherwise the elements are those of the grid. The number of words taken is
 * always the same, so with V = 8 the next operator can read some of the same words. That is the
 * GPU's behavior. The uniforms are floats for doubles too.
 */
#include "generator/grid.h"
#include "generator/lanes/lanes.h"
#include "generator/share.h"
#include "generator/types.h"

#include <assert.h>

int openreg_dropout_vector_width(openreg_type type, uint64_t n, uintptr_t device_address,
                                 bool dense) {
  if (!dense)
    return 1;
  assert(openreg_type_is_floating(type));
  const size_t item_bytes = openreg_type_bytes(type);
  size_t width = 16 / item_bytes; /* CUDA's widest load is 16 bytes */
  while (width > 1 && (device_address % (width * item_bytes) != 0 || n % width != 0))
    width /= 2;
  return (int)width;
}

uint64_t openreg_dropout_words(uint64_t n, openreg_grid grid) {
  return openreg_grid_increment(n, grid, GRID_RESULTS_32);
}

typedef struct job {
  openreg_type type;
  const char *x;
  char *result;
  bool *mask;
  double keep, scale; /* rounded to float unless the type is double */
} job;

/* Computes result = x * mask * scale, left to right, for `count` elements and their uniforms. */
static void drop_doubles(const job *job, uint64_t first, unsigned count, const float *uniforms) {
  const double *x = (const double *)job->x + first;
  double *result = (double *)job->result + first;
  bool *mask = job->mask + first;
  for (unsigned j = 0; j < count; j++) {
    mask[j] = uniforms[j] < job->keep;
    result[j] = x[j] * (double)mask[j] * job->scale;
  }
}

enum { WIDEST = 8, BATCH_ELEMENTS = WIDEST * PHILOX_BATCH };

static void drop_floats(const job *job, uint64_t first, unsigned count, const float *uniforms) {
  const size_t item_bytes = openreg_type_bytes(job->type);
  float values[BATCH_ELEMENTS];
  openreg_type_load_floats(job->type, job->x + first * item_bytes, count, values);
  openreg_lanes_chosen()->drop(uniforms, count, (float)job->keep, (float)job->scale,
                               job->mask + first, values);
  openreg_type_store_floats(job->type, values, count, job->result + first * item_bytes);
}

static void drop(const job *job, uint64_t first, unsigned count, const float *uniforms) {
  if (job->type == OPENREG_FLOAT64)
    drop_doubles(job, first, count, uniforms);
  else
    drop_floats(job, first, count, uniforms);
}

/* Vector v comes from subsequence v mod threads, in call v / threads. */
static void drop_vectors(const job *job, uint64_t n, unsigned width, openreg_share share,
                         openreg_philox philox, uint64_t threads) {
  const uint64_t vectors = n / width, batches = threads / PHILOX_BATCH;
  const unsigned blocks = width > 4 ? 2 : 1;
  const uint64_t calls = (vectors - 1) / threads + 1;
  const pieces pieces = pieces_of(share, calls * batches);
  for (uint64_t piece = pieces.first; piece < pieces.end && piece * PHILOX_BATCH < vectors;
       piece++) {
    const uint64_t first = piece * PHILOX_BATCH, left = vectors - first;
    const unsigned count = left < PHILOX_BATCH ? (unsigned)left : PHILOX_BATCH;
    const uint64_t block = philox.offset / 4 + first / threads * blocks;
    philox_words words[2];
    float uniforms[BATCH_ELEMENTS];
    for (unsigned b = 0; b < blocks; b++)
      openreg_philox_fill(philox.seed, first % threads, block + b, count, &words[b]);
    openreg_lanes_chosen()->interleave(words, count, width, uniforms);
    drop(job, first * width, count * width, uniforms);
  }
}

/* Uses the mapping of the grid, element by element. CUDA does not split large tensors here. */
static void drop_elements(const job *job, uint64_t n, openreg_share share, openreg_philox philox,
                          uint64_t threads) {
  const uint64_t call_elements = threads * GRID_RESULTS_32, batches = threads / PHILOX_BATCH;
  const uint64_t calls = (n - 1) / call_elements + 1;
  const pieces pieces = pieces_of(share, calls * batches);
  for (uint64_t piece = pieces.first; piece < pieces.end; piece++) {
    const uint64_t call = piece / batches, first = piece % batches * PHILOX_BATCH;
    philox_words words;
    openreg_philox_fill(philox.seed, first, philox.offset / 4 + call, PHILOX_BATCH, &words);
    for (unsigned lane = 0; lane < GRID_RESULTS_32; lane++) {
      const uint64_t element = call * call_elements + lane * threads + first;
      if (element >= n)
        break;
      const unsigned wanted = n - element < PHILOX_BATCH ? (unsigned)(n - element) : PHILOX_BATCH;
      float uniforms[PHILOX_BATCH];
      openreg_lanes_chosen()->scale(words.lane[lane], wanted, 1.0f, 0.0f, uniforms);
      drop(job, element, wanted, uniforms);
    }
  }
}

void openreg_dropout(openreg_type type, uint64_t n, int vector_width, const void *x, void *result,
                     bool *mask, openreg_share share, openreg_philox philox, openreg_grid grid,
                     double p) {
  assert(openreg_type_is_floating(type) && p >= 0 && p < 1);
  assert(vector_width == 1 || vector_width == 2 || vector_width == 4 || vector_width == 8);
  assert(n % (unsigned)vector_width == 0 && philox.offset % 4 == 0);
  if (n == 0)
    return;
  job job = {.type = type, .x = x, .result = result, .mask = mask, .keep = 1.0 - p};
  if (type != OPENREG_FLOAT64)
    job.keep = (float)job.keep;
  job.scale = 1.0 / job.keep;
  const uint64_t threads = openreg_grid_threads(n, grid);
  if (vector_width == 1)
    drop_elements(&job, n, share, philox, threads);
  else
    drop_vectors(&job, n, (unsigned)vector_width, share, philox, threads);
}
