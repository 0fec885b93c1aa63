/* test_generator.c: the generator object: seeds, offsets, state, threads. */
#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int create(void **state) {
  *state = openreg_generator_create();
  return *state ? 0 : -1;
}

static int destroy(void **state) {
  openreg_generator_destroy(*state);
  return 0;
}

static void assert_at(openreg_generator *generator, uint64_t seed, uint64_t offset) {
  openreg_philox philox = openreg_generator_get(generator);
  assert_true(philox.seed == seed);
  assert_true(philox.offset == offset);
}

static void new_generator_has_the_default_seed(void **state) {
  assert_at(*state, UINT64_C(67280421310721), 0);
}

static void seeding_resets_the_offset(void **state) {
  openreg_generator_take(*state, 8);
  openreg_generator_seed(*state, UINT64_MAX);
  assert_at(*state, UINT64_MAX, 0);
}

static void take_rounds_up_to_whole_blocks(void **state) {
  const uint64_t increments[] = {1, 4, 5, 10, 42}, advances[] = {4, 4, 8, 12, 44};
  uint64_t offset = 0;
  openreg_generator_seed(*state, 1);
  for (size_t i = 0; i < LENGTH(increments); i++) {
    openreg_philox before = openreg_generator_take(*state, increments[i]);
    assert_true(before.seed == 1 && before.offset == offset);
    offset += advances[i];
    assert_at(*state, 1, offset);
  }
}

static void taking_zero_words_changes_nothing(void **state) {
  openreg_generator_set(*state, (openreg_philox){3, 12});
  openreg_philox before = openreg_generator_take(*state, 0);
  assert_true(before.seed == 3 && before.offset == 12);
  assert_at(*state, 3, 12);
}

static void offset_wraps_around(void **state) {
  openreg_generator_set(*state, (openreg_philox){3, UINT64_MAX - 3});
  openreg_generator_take(*state, 8);
  assert_at(*state, 3, 4);
}

static void set_refuses_an_offset_inside_a_block(void **state) {
  openreg_generator_set(*state, (openreg_philox){5, 16});
  for (uint64_t offset = 1; offset < 4; offset++)
    assert_false(openreg_generator_set(*state, (openreg_philox){6, offset}));
  assert_at(*state, 5, 16);
  assert_true(openreg_generator_set(*state, (openreg_philox){6, 4}));
  assert_at(*state, 6, 4);
}

static void state_is_seed_and_offset_little_endian(void **state) {
  const uint8_t expected[16] = {8, 7, 6, 5, 4, 3, 2, 1, 0x10, 0x32, 0x54, 0x76, 0, 0, 0, 0x80};
  uint8_t bytes[16];
  memset(bytes, PATTERN, sizeof bytes);
  openreg_generator_set(
      *state, (openreg_philox){UINT64_C(0x0102030405060708), UINT64_C(0x8000000076543210)});
  openreg_generator_get_state(*state, bytes);
  assert_memory_equal(bytes, expected, sizeof bytes);
}

static void state_of_16_bytes_is_restored(void **state) {
  uint8_t bytes[16];
  openreg_generator_set(*state, (openreg_philox){UINT64_MAX - 1, 1024});
  openreg_generator_get_state(*state, bytes);
  openreg_generator_seed(*state, 0);
  assert_true(openreg_generator_set_state(*state, bytes, 16));
  assert_at(*state, UINT64_MAX - 1, 1024);
}

static void state_of_8_bytes_is_a_seed(void **state) {
  const uint8_t bytes[8] = {42, 1};
  openreg_generator_set(*state, (openreg_philox){7, 8});
  assert_true(openreg_generator_set_state(*state, bytes, 8));
  assert_at(*state, 298, 0);
}

static void state_of_another_length_is_refused(void **state) {
  const uint8_t bytes[24] = {1};
  openreg_generator_set(*state, (openreg_philox){7, 8});
  for (size_t length = 0; length <= sizeof bytes; length++) {
    if (length != 8 && length != 16)
      assert_false(openreg_generator_set_state(*state, bytes, length));
  }
  assert_at(*state, 7, 8);
}

