/* test_simd.c: selects the instruction set. Each case runs in its own process, because the choice
 * is made once.
 */
#include "base/base.h"
#include "child.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns in `said` what a process with OPENREG_SIMD=`wanted` prints: the chosen name, or an error
 * message. Returns its wait status. */
static int choose_in_child(const char *wanted, char *said, size_t bytes) {
  int ends[2], status = 0;
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    setenv("OPENREG_SIMD", wanted, 1);
    const char *name = openreg_simd_name(openreg_simd_chosen());
    _exit(write(STDERR_FILENO, name, strlen(name)) < 0);
  }
  close(ends[1]);
  size_t length = 0;
  ssize_t got;
  while (length + 1 < bytes && (got = read(ends[0], said + length, bytes - 1 - length)) > 0)
    length += (size_t)got;
  said[length] = '\0';
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

static void an_unknown_instruction_set_aborts_with_a_message(void **state) {
  (void)state;
  char said[256];
  int status = choose_in_child("neon", said, sizeof said);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  const char *message =
      "openreg: OPENREG_SIMD=neon: expected an instruction set of this machine: c";
  assert_memory_equal(said, message, strlen(message));
}

static void a_named_instruction_set_is_chosen_if_it_is_there(void **state) {
  (void)state;
  char said[256];
  assert_int_equal(choose_in_child("c", said, sizeof said), 0);
  assert_string_equal(said, "c");
  for (int simd = 0; simd < OPENREG_SIMD_COUNT; simd++) {
    const char *name = openreg_simd_name((openreg_simd)simd);
    if (choose_in_child(name, said, sizeof said) == 0)
      assert_string_equal(said, name);
    else
      assert_non_null(strstr(said, "expected an instruction set of this machine"));
  }
}

static void the_widest_instruction_set_is_the_default(void **state) {
  (void)state;
  char widest[256], said[256];
  const char *expected = "c";
  for (int simd = 0; simd < OPENREG_SIMD_COUNT; simd++) {
    if (choose_in_child(openreg_simd_name((openreg_simd)simd), said, sizeof said) == 0)
      expected = openreg_simd_name((openreg_simd)simd);
  }
  assert_int_equal(choose_in_child("", widest, sizeof widest), 0);
  assert_string_equal(widest, expected);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_unknown_instruction_set_aborts_with_a_message),
      cmocka_unit_test(a_named_instruction_set_is_chosen_if_it_is_there),
      cmocka_unit_test(the_widest_instruction_set_is_the_default),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
