/* Status codes and each thread's last failure. */
#include "base/environment.h"
#include "child.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void every_status_has_a_name_and_a_message(void **state) {
  (void)state;
#define X(name, message)                                                                           \
  assert_string_equal(openreg_status_name(OPENREG_##name), #name);                                 \
  assert_string_equal(openreg_status_message(OPENREG_##name), message);
  OPENREG_STATUS_LIST(X)
#undef X
  assert_int_equal(OPENREG_OK, 0);
}

static void a_number_that_is_no_status_is_called_unknown(void **state) {
  (void)state;
  assert_string_equal(openreg_status_name((openreg_status)1000), "UNKNOWN");
  assert_string_equal(openreg_status_message((openreg_status)-1), "unknown status");
}

static void a_failure_is_recorded_and_returned(void **state) {
  (void)state;
  assert_int_equal(openreg_fail(OPENREG_SYSTEM, "openreg: %s of %d", "page", 7), OPENREG_SYSTEM);
  assert_string_equal(openreg_last_error(), "openreg: page of 7");
}

static const char *no_variables(const char *name) {
  (void)name;
  return NULL;
}

static void success_does_not_change_the_message(void **state) {
  (void)state;
  bool on;
  openreg_fail(OPENREG_SYSTEM, "kept");
  assert_int_equal(openreg_environment_switch(no_variables, "OPENREG_DEBUG_MEMORY", &on),
                   OPENREG_OK);
  assert_string_equal(openreg_last_error(), "kept");
}

static void a_message_may_contain_the_previous_one(void **state) {
  (void)state;
  openreg_fail(OPENREG_SYSTEM, "inner");
  openreg_fail(OPENREG_SYSTEM, "outer: %s", openreg_last_error());
  assert_string_equal(openreg_last_error(), "outer: inner");
}

static void a_long_message_is_truncated(void **state) {
  (void)state;
  char long_text[5000];
  memset(long_text, 'x', sizeof long_text - 1);
  long_text[sizeof long_text - 1] = '\0';
  openreg_fail(OPENREG_SYSTEM, "%s", long_text);
  size_t length = strlen(openreg_last_error());
  assert_in_range(length, 500, sizeof long_text - 2);
  assert_memory_equal(openreg_last_error(), long_text, length);
}

static void *fail_in_thread(void *before) {
  strcpy(before, openreg_last_error());
  openreg_fail(OPENREG_SYSTEM, "of the thread");
  return NULL;
}

static void each_thread_has_its_own_message(void **state) {
  (void)state;
  char before[5000] = "not written";
  pthread_t thread;
  openreg_fail(OPENREG_SYSTEM, "of main");
  assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, before), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_string_equal(before, "");
  assert_string_equal(openreg_last_error(), "of main");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_status_has_a_name_and_a_message),
      cmocka_unit_test(a_number_that_is_no_status_is_called_unknown),
      cmocka_unit_test(a_failure_is_recorded_and_returned),
      cmocka_unit_test(success_does_not_change_the_message),
      cmocka_unit_test(a_message_may_contain_the_previous_one),
      cmocka_unit_test(a_long_message_is_truncated),
      cmocka_unit_test(each_thread_has_its_own_message),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
