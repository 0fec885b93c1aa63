/* Exporters that withdraw memory or end while it is being opened. The test intercepts the lock of a
 * range, so that this happens at a defined moment.
 */
#include "peers.h"
#include "refusals.h"

#include <string.h>

/* Runs just before a range is locked, and just after. */
bool __real_openreg_range_lock_try(int file, short type, uint64_t start, uint64_t bytes);
static void (*before_lock)(void), (*after_lock)(void);

static void happen_once(void (**what)(void)) {
  void (*happening)(void) = *what;
  *what = NULL;
  if (happening != NULL)
    happening();
}

bool __wrap_openreg_range_lock_try(int file, short type, uint64_t start, uint64_t bytes) {
  happen_once(&before_lock);
  bool locked = __real_openreg_range_lock_try(file, type, start, bytes);
  happen_once(&after_lock);
  return locked;
}

static helper meanwhile;

static void let_it_go_on(void) {
  helper_step(&meanwhile);
}

static void kill_it(void) {
  helper_kill(&meanwhile);
}

CHILD_TEST(memory_withdrawn_while_it_is_opened_is_rejected) {
  meanwhile = board_with(export_withdraw_export);
  REQUIRE_OK(open_handle(&board->handles[0]));
  before_lock = let_it_go_on;
  expect_refusal(&board->handles[0], "its exporter has withdrawn the memory");
  let_it_go_on();
  REQUIRE_OK(open_handle(&board->handles[1]));
  helper_kill(&meanwhile);
}

static void let_it_go_on_twice(void) {
  let_it_go_on();
  let_it_go_on();
}

CHILD_TEST(memory_exported_again_while_it_is_opened_is_rejected) {
  meanwhile = board_with(export_withdraw_export);
  REQUIRE_OK(open_handle(&board->handles[0]));
  before_lock = let_it_go_on_twice;
  expect_refusal(&board->handles[0], "its exporter has withdrawn the memory");
  REQUIRE_OK(open_handle(&board->handles[1]));
  helper_kill(&meanwhile);
}

static void expect_end_while_opening(void (**moment)(void)) {
  meanwhile = board_with(export_two_and_an_event);
  REQUIRE_OK(openreg_initialize());
  *moment = kill_it;
  expect_refusal(&board->handles[0], "the process that made it has ended");
}

CHILD_TEST(an_exporter_that_dies_before_its_memory_is_locked_is_noticed) {
  expect_end_while_opening(&before_lock);
}

CHILD_TEST(an_exporter_that_dies_after_its_memory_was_locked_is_noticed) {
  expect_end_while_opening(&after_lock);
}

static void kill_it_and_let_the_other_importer_give_back(void) {
  helper_kill(&meanwhile);
  await_used_on(0, 5 * MIB + 2 * page_bytes());
}

CHILD_TEST(memory_locked_for_a_failed_open_is_released) {
  board_make();
  meanwhile = helper_start(export_two_and_an_event);
  helper other_importer = helper_start(import_second_and_stay);
  helper_receive(&meanwhile);
  helper_step(&other_importer);
  REQUIRE_OK(openreg_initialize());
  after_lock = kill_it_and_let_the_other_importer_give_back;
  REQUIRE(open_handle(&board->handles[0]) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "the process that made it has ended") != NULL);
  await_used_on(
      0, 5 * MIB + page_bytes()); /* after a moment, if the other importer had not finished yet */
  helper_dismiss(&other_importer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_withdrawn_while_it_is_opened_is_rejected),
      cmocka_unit_test(memory_exported_again_while_it_is_opened_is_rejected),
      cmocka_unit_test(an_exporter_that_dies_before_its_memory_is_locked_is_noticed),
      cmocka_unit_test(an_exporter_that_dies_after_its_memory_was_locked_is_noticed),
      cmocka_unit_test(memory_locked_for_a_failed_open_is_released),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
