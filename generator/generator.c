/* generator.c: the generator object, which holds the position where the next operator starts.
 *
 * A generator is a seed and an offset that are read and advanced together under a mutex. The mutex
 * is held for a few instructions, and never while other functions are called. Two operators that
 * take words at the same time get disjoint ranges, in either order. The offset is always a multiple
 * of 4: every operator starts at a whole Philox block.
 */
#include "generator/generator.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct openreg_generator {
  pthread_mutex_t mutex;
  openreg_philox philox; /* offset % 4 == 0 */
};

static bool is_whole_block(uint64_t offset) {
  return offset % 4 == 0;
}

/* Wraps to 0 beyond 2^64 - 4, as offsets do. */
static uint64_t round_up_to_blocks(uint64_t words) {
  return (words / 4 + (words % 4 != 0)) * 4;
}

openreg_generator *openreg_generator_create(void) {
  openreg_generator *generator = malloc(sizeof *generator);
  if (!generator)
    return NULL;
  if (pthread_mutex_init(&generator->mutex, NULL)) {
    free(generator);
    return NULL;
  }
  generator->philox = (openreg_philox){OPENREG_GENERATOR_DEFAULT_SEED, 0};
  return generator;
}

void openreg_generator_destroy(openreg_generator *generator) {
  if (!generator)
    return;
  pthread_mutex_destroy(&generator->mutex);
  free(generator);
}

openreg_philox openreg_generator_get(openreg_generator *generator) {
  pthread_mutex_lock(&generator->mutex);
  openreg_philox philox = generator->philox;
  pthread_mutex_unlock(&generator->mutex);
  return philox;
}

bool openreg_generator_set(openreg_generator *generator, openreg_philox philox) {
  if (!is_whole_block(philox.offset))
    return false;
  pthread_mutex_lock(&generator->mutex);
  generator->philox = philox;
  pthread_mutex_unlock(&generator->mutex);
  return true;
}

void openreg_generator_seed(openreg_generator *generator, uint64_t seed) {
  openreg_generator_set(generator, (openreg_philox){seed, 0});
}

openreg_philox openreg_generator_take(openreg_generator *generator, uint64_t increment) {
  pthread_mutex_lock(&generator->mutex);
  openreg_philox before = generator->philox;
  generator->philox.offset += round_up_to_blocks(increment);
  pthread_mutex_unlock(&generator->mutex);
  return before;
}

/* Hashes the system's random bytes with the time and the process. If the system (a sandbox) refuses
 * the bytes, they are zeros, and the rest still differs between calls. */
uint64_t openreg_generator_entropy(void) {
  uint32_t counter[4] = {0};
  (void)!getentropy(counter, sizeof counter);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const uint32_t key[2] = {(uint32_t)now.tv_nsec ^ (uint32_t)getpid(), (uint32_t)now.tv_sec};
  uint32_t words[4];
  openreg_philox4x32_10(counter, key, words);
  uint64_t entropy = (uint64_t)words[1] << 32 | words[0];
  return entropy & ((UINT64_C(1) << 53) - 1);
}

static void store_little_endian(uint64_t value, uint8_t bytes[8]) {
  for (int i = 0; i < 8; i++)
    bytes[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t load_little_endian(const uint8_t bytes[8]) {
  uint64_t value = 0;
  for (int i = 0; i < 8; i++)
    value |= (uint64_t)bytes[i] << (8 * i);
  return value;
}

void openreg_generator_get_state(openreg_generator *generator, uint8_t state[16]) {
  openreg_philox philox = openreg_generator_get(generator);
  store_little_endian(philox.seed, state);
  store_little_endian(philox.offset, state + 8);
}

bool openreg_generator_set_state(openreg_generator *generator, const uint8_t *state, size_t bytes) {
  if (bytes != 8 && bytes != OPENREG_GENERATOR_STATE_BYTES)
    return false;
  openreg_philox philox = {load_little_endian(state), 0};
  if (bytes == OPENREG_GENERATOR_STATE_BYTES)
    philox.offset = load_little_endian(state + 8);
  return openreg_generator_set(generator, philox);
}
