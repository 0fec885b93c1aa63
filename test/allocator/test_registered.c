/* test_registered.c: host memory that the program registers as pinned. */
#include "support.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char bytes[1000];

static void add(size_t offset, size_t count, openreg_status expected) {
  const openreg_host_range range = {bytes + offset, count, 7};
  assert_int_equal(openreg_host_register(&range), expected);
}

static void registered_memory_is_pinned(void **state) {
  (void)state;
  openreg_host_range found;
  add(100, 200, OPENREG_OK);
  assert_true(openreg_host_find(bytes + 299, &found));
  assert_ptr_equal(found.address, bytes + 100);
  assert_int_equal(found.bytes, 200);
  assert_int_equal(found.flags, 7);
  assert_true(openreg_pinned_contains(bytes + 100));
  assert_false(openreg_pinned_contains(bytes + 99));
  assert_false(openreg_pinned_contains(bytes + 300));
  assert_int_equal(openreg_host_unregister(bytes + 100), OPENREG_OK);
  assert_false(openreg_pinned_contains(bytes + 100));
}

static void ranges_must_not_overlap(void **state) {
  (void)state;
  add(100, 200, OPENREG_OK);
  add(0, 101, OPENREG_NOT_PERMITTED);
  add(299, 1, OPENREG_NOT_PERMITTED);
  add(50, 500, OPENREG_NOT_PERMITTED);
  add(0, 100, OPENREG_OK);
  add(300, 1, OPENREG_OK);
  for (size_t i = 0; i < 4; i += i == 0 ? 1 : 2)
    assert_int_equal(openreg_host_unregister(bytes + 100 * i), OPENREG_OK);
}

static void wrong_ranges_are_refused(void **state) {
  (void)state;
  const openreg_host_range nowhere = {NULL, 1, 0}, empty = {bytes, 0, 0},
                           endless = {bytes, SIZE_MAX, 0};
  assert_int_equal(openreg_host_register(NULL), OPENREG_INVALID_ARGUMENT);
  assert_int_equal(openreg_host_register(&nowhere), OPENREG_INVALID_ARGUMENT);
  assert_int_equal(openreg_host_register(&empty), OPENREG_INVALID_ARGUMENT);
  assert_int_equal(openreg_host_register(&endless), OPENREG_INVALID_ARGUMENT);
  add(100, 200, OPENREG_OK);
  assert_int_equal(openreg_host_unregister(bytes + 101), OPENREG_INVALID_ARGUMENT);
  assert_int_equal(openreg_host_unregister(bytes), OPENREG_INVALID_ARGUMENT);
  assert_int_equal(openreg_host_unregister(bytes + 100), OPENREG_OK);
}

static void a_forked_child_has_its_own_copy(void **state) {
  (void)state;
  int status;
  add(0, 10, OPENREG_OK);
  pid_t child = fork();
  if (child == 0)
    _exit(!(openreg_pinned_contains(bytes) && openreg_host_unregister(bytes) == OPENREG_OK));
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(openreg_host_unregister(bytes), OPENREG_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(registered_memory_is_pinned),
      cmocka_unit_test(ranges_must_not_overlap),
      cmocka_unit_test(wrong_ranges_are_refused),
      cmocka_unit_test(a_forked_child_has_its_own_copy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
