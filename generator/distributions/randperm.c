/* randperm.c: random permutations: the numbers 0 ... n-1 sorted by random keys, with ties shuffled.
 *
 * Keys have just enough bits that ties are rare. A tie would keep the order of the numbers, which
 * is a bias, so each run of equal keys is shuffled with words of a second request.
 *
 * The sort works on 64-bit entries: the number in the lower bits, and above it as many upper bits
 * of the key as fit. All entries differ, so the sort need not be stable. Up to 2^20 numbers the
 * whole key fits. Beyond that, a few entries agree in their stored bits, and the keys are generated
 * again to order those.
 *
 * The sort relies on uniform keys. It distributes entries by their uppermost bits to buckets that
 * fit in a second-level cache. Within a bucket, a radix sort uses almost as many bits as
 * distinguish the entries. That leaves each entry one or two places from its final place on
 * average, and one insertion sort finishes in linear expected time. Nobody can choose bad keys:
 * they come from Philox alone.
 */
#include "generator/distributions/randperm.h"

#include "generator/word_stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  SMALL_KEY_BITS = 32,      /* up to here keys are int32, else int64 */
  MOST_BUCKET_BITS = 11,    /* 2048 write streams, whose pages fit in a TLB */
  BUCKET_ENTRIES_BITS = 13, /* 64 KiB per bucket, while MOST_BUCKET_BITS allows that */
  DIGIT_BITS = 12           /* 16 KiB of counters */
};

/* Returns the bits of a key with which all n keys differ with a probability of at least 0.9: the
 * bound in PyTorch's "Algorithm of randperm". */
static int key_bits(uint64_t n) {
  const double count = (double)n;
  const double bits = ceil(log2(count - (6 * count * count + 1) / (12 * log(0.9))));
  return bits < 64 ? (int)bits : 64;
}

/* The request for keys is random_(lowest, largest) of the keys' type, which excludes the largest
 * value. */
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

static int bits_of(uint64_t number) {
  return number ? 64 - __builtin_clzll(number) : 0;
}

/* What the steps of one permutation share. */
typedef struct job {
  uint64_t n;
  int key_bits, stored_bits; /* bits of a key, and how many of them an entry stores */
  openreg_philox philox;
  openreg_grid grid;
} job;

static bool has_small_keys(const job *job) {
  return job->key_bits <= SMALL_KEY_BITS;
}

/* Writes the keys into `drawn`, as int32 or int64. */
static void fill_keys(const job *job, int64_t *drawn) {
  const int64_t size = (int64_t)job->n, stride = 1;
  const openreg_output keys = key_output(drawn, &size, &stride);
  openreg_random(&keys, openreg_whole, job->philox, job->grid, OPENREG_RANDOM_FROM_TO,
                 key_range(&keys), has_small_keys(job) ? INT32_MIN : INT64_MIN);
}

/* Returns the key of number i, aligned to the top bit. Masked keys are unsigned. Keys that use all
 * bits of their type compare as signed numbers; inverting the sign bit gives the same order. */
static uint64_t key_of(const job *job, const int64_t *drawn, uint64_t i) {
  const uint64_t key =
      has_small_keys(job) ? (uint64_t)((const int32_t *)drawn)[i] : (uint64_t)drawn[i];
  const bool is_signed = job->key_bits == SMALL_KEY_BITS || job->key_bits == 64;
  return (key << (64 - job->key_bits)) ^ (uint64_t)is_signed << 63;
}

/* The bits of an entry that hold the number. */
static uint64_t number_mask(const job *job) {
  return job->stored_bits < 64 ? UINT64_MAX >> job->stored_bits : 0;
}

static uint64_t entry_of(const job *job, const int64_t *drawn, uint64_t i) {
  return (key_of(job, drawn, i) & ~number_mask(job)) | i;
}

/* ---- sorting --------------------------------------------------------------------------------- */

/* Sorts by the `bits` that start at bit `shift`. The pass is stable. */
static void sort_by_digit(const uint64_t *from, uint64_t *to, uint32_t n, int shift, int bits) {
  const uint32_t digits = UINT32_C(1) << bits;
  uint32_t next[1 << DIGIT_BITS];
  memset(next, 0, digits * sizeof *next);
  for (uint32_t i = 0; i < n; i++)
    next[from[i] >> shift & (digits - 1)]++;
  uint32_t sum = 0;
  for (uint32_t digit = 0; digit < digits; digit++) {
    const uint32_t count = next[digit];
    next[digit] = sum;
    sum += count;
  }
  for (uint32_t i = 0; i < n; i++)
    to[next[from[i] >> shift & (digits - 1)]++] = from[i];
}

static void sort_by_insertion(uint64_t *entries, uint32_t n) {
  for (uint32_t i = 1; i < n; i++) {
    const uint64_t moved = entries[i];
    uint32_t j = i;
    for (; j > 0 && entries[j - 1] > moved; j--)
      entries[j] = entries[j - 1];
    entries[j] = moved;
  }
}

/* Sorts a bucket of `from`, whose entries agree in their uppermost `dealt` bits, into `to`. */
static void sort_bucket(uint64_t *from, uint64_t *to, uint32_t n, int dealt) {
  const int telling = bits_of(n) > 2 ? bits_of(n) - 2 : 0; /* 2 to 4 entries per value */
  const int passes = (telling + DIGIT_BITS - 1) / DIGIT_BITS;
  const int bits = passes ? (telling + passes - 1) / passes : 0;
  uint64_t *sorted = from, *other = to;
  for (int pass = passes; pass > 0; pass--) {
    sort_by_digit(sorted, other, n, 64 - dealt - pass * bits, bits);
    uint64_t *const previous = sorted;
    sorted = other;
    other = previous;
  }
  if (sorted != to)
    memcpy(to, sorted, n * sizeof *to);
  sort_by_insertion(to, n);
}

