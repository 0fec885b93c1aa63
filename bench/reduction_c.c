/* Measures the arithmetic of collectives: the sum of two float32 sources, written to both in place,
 * as all_reduce does. Compares it with a loop written for that case alone, and with copies that
 * read and write as much. Prints a line for each measurement, in the form that turns.h describes.
 */
#define _GNU_SOURCE /* program_invocation_short_name */
#include "collectives/collectives.h"

#include <string.h>

#include "bench/clones.h"
#include "bench/turns.h"

enum { TURNS = 61, TURN_BYTES = 4 << 20 }; /* so that a turn is shorter than a scheduler slice */

struct pair {
  float *one, *other;
  size_t count;
};

static void reduce(void *data, int times) {
  const struct pair *pair = data;
  void *const both[] = {pair->one, pair->other};
  const openreg_reduction_job job = {
      .reduction = OPENREG_REDUCE_SUM,
      .dtype = OPENREG_DTYPE_FLOAT32,
      .source_count = 2,
      .destination_count = 2,
      .sources = (const void *const *)both,
      .destinations = both,
      .count = pair->count,
  };
  for (int i = 0; i < times; i++)
    openreg_reduce(&job, NULL, NULL);
}

FOR_EACH_SIMD static void add(float *restrict one, float *restrict other, size_t count) {
  for (size_t i = 0; i < count; i++) {
    float sum = one[i] + other[i];
    one[i] = sum;
    other[i] = sum;
  }
}

static void add_directly(void *data, int times) {
  const struct pair *pair = data;
  for (int i = 0; i < times; i++)
    add(pair->one, pair->other, pair->count);
}

/* Reads and writes each buffer once. */
static void copy(void *data, int times) {
  const struct pair *pair = data;
  for (int i = 0; i < times; i++) {
    memcpy(pair->one, pair->other, pair->count * sizeof(float));
    memcpy(pair->other, pair->one, pair->count * sizeof(float));
  }
}

/* The sum of zeros stays finite, and is as fast as any other. */
static float *make_zeros(size_t bytes) {
  float *memory = aligned_alloc(4096, bytes);
  require(memory != NULL, "the host has no memory left");
  memset(memory, 0, bytes);
  return memory;
}

int main(void) {
  static const struct {
    const char *name;
    size_t bytes;
  } sizes[] = {{"64K", 64 << 10}, {"1M", 1 << 20}, {"32M", 32 << 20}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t bytes = sizes[i].bytes;
    struct pair pair = {make_zeros(bytes), make_zeros(bytes), bytes / sizeof(float)};
    struct work mine = {reduce, &pair};
    int times = bytes < TURN_BYTES ? (int)(TURN_BYTES / bytes) : 1;
    char key[32];
    snprintf(key, sizeof key, "reduce-direct-%s", sizes[i].name);
    measure(key, mine, (struct work){add_directly, &pair}, times, TURNS);
    snprintf(key, sizeof key, "reduce-copy-%s", sizes[i].name);
    measure(key, mine, (struct work){copy, &pair}, times, TURNS);
    free(pair.one);
    free(pair.other);
  }
  return 0;
}
