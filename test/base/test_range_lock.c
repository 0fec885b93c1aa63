/* Locks on ranges of a file: which exclude each other, how they are found and when they end. Also
 * reopening a file, which creates another lock owner.
 */
#define _GNU_SOURCE /* memfd_create */
#include "base/proc.h"
#include "base/range_lock.h"
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int one, other; /* two descriptions of one file */

static int open_both(void **state) {
  (void)state;
  one = memfd_create("range-lock", MFD_CLOEXEC);
  other = openreg_proc_reopen(one);
  return one >= 0 && other >= 0 ? 0 : -1;
}

static int close_both(void **state) {
  (void)state;
  return close(one) == 0 && (other < 0 || close(other) == 0) ? 0 : -1;
}

/* ---- exclusion ------------------------------------------------------------------------------- */

static void a_write_lock_excludes_others_only_from_its_range(void **state) {
  (void)state;
  assert_true(openreg_range_lock_try(one, F_WRLCK, 100, 10));
  assert_false(openreg_range_lock_try(other, F_WRLCK, 109, 1));
  assert_false(openreg_range_lock_try(other, F_RDLCK, 0, 101));
  assert_true(openreg_range_lock_try(other, F_WRLCK, 110, 10));
  assert_true(openreg_range_lock_try(other, F_WRLCK, 90, 10));
}

static void read_locks_are_shared_and_exclude_writers(void **state) {
  (void)state;
  assert_true(openreg_range_lock_try(one, F_RDLCK, 0, 10));
  assert_true(openreg_range_lock_try(other, F_RDLCK, 5, 10));
  assert_false(openreg_range_lock_try(other, F_WRLCK, 5, 10));
  assert_false(openreg_range_lock_try(one, F_WRLCK, 0, 10));
}

static void a_lock_can_be_converted_by_its_owner(void **state) {
  (void)state;
  assert_true(openreg_range_lock_try(one, F_RDLCK, 0, 10));
  assert_true(openreg_range_lock_try(one, F_WRLCK, 0, 10));
  assert_false(openreg_range_lock_try(other, F_RDLCK, 0, 10));
}

static void ranges_far_behind_the_end_of_the_file_can_be_locked(void **state) {
  (void)state;
  uint64_t far = (uint64_t)1 << 46;
  assert_true(openreg_range_lock_try(one, F_WRLCK, far, 1));
  assert_false(openreg_range_lock_try(other, F_WRLCK, far, 1));
  assert_true(openreg_range_lock_try(other, F_WRLCK, far + 1, 1));
}

/* ---- end of locks ---------------------------------------------------------------------------- */

static void a_part_of_a_range_can_be_released(void **state) {
  (void)state;
  assert_true(openreg_range_lock_try(one, F_WRLCK, 0, 30));
  openreg_range_lock_release(one, 10, 10);
  assert_true(openreg_range_lock_try(other, F_WRLCK, 10, 10));
  assert_false(openreg_range_lock_try(other, F_WRLCK, 9, 1));
  assert_false(openreg_range_lock_try(other, F_WRLCK, 20, 1));
}

static void locks_end_when_the_description_is_closed(void **state) {
  (void)state;
  assert_true(openreg_range_lock_try(other, F_WRLCK, 0, 10));
  assert_int_equal(close(other), 0);
  other = -1;
  assert_true(openreg_range_lock_try(one, F_WRLCK, 0, 10));
}

static void locks_end_with_a_killed_process(void **state) {
  (void)state;
  int ends[2], wait_status;
  char byte;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    int own = openreg_proc_reopen(one);
    bool locked = openreg_range_lock_try(own, F_WRLCK, 0, 10);
    (void)!write(ends[1], locked ? "y" : "n", 1);
    pause();
  }
  assert_int_equal(read(ends[0], &byte, 1), 1);
  assert_int_equal(byte, 'y');
  assert_false(openreg_range_lock_try(one, F_WRLCK, 0, 10));
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, &wait_status, 0), child);
  assert_true(openreg_range_lock_try(one, F_WRLCK, 0, 10));
  close(ends[0]);
  close(ends[1]);
}

