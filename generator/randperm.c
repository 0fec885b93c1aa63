/* randperm.c: random permutations: 0 ... n-1 sorted by random keys, then ties shuffled.
 *
 * Keys have just so many bits that ties are rare; a tie keeps the order of the numbers, which would
 * be a bias, so every run of equal keys is shuffled by draws of a second request.
 *
 * The sort uses that keys are uniform. A stable radix sort orders the upper bits, a few more than
 * it takes to tell n keys apart; after it an element is, on average, a fraction of a place from
 * where it belongs, and one insertion sort over everything finishes in linear expected time. Both
 * are stable, so the whole is. Keys are not an adversary's: they come from Philox alone.
 */
#include "generator.h"
#include "stream.h"

#include <math.h>
#include <stdlib.h>

typedef struct pair {
  uint64_t key;
  int64_t value;
} pair;

enum {
  SMALL_KEY_BITS = 32, /* up to here keys are int32, else int64 */
  DIGIT_BITS = 9,      /* 512 streams of writing: their lines fit in a first-level cache */
  SPARE_BITS = 3       /* sorted beyond log2(n): one insertion step in 16 elements */
};

/* Bits of a key such that all n are different with probability 0.9 at least: the bound in
 * PyTorch's "Algorithm of randperm". */
static int key_bits(uint64_t n) {
  const double count = (double)n;
  const double bits = ceil(log2(count - (6 * count * count + 1) / (12 * log(0.9))));
  return bits < 64 ? (int)bits : 64;
}

/* The request for keys: random_(lowest, largest) of the keys' type, which excludes the largest. */
static openreg_output key_output(int64_t *keys, const int64_t *n, const int64_t *stride) {
  const bool small = key_bits((uint64_t)*n) <= SMALL_KEY_BITS;
  return (openreg_output){keys, small ? OPENREG_INT32 : OPENREG_INT64, 1, n, stride};
}

static uint64_t key_range(const openreg_output *keys) {
  return keys->type == OPENREG_INT32 ? UINT32_MAX : UINT64_MAX;
}

static uint64_t key_words(uint64_t n, openreg_grid grid) {
  const int64_t size = (int64_t)n, stride = 1;
  const openreg_output keys = key_output(NULL, &size, &stride);
  return openreg_random_words(&keys, grid, OPENREG_RANDOM_FROM_TO, key_range(&keys));
}

uint64_t openreg_randperm_words(uint64_t n, openreg_grid grid) {
  if (n == 0)
    return 0;
  return key_words(n, grid) + (n + 3) / 4 * 4;
}

/* Draws the keys into `drawn` and pairs them with 0 ... n-1. Masked keys are unsigned; those of all
 * the bits of their type are compared as signed numbers, which is the same after the sign bit has
 * been turned around. */
static void draw_pairs(pair *pairs, int64_t *drawn, uint64_t n, openreg_philox philox,
                       openreg_grid grid) {
  const int64_t size = (int64_t)n, stride = 1;
  const openreg_output keys = key_output(drawn, &size, &stride);
  const bool small = keys.type == OPENREG_INT32;
  const int64_t lowest = small ? INT32_MIN : INT64_MIN;
  openreg_random(&keys, philox, grid, OPENREG_RANDOM_FROM_TO, key_range(&keys), lowest);

  const int bits = key_bits(n);
  const uint64_t mask = UINT64_MAX >> (64 - bits);
  const uint64_t sign = bits == SMALL_KEY_BITS || bits == 64 ? UINT64_C(1) << (bits - 1) : 0;
  const int32_t *drawn_32 = (const int32_t *)drawn;
  for (uint64_t i = 0; i < n; i++) {
    const uint64_t key = small ? (uint64_t)drawn_32[i] : (uint64_t)drawn[i];
    pairs[i] = (pair){(key & mask) ^ sign, (int64_t)i};
  }
}

/* One stable pass by the digit that starts at bit `shift`. */
static void sort_by_digit(const pair *from, pair *to, uint64_t n, int shift) {
  enum { DIGITS = 1 << DIGIT_BITS };
  uint64_t next[DIGITS] = {0};
  for (uint64_t i = 0; i < n; i++)
    next[from[i].key >> shift & (DIGITS - 1)]++;
  uint64_t start = 0;
  for (int digit = 0; digit < DIGITS; digit++) {
    const uint64_t count = next[digit];
    next[digit] = start;
    start += count;
  }
  for (uint64_t i = 0; i < n; i++)
    to[next[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
}

static void sort_by_insertion(pair *pairs, uint64_t n) {
  for (uint64_t i = 1; i < n; i++) {
    const pair moved = pairs[i];
    uint64_t j = i;
    for (; j > 0 && pairs[j - 1].key > moved.key; j--)
      pairs[j] = pairs[j - 1];
    pairs[j] = moved;
  }
}

/* Sorts `pairs`, of which keys have `bits` bits; returns whichever of the two arrays it is in. */
static pair *sort_pairs(pair *pairs, pair *other, uint64_t n, int bits) {
  int telling = SPARE_BITS;
  while (telling < bits && (n - 1) >> (telling - SPARE_BITS))
    telling++;
  const int passes = (telling + DIGIT_BITS - 1) / DIGIT_BITS;
  int shift = bits - passes * DIGIT_BITS;
  if (shift < 0)
    shift = 0;
  for (int pass = 0; pass < passes; pass++, shift += DIGIT_BITS) {
    sort_by_digit(pairs, other, n, shift);
    pair *sorted = other;
    other = pairs;
    pairs = sorted;
  }
  sort_by_insertion(pairs, n);
  return pairs;
}

/* A run that starts at sorted position t draws word after word of subsequence t. */
static void shuffle_run(pair *run, uint64_t length, openreg_philox philox, uint64_t t) {
  stream words = stream_start(philox, t);
  for (uint64_t j = length - 1; j > 0; j--) {
    const uint64_t k = stream_word(&words) % (uint32_t)(j + 1);
    const int64_t value = run[j].value;
    run[j].value = run[k].value;
    run[k].value = value;
  }
}

static void shuffle_runs(pair *pairs, uint64_t n, openreg_philox philox) {
  for (uint64_t t = 0; t < n;) {
    uint64_t end = t + 1;
    while (end < n && pairs[end].key == pairs[t].key)
      end++;
    if (end - t > 1)
      shuffle_run(pairs + t, end - t, philox, t);
    t = end;
  }
}

bool openreg_randperm(int64_t *output, uint64_t n, openreg_philox philox, openreg_grid grid) {
  if (n == 0)
    return true;
  if (n > SIZE_MAX / (2 * sizeof(pair)))
    return false;
  pair *pairs = malloc(n * 2 * sizeof(pair));
  if (!pairs)
    return false;
  draw_pairs(pairs, (int64_t *)(pairs + n), n, philox, grid);
  pair *sorted = sort_pairs(pairs, pairs + n, n, key_bits(n));
  const openreg_philox second = {philox.seed, philox.offset + key_words(n, grid)};
  shuffle_runs(sorted, n, second);
  for (uint64_t i = 0; i < n; i++)
    output[i] = sorted[i].value;
  free(pairs);
  return true;
}
