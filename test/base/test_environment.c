/* Reads environment variables: values, switches, digits and sizes. */
#include "base/environment.h"
#include "child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *pretended; /* value of every variable */

static const char *pretend_getenv(const char *name) {
  (void)name;
  return pretended;
}

static openreg_span span_of(const char *text) {
  return (openreg_span){text, strlen(text)};
}

/* ---- values ---------------------------------------------------------------------------------- */

static void a_value_is_what_the_lookup_gives(void **state) {
  (void)state;
  pretended = "8G";
  assert_string_equal(openreg_environment_value(pretend_getenv, "OPENREG_DEVICE_MEMORY"), "8G");
}

static void a_variable_that_is_empty_or_missing_has_no_value(void **state) {
  (void)state;
  pretended = "";
  assert_null(openreg_environment_value(pretend_getenv, "OPENREG_GROUP"));
  pretended = NULL;
  assert_null(openreg_environment_value(pretend_getenv, "OPENREG_GROUP"));
}

static void without_a_lookup_values_are_those_of_the_process(void **state) {
  (void)state;
  assert_int_equal(setenv("OPENREG_TEST_VALUE", "here", 1), 0);
  assert_string_equal(openreg_environment_value(NULL, "OPENREG_TEST_VALUE"), "here");
  assert_int_equal(unsetenv("OPENREG_TEST_VALUE"), 0);
  assert_null(openreg_environment_value(NULL, "OPENREG_TEST_VALUE"));
}

static void a_rejected_value_is_named_with_what_is_allowed(void **state) {
  (void)state;
  assert_int_equal(openreg_environment_reject("OPENREG_DEVICE_COUNT", "0", "1 to %d", 64),
                   OPENREG_INVALID_CONFIGURATION);
  assert_string_equal(openreg_last_error(), "openreg: OPENREG_DEVICE_COUNT=0: expected 1 to 64");
}

static void messages_show_a_hundred_characters_of_a_long_value(void **state) {
  (void)state;
  char value[301] = "", expected[256];
  memset(value, 'x', sizeof value - 1);
  snprintf(expected, sizeof expected, "openreg: OPENREG_GROUP=%.100s: expected less", value);
  (void)openreg_environment_reject("OPENREG_GROUP", value, "less");
  assert_string_equal(openreg_last_error(), expected);
}

/* ---- switches -------------------------------------------------------------------------------- */

static void a_switch_is_0_or_1(void **state) {
  (void)state;
  bool on = false;
  pretended = "1";
  assert_int_equal(openreg_environment_switch(pretend_getenv, "OPENREG_HOST_ACCESS", &on),
                   OPENREG_OK);
  assert_true(on);
  pretended = "0";
  assert_int_equal(openreg_environment_switch(pretend_getenv, "OPENREG_HOST_ACCESS", &on),
                   OPENREG_OK);
  assert_false(on);
}

static void a_switch_that_is_not_set_is_left_as_it_is(void **state) {
  (void)state;
  bool on = true;
  pretended = NULL;
  assert_int_equal(openreg_environment_switch(pretend_getenv, "OPENREG_HOST_ACCESS", &on),
                   OPENREG_OK);
  assert_true(on);
}

static void a_switch_that_is_anything_else_is_rejected(void **state) {
  (void)state;
  static const char *const values[] = {"yes", "true", "2", "01", "1 ", "-1"};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    bool on = true;
    char expected[128] = "openreg: OPENREG_HOST_ACCESS=";
    pretended = values[i];
    strcat(strcat(expected, values[i]), ": expected 0 or 1");
    assert_int_equal(openreg_environment_switch(pretend_getenv, "OPENREG_HOST_ACCESS", &on),
                     OPENREG_INVALID_CONFIGURATION);
    assert_string_equal(openreg_last_error(), expected);
    assert_true(on);
  }
}

/* ---- parsing values -------------------------------------------------------------------------- */