/* Shifts in two steps, because `dealt` may be 0. */
static uint64_t bucket_of(uint64_t entry, int dealt) {
  return entry >> (63 - dealt) >> 1;
}

/* Replaces the keys in `numbers` by sorted entries. `room` has n elements. */
static void sort_entries(const job *job, int64_t *numbers, uint64_t *room) {
  const int surplus = bits_of(job->n) - BUCKET_ENTRIES_BITS;
  const int dealt = surplus < 0 ? 0 : surplus < MOST_BUCKET_BITS ? surplus : MOST_BUCKET_BITS;
  const uint64_t buckets = UINT64_C(1) << dealt;
  uint64_t next[1 << MOST_BUCKET_BITS] = {0};
  for (uint64_t i = 0; i < job->n; i++)
    next[bucket_of(entry_of(job, numbers, i), dealt)]++;
  uint64_t sum = 0;
  for (uint64_t bucket = 0; bucket < buckets; bucket++) {
    const uint64_t count = next[bucket];
    next[bucket] = sum;
    sum += count;
  }
  for (uint64_t i = 0; i < job->n; i++) {
    const uint64_t entry = entry_of(job, numbers, i);
    room[next[bucket_of(entry, dealt)]++] = entry;
  }
  uint64_t start = 0;
  for (uint64_t bucket = 0; bucket < buckets; start = next[bucket++])
    sort_bucket(room + start, (uint64_t *)numbers + start, (uint32_t)(next[bucket] - start), dealt);
}

/* ---- equal keys ------------------------------------------------------------------------------ */

/* A run of equal keys that starts at sorted position t uses the words of subsequence t. */
static void shuffle_run(int64_t *run, uint64_t length, openreg_philox philox, uint64_t t) {
  stream words = stream_start(philox, t);
  for (uint64_t j = length - 1; j > 0; j--) {
    const uint64_t k = stream_word(&words) % (uint32_t)(j + 1);
    const int64_t value = run[j];
    run[j] = run[k];
    run[k] = value;
  }
}

/* Sorts by key, then by number: numbers arrive in ascending order, and insertion sort is stable. */
static void sort_by_whole_key(const job *job, const int64_t *drawn, int64_t *run, uint64_t length) {
  for (uint64_t i = 1; i < length; i++) {
    const int64_t moved = run[i];
    const uint64_t key = key_of(job, drawn, (uint64_t)moved);
    uint64_t j = i;
    for (; j > 0 && key_of(job, drawn, (uint64_t)run[j - 1]) > key; j--)
      run[j] = run[j - 1];
    run[j] = moved;
  }
}

/* Handles positions t, ..., end - 1, whose entries store the same bits of their keys. */
static void resolve_ties_by_whole_key(const job *job, const int64_t *drawn, int64_t *numbers,
                                      uint64_t t, uint64_t end, openreg_philox second) {
  sort_by_whole_key(job, drawn, numbers + t, end - t);
  while (t < end) {
    const uint64_t key = key_of(job, drawn, (uint64_t)numbers[t]);
    uint64_t next = t + 1;
    while (next < end && key_of(job, drawn, (uint64_t)numbers[next]) == key)
      next++;
    if (next - t > 1)
      shuffle_run(numbers + t, next - t, second, t);
    t = next;
  }
}

/* Replaces sorted entries by numbers, and shuffles runs of equal keys. If entries do not store
 * whole keys, `drawn` has the keys of all numbers; else it is NULL. */
static void resolve_ties(const job *job, int64_t *entries, const int64_t *drawn,
                         openreg_philox second) {
  const uint64_t mask = number_mask(job);
  for (uint64_t t = 0, end = 0; t < job->n; t = end) {
    const uint64_t shown = (uint64_t)entries[t] & ~mask;
    for (; end < job->n && ((uint64_t)entries[end] & ~mask) == shown; end++)
      entries[end] &= (int64_t)mask;
    if (end - t > 1 && drawn)
      resolve_ties_by_whole_key(job, drawn, entries, t, end, second);
    else if (end - t > 1)
      shuffle_run(entries + t, end - t, second, t);
  }
}

bool openreg_randperm_with_key_bits(int most_bits, int64_t *output, uint64_t n,
                                    openreg_philox philox, openreg_grid grid) {
  if (n == 0)
    return true;
  if (n > SIZE_MAX / sizeof *output)
    return false;
  uint64_t *room = malloc(n * sizeof *room);
  if (!room)
    return false;
  job job = {.n = n, .key_bits = key_bits(n), .philox = philox, .grid = grid};
  job.stored_bits = 64 - bits_of(n - 1);
  job.stored_bits = job.stored_bits < most_bits ? job.stored_bits : most_bits;
  const bool shows_whole_keys = job.stored_bits >= job.key_bits;
  fill_keys(&job, output);
  sort_entries(&job, output, room);
  if (!shows_whole_keys)
    fill_keys(&job, (int64_t *)room);
  const openreg_philox second = {philox.seed, philox.offset + key_words(n, grid)};
  resolve_ties(&job, output, shows_whole_keys ? NULL : (const int64_t *)room, second);
  free(room);
  return true;
}

bool openreg_randperm(int64_t *output, uint64_t n, openreg_philox philox, openreg_grid grid) {
  return openreg_randperm_with_key_bits(64, output, n, philox, grid);
}
