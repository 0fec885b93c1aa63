/* Importing: two processes share the same bytes. test_imports_ends.c tests how imports end, and
 * test_imports_order.c the order of work.
 */
#define _GNU_SOURCE
#include "device/ipc/imports.h"
#include "peers.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the same bytes -------------------------------------------------------------------------- */

enum { AT = GRANULE - 512 };

static void export_and_look(void) {
  char *base = base_of(1);
  poke(base + AT, 1);
  poke(base + AT + 3 * PAGE - 1, 2);
  export_memory(base + AT, 3 * PAGE, &board->handles[0]);
  report(0);
  await_cue();
  REQUIRE(peek(base + AT) == 3 && peek(base + AT + 3 * PAGE - 1) == 4);
  poke(base + AT + PAGE, 5);
  report(0);
  await_cue();
}

CHILD_TEST(importer_and_exporter_have_the_same_bytes) {
  helper exporter = board_with(export_and_look);
  void *address;
  size_t bytes = 0;
  int device = -1;
  REQUIRE_OK(openreg_ipc_open(&board->handles[0], 0, &address, &bytes, &device));
  char *memory = address;
  REQUIRE(device == 1 && bytes == 3 * PAGE);
  REQUIRE(peek(memory) == 1 && peek(memory + bytes - 1) == 2);
  poke(memory, 3);
  poke(memory + bytes - 1, 4);
  helper_step(&exporter);
  REQUIRE(peek(memory + PAGE) == 5);
  REQUIRE(*(char *)openreg_kernel_view(memory + PAGE) == 5);
  helper_dismiss(&exporter);
}

CHILD_TEST(an_import_is_device_memory_with_its_exact_size) {
  helper exporter = board_with(export_three);
  char *small = open_memory(&board->handles[0]), *large = open_memory(&board->handles[2]);
  char host = 0;
  REQUIRE(openreg_arena_device_of(small) == 1);
  REQUIRE(openreg_arena_device_of(large + 2 * GRANULE - 1) == 1);
  REQUIRE(openreg_arena_device_of(openreg_kernel_view(small)) == -1);
  /* Their granules may be adjacent, but a range must not cross from one import into the other. */
  REQUIRE(small + 2 * GRANULE - PAGE == large || small > large);
  REQUIRE(openreg_copy(&host, small + GRANULE - 1, 2) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_fill(large, 0, 3 * GRANULE) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_fill(small, 0, SIZE_MAX) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_fill(small, 0, SIZE_MAX / 2) == OPENREG_INVALID_ADDRESS);
  REQUIRE_OK(openreg_fill(large, 0, 2 * GRANULE));
  REQUIRE(openreg_fill(base_of(1) + arena_bytes() - 1, 0, 2) == OPENREG_INVALID_ADDRESS);
  REQUIRE_OK(openreg_ipc_close(small));
  REQUIRE(openreg_arena_device_of(small) == -1);
  REQUIRE(openreg_copy(&host, small, 1) == OPENREG_INVALID_ADDRESS);
  helper_dismiss(&exporter);
}

CHILD_TEST(imports_are_neither_released_nor_exported_here) {
  helper exporter = board_with(export_three);
  openreg_ipc_handle handle;
  char *memory = open_memory(&board->handles[0]);
  REQUIRE(openreg_arena_release(memory, page_bytes()) == OPENREG_INVALID_ADDRESS);
  REQUIRE(strstr(openreg_last_error(), "belong to another process") != NULL);
  REQUIRE(openreg_ipc_export(memory, 512, 0, &handle) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_ipc_withdraw(memory) == OPENREG_INVALID_ARGUMENT);
  helper_dismiss(&exporter);
}

CHILD_TEST(imports_of_the_same_granules_are_mapped_once) {
  helper exporter = board_with(export_three);
  char *first = open_memory(&board->handles[0]);
  int mappings = count_mappings();
  char *second = open_memory(&board->handles[1]);
  REQUIRE(second == first + 512);
  REQUIRE(count_mappings() == mappings);
  REQUIRE_OK(openreg_ipc_close(first));
  REQUIRE(peek(second) == PATTERN);
  REQUIRE(openreg_ipc_close(first) == OPENREG_INVALID_ARGUMENT);
  REQUIRE_OK(openreg_ipc_close(second));
  helper_dismiss(&exporter);
}

CHILD_TEST(opening_again_gives_the_same_address_and_one_import_more) {
  helper exporter = board_with(export_three);
  char *first = open_memory(&board->handles[2]);
  REQUIRE(open_memory(&board->handles[2]) == first);
  REQUIRE_OK(openreg_ipc_close(first));
  REQUIRE(peek(first) == PATTERN);
  REQUIRE_OK(openreg_ipc_close(first));
  REQUIRE(openreg_arena_device_of(first) == -1);
  REQUIRE(openreg_ipc_close(first) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "no imported memory begins at") != NULL);
  helper_dismiss(&exporter);
}

CHILD_TEST(only_imports_can_be_closed) {
  int host;
  REQUIRE(openreg_ipc_close(&host) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_ipc_close(base_of(0)) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_ipc_close(NULL) == OPENREG_INVALID_ARGUMENT);
}