static void digits_are_read_from_the_front(void **state) {
  (void)state;
  uint64_t number = 0;
  assert_int_equal(openreg_parse_digits(span_of("1230x"), &number), 4);
  assert_int_equal(number, 1230);
  assert_int_equal(openreg_parse_digits((openreg_span){"1230", 2}, &number), 2);
  assert_int_equal(number, 12);
  assert_int_equal(openreg_parse_digits(span_of("18446744073709551615"), &number), 20);
  assert_true(number == UINT64_MAX);
}

static void malformed_and_overflowing_numbers_are_rejected(void **state) {
  (void)state;
  static const char *const texts[] = {"", "x1", "-1", "+1", " 1", "18446744073709551616"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    uint64_t number;
    assert_int_equal(openreg_parse_digits(span_of(texts[i]), &number), 0);
  }
}

static void a_size_is_a_number_with_a_binary_unit(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint64_t bytes;
  } sizes[] = {
      {"0", 0},
      {"100", 100},
      {"100B", 100},
      {"3b", 3},
      {"2K", 2048},
      {"2k", 2048},
      {"2KB", 2048},
      {"2kib", 2048},
      {"64KiB", 65536},
      {"512M", 512ull << 20},
      {"8G", 8ull << 30},
      {"8GiB", 8ull << 30},
      {"64T", 64ull << 40},
  };
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    uint64_t bytes = 7;
    assert_true(openreg_parse_bytes(span_of(sizes[i].text), UINT64_MAX, &bytes));
    assert_true(bytes == sizes[i].bytes);
  }
}

static void malformed_sizes_are_rejected(void **state) {
  (void)state;
  static const char *const texts[] = {
      "",    "G",   "8X",   "8GG",  "8iB",   "8BB", "8 G",  " 8G",
      "-8G", "8G,", "8.5G", "0x8G", "8KiBB", "8Ki", "8Gb.", "18446744073709551616"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    uint64_t bytes = 7;
    assert_false(openreg_parse_bytes(span_of(texts[i]), UINT64_MAX, &bytes));
    assert_int_equal(bytes, 7);
  }
}

static void a_size_above_the_limit_is_refused_also_where_it_would_wrap_around(void **state) {
  (void)state;
  uint64_t bytes = 7;
  assert_true(openreg_parse_bytes(span_of("1K"), 1024, &bytes));
  assert_int_equal(bytes, 1024);
  bytes = 7;
  assert_false(openreg_parse_bytes(span_of("1K"), 1023, &bytes));
  assert_false(openreg_parse_bytes(span_of("1025"), 1024, &bytes));
  assert_false(openreg_parse_bytes(span_of("16777216T"), UINT64_MAX, &bytes)); /* 2^64 */
  assert_false(openreg_parse_bytes(span_of("18446744073709551615T"), UINT64_MAX, &bytes));
  assert_int_equal(bytes, 7);
}

static void only_the_span_is_read(void **state) {
  (void)state;
  uint64_t bytes;
  assert_true(openreg_parse_bytes((openreg_span){"8G,4G", 2}, UINT64_MAX, &bytes));
  assert_true(bytes == 8ull << 30);
  assert_true(openreg_parse_bytes((openreg_span){"8GiB", 1}, UINT64_MAX, &bytes));
  assert_int_equal(bytes, 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_value_is_what_the_lookup_gives),
      cmocka_unit_test(a_variable_that_is_empty_or_missing_has_no_value),
      cmocka_unit_test(without_a_lookup_values_are_those_of_the_process),
      cmocka_unit_test(a_rejected_value_is_named_with_what_is_allowed),
      cmocka_unit_test(messages_show_a_hundred_characters_of_a_long_value),
      cmocka_unit_test(a_switch_is_0_or_1),
      cmocka_unit_test(a_switch_that_is_not_set_is_left_as_it_is),
      cmocka_unit_test(a_switch_that_is_anything_else_is_rejected),
      cmocka_unit_test(digits_are_read_from_the_front),
      cmocka_unit_test(malformed_and_overflowing_numbers_are_rejected),
      cmocka_unit_test(a_size_is_a_number_with_a_binary_unit),
      cmocka_unit_test(malformed_sizes_are_rejected),
      cmocka_unit_test(a_size_above_the_limit_is_refused_also_where_it_would_wrap_around),
      cmocka_unit_test(only_the_span_is_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
