/* randperm.c: random permutations: 0 ... n-1 sorted by random keys, then ties shuffled.
 *
 * Keys have just so many bits that ties are rare; a tie keeps the order of the numbers, which would
 * be a bias, so every run of equal keys is shuffled by draws of a second request.
 *
 * What is sorted are 64-bit entries: the number in the lower bits, above it as many of the key's
 * upper bits as there is room for. Entries are different, so no sort needs to be stable. Up to 2^20
 * numbers the whole key has room; beyond, a few entries agree in what they show of their keys, and
 * the keys are drawn once more to put those in order.
 *
 * The sort uses that keys are uniform. Entries are dealt by their uppermost bits to buckets that
 * fit in a second-level cache. In a bucket, a radix sort of nearly so many bits as it takes to tell
 * its entries apart leaves each, on average, a place or two from where it belongs, and one
 * insertion sort finishes in linear expected time. Keys are not an adversary's: they come from
 * Philox alone.
 */
#include "generator/distributions/randperm.h"

#include "generator/word_stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  SMALL_KEY_BITS = 32,      /* up to here keys are int32, else int64 */
  MOST_BUCKET_BITS = 11,    /* 2048 streams of writing, whose pages processors can keep in mind */
  BUCKET_ENTRIES_BITS = 13, /* 64 KiB a bucket, while MOST_BUCKET_BITS allows */
  DIGIT_BITS = 12           /* 16 KiB of counters */
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

static int bits_of(uint64_t number) {
  return number ? 64 - __builtin_clzll(number) : 0;
}

/* What the steps of one permutation have in common. */
typedef struct job {
  uint64_t n;
  int key_bits, shown_bits; /* of a key, in its entry */
  openreg_philox philox;
  openreg_grid grid;
} job;

static bool has_small_keys(const job *job) {
  return job->key_bits <= SMALL_KEY_BITS;
}

/* Into `drawn`, as int32 or int64. */
static void draw_keys(const job *job, int64_t *drawn) {
  const int64_t size = (int64_t)job->n, stride = 1;
  const openreg_output keys = key_output(drawn, &size, &stride);
  openreg_random(&keys, openreg_whole, job->philox, job->grid, OPENREG_RANDOM_FROM_TO,
                 key_range(&keys), has_small_keys(job) ? INT32_MIN : INT64_MIN);
}

/* The key of number i, its uppermost bit at the top. Masked keys are unsigned; those of all the
 * bits of their type are compared as signed numbers, which is the same after the sign bit has been
 * turned around. */
static uint64_t key_of(const job *job, const int64_t *drawn, uint64_t i) {
  const uint64_t key =
      has_small_keys(job) ? (uint64_t)((const int32_t *)drawn)[i] : (uint64_t)drawn[i];
  const bool is_signed = job->key_bits == SMALL_KEY_BITS || job->key_bits == 64;
  return (key << (64 - job->key_bits)) ^ (uint64_t)is_signed << 63;
}

/* The bits of an entry that are the number's. */
static uint64_t number_mask(const job *job) {
  return job->shown_bits < 64 ? UINT64_MAX >> job->shown_bits : 0;
}

static uint64_t entry_of(const job *job, const int64_t *drawn, uint64_t i) {
  return (key_of(job, drawn, i) & ~number_mask(job)) | i;
}

/* ---- sorting --------------------------------------------------------------------------------- */

/* One pass by the `bits` that start at bit `shift`; it keeps the order of what agrees in them. */
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
  const int telling = bits_of(n) > 2 ? bits_of(n) - 2 : 0; /* 2 to 4 entries a value */
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

/* In two steps, for `dealt` bits may be none. */
static uint64_t bucket_of(uint64_t entry, int dealt) {
  return entry >> (63 - dealt) >> 1;
}

/* Turns the keys in `numbers` into sorted entries there. `room` has n places. */
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

/* A run of equal keys that starts at sorted position t draws word after word of subsequence t. */
static void shuffle_run(int64_t *run, uint64_t length, openreg_philox philox, uint64_t t) {
  stream words = stream_start(philox, t);
  for (uint64_t j = length - 1; j > 0; j--) {
    const uint64_t k = stream_word(&words) % (uint32_t)(j + 1);
    const int64_t value = run[j];
    run[j] = run[k];
    run[k] = value;
  }
}

/* By key, then number: numbers come in ascending order, and insertion keeps it. */
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

/* Numbers at places t, ..., end - 1, whose entries showed the same bits of their keys. */
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

/* Turns sorted entries into numbers, shuffling runs of equal keys. Where entries do not show whole
 * keys, `drawn` has the keys of all numbers; else it is NULL. */
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

bool openreg_randperm_showing(int most_bits, int64_t *output, uint64_t n, openreg_philox philox,
                              openreg_grid grid) {
  if (n == 0)
    return true;
  if (n > SIZE_MAX / sizeof *output)
    return false;
  uint64_t *room = malloc(n * sizeof *room);
  if (!room)
    return false;
  job job = {.n = n, .key_bits = key_bits(n), .philox = philox, .grid = grid};
  job.shown_bits = 64 - bits_of(n - 1);
  job.shown_bits = job.shown_bits < most_bits ? job.shown_bits : most_bits;
  const bool shows_whole_keys = job.shown_bits >= job.key_bits;
  draw_keys(&job, output);
  sort_entries(&job, output, room);
  if (!shows_whole_keys)
    draw_keys(&job, (int64_t *)room);
  const openreg_philox second = {philox.seed, philox.offset + key_words(n, grid)};
  resolve_ties(&job, output, shows_whole_keys ? NULL : (const int64_t *)room, second);
  free(room);
  return true;
}

bool openreg_randperm(int64_t *output, uint64_t n, openreg_philox philox, openreg_grid grid) {
  return openreg_randperm_showing(64, output, n, philox, grid);
}
