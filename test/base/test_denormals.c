/* test_denormals.c: the denormal mode of a thread, and what does not depend on it. */
#include "base/denormals.h"
#include "base/half.h"
#include "child.h"

#include <float.h>
#include <pthread.h>

/* The compiler must not compute at build time, nor move the product over a change of the mode. */
static float half_of_the_smallest(void) {
  volatile float smallest = FLT_MIN;
  volatile float result = smallest * 0.5f;
  return result;
}

static void results_are_flushed_while_the_mode_is_set(void **state) {
  (void)state;
  assert_int_equal(openreg_denormal_mode(), 0);
  assert_true(half_of_the_smallest() == FLT_MIN / 2);
  openreg_set_denormal_mode(OPENREG_FLUSH_DENORMALS);
  unsigned mode = openreg_denormal_mode();
  float flushed = half_of_the_smallest();
  openreg_set_denormal_mode(0);
  assert_int_equal(mode, OPENREG_FLUSH_DENORMALS);
  assert_true(OPENREG_FLUSH_DENORMALS == 0 || flushed == 0);
  assert_int_equal(openreg_denormal_mode(), 0);
  assert_true(half_of_the_smallest() == FLT_MIN / 2);
}

static void *get_mode(void *mode) {
  openreg_set_denormal_mode(0);
  *(unsigned *)mode = openreg_denormal_mode();
  return NULL;
}

static void each_thread_has_its_own_mode(void **state) {
  (void)state;
  unsigned other = 1;
  pthread_t thread;
  openreg_set_denormal_mode(OPENREG_FLUSH_DENORMALS);
  assert_int_equal(pthread_create(&thread, NULL, get_mode, &other), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  unsigned own = openreg_denormal_mode();
  openreg_set_denormal_mode(0);
  assert_int_equal(other, 0);
  assert_int_equal(own, OPENREG_FLUSH_DENORMALS);
}

/* half.h promises it. The floats are those around each half that is a denormal number. */
static void conversions_of_halves_do_not_depend_on_the_mode(void **state) {
  (void)state;
  enum { HALVES = 1 << 16, STEP = 1 << 14 };
  static uint32_t widened[HALVES];
  static uint16_t narrowed[HALVES];
  for (uint32_t i = 0; i < HALVES; i++) {
    widened[i] = float_bits(float_of_half((uint16_t)i));
    narrowed[i] = half_of_float(float_of_bits(i * STEP));
  }
  uint32_t differences = 0;
  openreg_set_denormal_mode(OPENREG_FLUSH_DENORMALS);
  for (uint32_t i = 0; i < HALVES; i++) {
    differences += widened[i] != float_bits(float_of_half((uint16_t)i));
    differences += narrowed[i] != half_of_float(float_of_bits(i * STEP));
  }
  openreg_set_denormal_mode(0);
  assert_int_equal(differences, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(results_are_flushed_while_the_mode_is_set),
      cmocka_unit_test(each_thread_has_its_own_mode),
      cmocka_unit_test(conversions_of_halves_do_not_depend_on_the_mode),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
