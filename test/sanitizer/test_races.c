/* Random programs: the sanitizer finds the conflicts that the definition gives, and nothing else.
 */
#include "programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { PROGRAMS = 1000, RIGHT_PROGRAMS = 30 };

static void findings_of_random_programs_are_exactly_the_conflicts(void **state) {
  (void)state;
  static program made;
  uint64_t random = 11;
  int wrong = 0;
  for (int i = 0; i < PROGRAMS; i++) {
    make_any_program(&random, &made);
    wrong += play_program(&made, -1) > 0;
  }
  assert_true(wrong > PROGRAMS / 3 && wrong < PROGRAMS);
}

static void a_correct_program_has_findings_only_without_a_needed_step(void **state) {
  (void)state;
  static program made;
  uint64_t random = 12;
  int needed = 0, needless = 0;
  for (int i = 0; i < RIGHT_PROGRAMS; i++) {
    make_right_program(&random, &made);
    assert_int_equal(play_program(&made, -1), 0);
    for (int without = 0; without < made.count; without++) {
      if (made.steps[without].kind != WAIT && made.steps[without].kind != ORDER)
        continue;
      if (play_program(&made, without) > 0)
        needed++;
      else
        needless++;
    }
  }
  assert_true(needed > RIGHT_PROGRAMS && needless > RIGHT_PROGRAMS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(findings_of_random_programs_are_exactly_the_conflicts),
      cmocka_unit_test(a_correct_program_has_findings_only_without_a_needed_step),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
