/* reduction.c: reduces arrays tile by tile. See reduction.h. */
#include "collectives/reduction.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

enum {
  /* An accumulator of this size stays in a core's L1 cache, with tiles of two sources and a
   * destination. */
  TILE_BYTES = 8 << 10,
  /* Without an accumulator a tile only limits how often `is_canceled` is called. */
  DIRECT_TILE_BYTES = 64 << 10
};

static openreg_reduction_table *chosen_table(void) {
#ifdef __x86_64__
  static openreg_reduction_table *const tables[OPENREG_SIMD_COUNT] = {
      openreg_reduction_c, openreg_reduction_avx2, openreg_reduction_avx512};
#else
  static openreg_reduction_table *const tables[OPENREG_SIMD_COUNT] = {openreg_reduction_c};
#endif
  return tables[openreg_simd_chosen()];
}

/* Whether the loops can write results to the destinations without an accumulator. */
static bool needs_no_accumulator(const openreg_reduction_job *job,
                                 const struct openreg_reduction_loops *loops) {
  return loops->store == NULL && job->source_count <= 2;
}

struct tile {
  const openreg_reduction_job *job;
  const struct openreg_reduction_loops *loops;
  size_t offset_bytes, bytes; /* in each source and destination */
  size_t count;               /* numbers; a complex element may be two */
};

static const void *source_at(const struct tile *tile, int index) {
  return (const char *)tile->job->sources[index] + tile->offset_bytes;
}

static char *destination_at(const struct tile *tile, int index) {
  return (char *)tile->job->destinations[index] + tile->offset_bytes;
}

static double factor_of(const struct tile *tile, int index) {
  return tile->job->factors == NULL ? 1 : tile->job->factors[index];
}

static void accumulate(const struct tile *tile, void *accumulator, void *also) {
  const struct openreg_reduction_loops *loops = tile->loops;
  int sources = tile->job->source_count;
  if (sources == 1) {
    loops->load(accumulator, source_at(tile, 0), tile->count, factor_of(tile, 0));
    return;
  }
  loops->load_two(accumulator, also, source_at(tile, 0), factor_of(tile, 0), source_at(tile, 1),
                  factor_of(tile, 1), tile->count);
  for (int i = 2; i < sources; i++)
    loops->add(accumulator, source_at(tile, i), tile->count, factor_of(tile, i));
}

static void reduce_tile(const struct tile *tile) {
  alignas(64) unsigned char accumulator[TILE_BYTES];
  const openreg_reduction_job *job = tile->job;
  int written = 1; /* destinations that hold the result */
  char *first = destination_at(tile, 0);
  if (needs_no_accumulator(job, tile->loops)) { /* no element is read after it is written */
    written = job->source_count == 2 && job->destination_count > 1 ? 2 : 1;
    accumulate(tile, first, written == 2 ? destination_at(tile, 1) : NULL);
  } else {
    accumulate(tile, accumulator, NULL);
    if (tile->loops->store == NULL)
      memcpy(first, accumulator, tile->bytes);
    else
      tile->loops->store(first, accumulator, tile->count,
                         job->divisor == 0 ? job->source_count : job->divisor);
  }
  for (int i = written; i < job->destination_count; i++)
    memcpy(destination_at(tile, i), first, tile->bytes);
}

bool openreg_reduce(const openreg_reduction_job *job, bool (*is_canceled)(const void *),
                    const void *context) {
  assert(openreg_reduction_is_defined(job->reduction, job->dtype));
  assert(job->source_count >= 1 && job->destination_count >= 1);
  const struct openreg_reduction_loops *loops = chosen_table()(job->reduction, job->dtype);
  size_t element = openreg_dtype_bytes(job->dtype);
  size_t tile_elements = (needs_no_accumulator(job, loops) ? DIRECT_TILE_BYTES : TILE_BYTES) /
                         (loops->accumulator_bytes * loops->numbers);
  for (size_t begin = 0; begin < job->count; begin += tile_elements) {
    if (is_canceled != NULL && is_canceled(context))
      return false;
    size_t elements = job->count - begin < tile_elements ? job->count - begin : tile_elements;
    const struct tile tile = {
        .job = job,
        .loops = loops,
        .offset_bytes = begin * element,
        .bytes = elements * element,
        .count = elements * loops->numbers,
    };
    reduce_tile(&tile);
  }
  return true;
}