CHILD_TEST(closed_imports_leave_nothing_behind) {
  helper exporter = board_with(export_three);
  REQUIRE_OK(openreg_initialize());
  int descriptors = 0, mappings = count_mappings();
  for (int round = 0; round < 20; round++) {
    char *memory[3];
    for (int i = 0; i < 3; i++)
      memory[i] = open_memory(&board->handles[i]);
    for (int i = 0; i < 3; i++)
      REQUIRE_OK(openreg_ipc_close(memory[(i + round) % 3]));
    if (round == 0) /* the very first import starts a thread, which stays */
      descriptors = count_descriptors();
  }
  REQUIRE(openreg_peer_files == NULL);
  REQUIRE(count_descriptors() == descriptors);
  REQUIRE(count_mappings() == mappings);
  helper_dismiss(&exporter);
}

static void host_access_body(void) {
  helper exporter = board_with(export_three);
  char *memory = open_memory(&board->handles[1]);
  REQUIRE(memory[PAGE - 1] == PATTERN);
  REQUIRE_OK(openreg_ipc_close(memory));
  helper_dismiss(&exporter);
}

static void with_host_access_imports_are_accessed_directly(void **state) {
  (void)state;
  child_expect_pass(
      host_access_body,
      ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=64M", "OPENREG_HOST_ACCESS=1"));
}

/* ---- address space --------------------------------------------------------------------------- */

static void export_all(void) {
  fill_and_export(PAGE, 1, (struct range[]){{0, 64 * MIB}});
}

static void export_all_too(void) {
  export_memory(base_of(1), 64 * MIB, &board->handles[1]);
  report(0);
  await_cue();
}

static void export_all_again(void) {
  export_memory(base_of(1), 64 * MIB, &board->handles[2]);
  report(0);
  await_cue();
}

CHILD_TEST(there_are_addresses_for_twice_the_devices_memory) {
  board_make();
  helper one = helper_start(export_all), other = helper_start(export_all_too);
  helper third = helper_start(export_all_again);
  helper_receive(&one);
  helper_receive(&other);
  helper_receive(&third);
  void *address;
  size_t bytes;
  int device;
  char *memory = open_memory(&board->handles[0]);
  REQUIRE_OK(openreg_ipc_open(&board->handles[2], 0, &address, &bytes, &device));
  REQUIRE(openreg_ipc_open(&board->handles[1], 0, &address, &bytes, &device) ==
          OPENREG_OUT_OF_MEMORY);
  REQUIRE(strstr(openreg_last_error(), "device 1 has no addresses left for 67108864 bytes") !=
          NULL);
  poke(memory + 64 * MIB - 1, 1);
  REQUIRE_OK(openreg_ipc_close(memory));
  poke(open_memory(&board->handles[1]) + 64 * MIB - 1, 1);
  helper_kill(&one);
  helper_kill(&other);
  helper_kill(&third);
}

/* ---- accesses -------------------------------------------------------------------------------- */

static void touch_an_import(void) {
  board_with(export_three);
  volatile char *memory = open_memory(&board->handles[0]);
  (void)*memory;
}

static void the_host_gets_a_message_when_it_accesses_an_import(void **state) {
  (void)state;
  child_result result;
  child_expect_signal(&result, SIGSEGV, touch_an_import, SMALL_DEVICES);
  assert_non_null(strstr(result.errors, "openreg: the host accessed address"));
  assert_non_null(strstr(result.errors, " of device 1 that belongs to another process; "
                                        "host code cannot access device memory"));
}

static char *imported_here;

static void in_forked_child(void) {
  void *address;
  size_t bytes;
  int device;
  REQUIRE(openreg_ipc_open(&board->handles[0], 0, &address, &bytes, &device) == OPENREG_BAD_FORK);
  REQUIRE(openreg_ipc_close(imported_here) == OPENREG_BAD_FORK);
  REQUIRE(openreg_arena_device_of(imported_here) == 1); /* the addresses stay reserved */
  for (int i = 3; i < 256; i++) {
    char link[64], target[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", i);
    ssize_t length = readlink(link, target, sizeof target - 1);
    REQUIRE(length < 0 || strncmp(target, "/memfd:openreg", 14) != 0);
  }
}

CHILD_TEST(a_forked_child_has_no_imports) {
  helper exporter = board_with(export_three);
  imported_here = open_memory(&board->handles[0]);
  child_fork_and_require(in_forked_child);
  REQUIRE(peek(imported_here) == PATTERN);
  helper_dismiss(&exporter);
}

CHILD_TEST(imports_fault_in_a_forked_child) {
  helper exporter = board_with(export_three);
  char *memory = open_memory(&board->handles[2]);
  int wait_status;
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    *(volatile char *)openreg_kernel_view(memory + GRANULE) = 1;
    _exit(0);
  }
  REQUIRE(waitpid(child, &wait_status, 0) == child);
  REQUIRE(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGSEGV);
  REQUIRE(peek(memory + GRANULE) == PATTERN);
  helper_dismiss(&exporter);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(importer_and_exporter_have_the_same_bytes),
      cmocka_unit_test(an_import_is_device_memory_with_its_exact_size),
      cmocka_unit_test(imports_are_neither_released_nor_exported_here),
      cmocka_unit_test(imports_of_the_same_granules_are_mapped_once),
      cmocka_unit_test(opening_again_gives_the_same_address_and_one_import_more),
      cmocka_unit_test(only_imports_can_be_closed),
      cmocka_unit_test(closed_imports_leave_nothing_behind),
      cmocka_unit_test(with_host_access_imports_are_accessed_directly),
      cmocka_unit_test(there_are_addresses_for_twice_the_devices_memory),
      cmocka_unit_test(the_host_gets_a_message_when_it_accesses_an_import),
      cmocka_unit_test(a_forked_child_has_no_imports),
      cmocka_unit_test(imports_fault_in_a_forked_child),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
