/* test_update_scale.c: growth, backoff and the limits of the loss scale. */
#include "check.h"

#include <float.h>
#include <math.h>

#include "amp/amp.h"

typedef struct scaler {
  float scale;
  int32_t tracker;
} scaler;

/* One step with the default factors of torch.amp.GradScaler. */
static scaler step(scaler before, float found_inf, int growth_interval) {
  openreg_amp_update_scale(&before.scale, &before.tracker, found_inf, 2.0, 0.5, growth_interval);
  return before;
}

static void assert_scaler(scaler actual, float scale, int32_t tracker) {
  assert_true(actual.scale == scale);
  assert_int_equal(actual.tracker, tracker);
}

static void a_good_step_is_counted(void **state) {
  (void)state;
  assert_scaler(step((scaler){65536, 0}, 0, 2000), 65536, 1);
  assert_scaler(step((scaler){65536, 1997}, 0, 2000), 65536, 1998);
}

static void the_scale_grows_when_the_interval_is_reached(void **state) {
  (void)state;
  assert_scaler(step((scaler){65536, 1999}, 0, 2000), 131072, 0);
}

static void an_interval_of_one_grows_with_each_good_step(void **state) {
  (void)state;
  assert_scaler(step(step((scaler){4, 0}, 0, 1), 0, 1), 16, 0);
}

static void an_overflow_backs_off_and_resets_the_tracker(void **state) {
  (void)state;
  assert_scaler(step((scaler){65536, 7}, 1, 2000), 32768, 0);
}

static void an_overflow_on_the_step_that_would_grow_backs_off(void **state) {
  (void)state;
  assert_scaler(step((scaler){65536, 1999}, 1, 2000), 32768, 0);
}

static void every_value_but_zero_counts_as_found(void **state) {
  (void)state;
  assert_scaler(step((scaler){8, 3}, 2, 2000), 4, 0);
  assert_scaler(step((scaler){8, 3}, NAN, 2000), 4, 0);
  assert_scaler(step((scaler){8, 3}, -0.0f, 2000), 8, 4);
}

static void growth_beyond_float_keeps_the_scale_and_resets_the_tracker(void **state) {
  (void)state;
  assert_scaler(step((scaler){0x1p127f, 1999}, 0, 2000), 0x1p127f, 0);
  assert_scaler(step((scaler){FLT_MAX, 1999}, 0, 2000), FLT_MAX, 0);
}

static void growth_up_to_the_largest_float_is_taken(void **state) {
  (void)state;
  assert_scaler(step((scaler){FLT_MAX / 2, 1999}, 0, 2000), FLT_MAX, 0);
}

static void backoff_reaches_subnormals_and_zero(void **state) {
  (void)state;
  assert_scaler(step((scaler){0x1p-148f, 0}, 1, 2000), 0x1p-149f, 0);
  assert_scaler(step((scaler){0x1p-149f, 0}, 1, 2000), 0, 0);
}

/* 3 * 1.1 in float arithmetic is 3.3000002f; in double, rounded once, it is 3.3f. */
static void factors_keep_their_double_precision(void **state) {
  (void)state;
  scaler grown = {3, 0}, backed_off = {3, 0};
  openreg_amp_update_scale(&grown.scale, &grown.tracker, 0, 1.1, 0.7, 1);
  assert_scaler(grown, (float)(3 * 1.1), 0);
  assert_true(grown.scale != 3 * 1.1f);
  openreg_amp_update_scale(&backed_off.scale, &backed_off.tracker, 1, 1.1, 0.7, 1);
  assert_scaler(backed_off, (float)(3 * 0.7), 0);
}

static void a_tracker_past_the_interval_continues_to_count(void **state) {
  (void)state;
  assert_scaler(step((scaler){8, 2000}, 0, 2000), 8, 2001);
}

static void the_largest_interval_is_reached_without_overflow(void **state) {
  (void)state;
  assert_scaler(step((scaler){8, INT32_MAX - 1}, 0, INT32_MAX), 16, 0);
  assert_scaler(step((scaler){8, INT32_MAX}, 0, INT32_MAX), 8, INT32_MIN);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_good_step_is_counted),
      cmocka_unit_test(the_scale_grows_when_the_interval_is_reached),
      cmocka_unit_test(an_interval_of_one_grows_with_each_good_step),
      cmocka_unit_test(an_overflow_backs_off_and_resets_the_tracker),
      cmocka_unit_test(an_overflow_on_the_step_that_would_grow_backs_off),
      cmocka_unit_test(every_value_but_zero_counts_as_found),
      cmocka_unit_test(growth_beyond_float_keeps_the_scale_and_resets_the_tracker),
      cmocka_unit_test(growth_up_to_the_largest_float_is_taken),
      cmocka_unit_test(backoff_reaches_subnormals_and_zero),
      cmocka_unit_test(factors_keep_their_double_precision),
      cmocka_unit_test(a_tracker_past_the_interval_continues_to_count),
      cmocka_unit_test(the_largest_interval_is_reached_without_overflow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