static void state_with_an_offset_inside_a_block_is_refused(void **state) {
  const uint8_t bytes[16] = {1, 0, 0, 0, 0, 0, 0, 0, 6};
  openreg_generator_set(*state, (openreg_philox){7, 8});
  assert_false(openreg_generator_set_state(*state, bytes, 16));
  assert_at(*state, 7, 8);
}

/* Replaces malloc in everything that this test links (-Wl,--wrap). */
static bool memory_is_gone;
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes) {
  return memory_is_gone ? NULL : __real_malloc(bytes);
}

static void creation_without_memory_returns_null(void **state) {
  (void)state;
  memory_is_gone = true;
  openreg_generator *generator = openreg_generator_create();
  memory_is_gone = false;
  assert_null(generator);
}

static void destroying_null_is_allowed(void **state) {
  (void)state;
  openreg_generator_destroy(NULL);
}

static void entropy_differs_and_fits_a_double(void **state) {
  (void)state;
  uint64_t previous = openreg_generator_entropy();
  for (int i = 0; i < 100; i++) {
    uint64_t entropy = openreg_generator_entropy();
    assert_true(entropy < UINT64_C(1) << 53);
    assert_true(entropy != previous);
    previous = entropy;
  }
}

enum { THREADS = 8, TAKES = 20000 };

typedef struct range {
  uint64_t start, end;
} range;

typedef struct taker {
  openreg_generator *generator;
  pthread_barrier_t *barrier;
  uint64_t words;
  range ranges[TAKES];
} taker;

static void *take_many(void *context) {
  taker *taker = context;
  pthread_barrier_wait(taker->barrier);
  for (int i = 0; i < TAKES; i++) {
    uint64_t start = openreg_generator_take(taker->generator, taker->words).offset;
    taker->ranges[i] = (range){start, start + taker->words};
  }
  return NULL;
}

static int by_start(const void *a, const void *b) {
  uint64_t left = ((const range *)a)->start, right = ((const range *)b)->start;
  return (left > right) - (left < right);
}

static void concurrent_takes_are_disjoint_and_leave_no_gap(void **state) {
  static taker takers[THREADS];
  static range all[THREADS * TAKES];
  pthread_t threads[THREADS];
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, THREADS);
  openreg_generator_seed(*state, 0);
  for (int t = 0; t < THREADS; t++) {
    takers[t].generator = *state;
    takers[t].barrier = &barrier;
    takers[t].words = 4 * (uint64_t)(t + 1);
    assert_int_equal(pthread_create(&threads[t], NULL, take_many, &takers[t]), 0);
  }
  for (int t = 0; t < THREADS; t++) {
    pthread_join(threads[t], NULL);
    memcpy(all + t * TAKES, takers[t].ranges, sizeof takers[t].ranges);
  }
  pthread_barrier_destroy(&barrier);
  qsort(all, LENGTH(all), sizeof all[0], by_start);
  uint64_t end = 0;
  for (size_t i = 0; i < LENGTH(all); i++) {
    assert_true(all[i].start == end);
    end = all[i].end;
  }
  assert_at(*state, 0, end);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, create, destroy)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(new_generator_has_the_default_seed),
      TEST(seeding_resets_the_offset),
      TEST(take_rounds_up_to_whole_blocks),
      TEST(taking_zero_words_changes_nothing),
      TEST(offset_wraps_around),
      TEST(set_refuses_an_offset_inside_a_block),
      TEST(state_is_seed_and_offset_little_endian),
      TEST(state_of_16_bytes_is_restored),
      TEST(state_of_8_bytes_is_a_seed),
      TEST(state_of_another_length_is_refused),
      TEST(state_with_an_offset_inside_a_block_is_refused),
      TEST(concurrent_takes_are_disjoint_and_leave_no_gap),
      cmocka_unit_test(creation_without_memory_returns_null),
      cmocka_unit_test(destroying_null_is_allowed),
      cmocka_unit_test(entropy_differs_and_fits_a_double),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
