/* Whole arenas of other processes. */
#include "refusals.h"
#include "views.h"

#include <string.h>

#define THREE_DEVICES ENVIRONMENT("OPENREG_DEVICE_COUNT=3", "OPENREG_DEVICE_MEMORY=64M,32M,64M")

enum { AT = 5 * PAGE };

/* Exports the arena of device 1 of this process, with a known byte in it. Then waits, and checks
 * another byte. */
static void export_arena_and_look(void) {
  REQUIRE_OK(openreg_ipc_export_arena(1, &board->handles[0]));
  poke(base_of(1) + AT, 1);
  report(0);
  await_cue();
  REQUIRE(peek(base_of(1) + AT + 1) == 2);
  report(0);
  await_cue();
}

static void expect_no_arena(const openreg_ipc_handle *handle, const char *why) {
  openreg_peer_arena arena;
  REQUIRE(openreg_ipc_open_arena(handle, &arena) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), why) != NULL);
}

CHILD_TEST(both_processes_have_the_same_bytes) {
  helper owner = board_with(export_arena_and_look);
  openreg_peer_arena arena;
  REQUIRE_OK(openreg_ipc_open_arena(&board->handles[0], &arena));
  char *bytes = arena.base;
  REQUIRE(arena.bytes == arena_bytes() && arena.pid == owner.pid);
  REQUIRE(bytes[AT] == 1 && bytes[arena.bytes - 1] == 0);
  bytes[AT + 1] = 2;
  helper_step(&owner);
  openreg_ipc_close_arena(&arena);
  helper_dismiss(&owner);
}

CHILD_TEST(it_is_opened_any_number_of_times_and_closed_as_often) {
  helper owner = board_with(export_arena_and_look);
  REQUIRE_OK(openreg_initialize());
  int descriptors = count_descriptors(), mappings = count_mappings();
  openreg_peer_arena arenas[2];
  for (int i = 0; i < 2; i++)
    REQUIRE_OK(openreg_ipc_open_arena(&board->handles[0], &arenas[i]));
  REQUIRE(count_descriptors() == descriptors && count_mappings() == mappings + 2);
  for (int i = 0; i < 2; i++)
    openreg_ipc_close_arena(&arenas[i]);
  REQUIRE(count_mappings() == mappings);
  helper_kill(&owner);
}

CHILD_TEST(the_bytes_of_a_killed_owner_remain) {
  helper owner = board_with(export_arena_and_look);
  openreg_peer_arena arena;
  REQUIRE_OK(openreg_ipc_open_arena(&board->handles[0], &arena));
  helper_kill(&owner);
  REQUIRE(((char *)arena.base)[AT] == 1);
  openreg_ipc_close_arena(&arena);
  expect_no_arena(&board->handles[0], "cannot open the memory file of process ");
}

CHILD_TEST(an_arena_of_this_process_is_its_kernel_view) {
  openreg_ipc_handle handle;
  REQUIRE_OK(openreg_ipc_export_arena(1, &handle));
  int mappings = count_mappings();
  openreg_peer_arena arena;
  REQUIRE_OK(openreg_ipc_open_arena(&handle, &arena));
  REQUIRE(arena.base == openreg_kernel_view(base_of(1)) && arena.bytes == arena_bytes());
  REQUIRE(count_mappings() == mappings);
  openreg_ipc_close_arena(&arena);
  poke(base_of(1), 3);
  REQUIRE(peek(base_of(1)) == 3);
}

static void export_unseen(void) {
  see("1,2");
  export_arena_and_look();
}

VIEWS_TEST(the_device_need_not_be_seen) {
  helper owner = board_with(export_unseen);
  see("0");
  openreg_peer_arena arena;
  REQUIRE_OK(openreg_ipc_open_arena(&board->handles[0], &arena));
  REQUIRE(((char *)arena.base)[AT] == 1);
  openreg_ipc_close_arena(&arena);
  helper_kill(&owner);
}

CHILD_TEST(handles_of_other_things_are_refused) {
  openreg_ipc_handle arena, memory;
  REQUIRE_OK(openreg_ipc_export_arena(0, &arena));
  export_memory(base_of(0), PAGE, &memory);
  expect_no_arena(&memory, "it is not a handle of an arena");
  expect_refusal(&arena, "");
  arena.bytes[8] ^= 1;
  expect_no_arena(&arena, "it is not a handle of an arena");
}

CHILD_TEST(a_file_that_is_not_the_expected_one_is_rejected) {
  helper owner = board_with(export_arena_and_look);
  REQUIRE_OK(openreg_initialize());
  struct openreg_handle parts;
  openreg_ipc_handle handle;
  REQUIRE(openreg_handle_unpack(&board->handles[0], &parts));
  parts.nonce++;
  seal(&parts, &handle);
  expect_no_arena(&handle, "open file is not the expected memory file");
  parts.index = 0; /* standard input */
  seal(&parts, &handle);
  expect_no_arena(&handle, "");
  helper_kill(&owner);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(both_processes_have_the_same_bytes),
      cmocka_unit_test(it_is_opened_any_number_of_times_and_closed_as_often),
      cmocka_unit_test(the_bytes_of_a_killed_owner_remain),
      cmocka_unit_test(an_arena_of_this_process_is_its_kernel_view),
      cmocka_unit_test(the_device_need_not_be_seen),
      cmocka_unit_test(handles_of_other_things_are_refused),
      cmocka_unit_test(a_file_that_is_not_the_expected_one_is_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