/* ---- finding locks --------------------------------------------------------------------------- */

static void locks_of_others_are_found_within_the_range(void **state) {
  (void)state;
  uint64_t start = 0, bytes = 1000;
  assert_true(openreg_range_lock_try(other, F_RDLCK, 100, 50));
  assert_true(openreg_range_lock_find(one, &start, &bytes));
  assert_int_equal(start, 100);
  assert_int_equal(bytes, 50);
  start = 120;
  bytes = 10;
  assert_true(openreg_range_lock_find(one, &start, &bytes));
  assert_int_equal(start, 120);
  assert_int_equal(bytes, 10);
  start = 140;
  bytes = 100;
  assert_true(openreg_range_lock_find(one, &start, &bytes));
  assert_int_equal(start, 140);
  assert_int_equal(bytes, 10);
}

static void a_lock_to_the_end_of_the_file_is_found_within_the_range(void **state) {
  (void)state;
  uint64_t start = 0, bytes = 1000;
  assert_true(openreg_range_lock_try(other, F_WRLCK, 100, 0));
  assert_true(openreg_range_lock_find(one, &start, &bytes));
  assert_int_equal(start, 100);
  assert_int_equal(bytes, 900);
}

static void neither_free_ranges_nor_own_locks_are_found(void **state) {
  (void)state;
  uint64_t start = 10, bytes = 20;
  assert_false(openreg_range_lock_find(one, &start, &bytes));
  assert_true(openreg_range_lock_try(one, F_WRLCK, 0, 100));
  assert_false(openreg_range_lock_find(one, &start, &bytes));
  assert_int_equal(start, 10);
  assert_int_equal(bytes, 20);
}

/* ---- reopening ------------------------------------------------------------------------------- */

static void a_reopened_file_has_its_own_position(void **state) {
  (void)state;
  char text[4] = "";
  assert_int_equal(write(one, "abc", 3), 3);
  assert_int_equal(read(other, text, 3), 3);
  assert_string_equal(text, "abc");
  assert_true((fcntl(other, F_GETFD) & FD_CLOEXEC) != 0);
}

static void a_descriptor_that_is_not_open_cannot_be_opened_again(void **state) {
  (void)state;
  char path[OPENREG_PROC_PATH_BYTES];
  openreg_proc_path(987654, path);
  assert_string_equal(path, "/proc/self/fd/987654");
  assert_int_equal(openreg_proc_reopen(987654), -1);
  assert_int_equal(errno, ENOENT);
  assert_string_equal(openreg_proc_error(ENOENT), strerror(ENOENT));
}

int main(void) {
#define LOCK_TEST(name) cmocka_unit_test_setup_teardown(name, open_both, close_both)
  const struct CMUnitTest tests[] = {
      LOCK_TEST(a_write_lock_excludes_others_only_from_its_range),
      LOCK_TEST(read_locks_are_shared_and_exclude_writers),
      LOCK_TEST(a_lock_can_be_converted_by_its_owner),
      LOCK_TEST(ranges_far_behind_the_end_of_the_file_can_be_locked),
      LOCK_TEST(a_part_of_a_range_can_be_released),
      LOCK_TEST(locks_end_when_the_description_is_closed),
      LOCK_TEST(locks_end_with_a_killed_process),
      LOCK_TEST(locks_of_others_are_found_within_the_range),
      LOCK_TEST(a_lock_to_the_end_of_the_file_is_found_within_the_range),
      LOCK_TEST(neither_free_ranges_nor_own_locks_are_found),
      LOCK_TEST(a_reopened_file_has_its_own_position),
      cmocka_unit_test(a_descriptor_that_is_not_open_cannot_be_opened_again),
  };
#undef LOCK_TEST
  return cmocka_run_group_tests(tests, NULL, NULL);
}
