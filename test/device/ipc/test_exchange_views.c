/* Exchange between processes that see different devices of one group, or see them in another order.
 */
#include "gate.h"
#include "remote_events.h"
#include "refusals.h"
#include "views.h"

#define THREE_DEVICES ENVIRONMENT("OPENREG_DEVICE_COUNT=3", "OPENREG_DEVICE_MEMORY=64M,32M,64M")

/* ---- memory ---------------------------------------------------------------------------------- */

/* peers.h exports from device 1. Here that is the last device of the group. */
static void export_from_last(void) {
  see("1,2");
  export_three();
}

static int device_of_import(const openreg_ipc_handle *handle, char **memory) {
  void *address;
  size_t bytes;
  int device = -1;
  REQUIRE_OK(openreg_ipc_open(handle, 0, &address, &bytes, &device));
  *memory = address;
  REQUIRE(openreg_arena_device_of(address) == device);
  return device;
}

VIEWS_TEST(memory_is_imported_on_its_own_device) {
  helper exporter = board_with(export_from_last);
  char *small, *large;
  see("2,0");
  REQUIRE(device_of_import(&board->handles[0], &small) == 0);
  REQUIRE(device_of_import(&board->handles[2], &large) == 0);
  REQUIRE(peek(small) == PATTERN && peek(large) == PATTERN);
  int device = -1;
  REQUIRE_OK(openreg_ipc_device(&board->handles[1], &device));
  REQUIRE(device == 0);
  REQUIRE_OK(openreg_ipc_close(small));
  REQUIRE_OK(openreg_ipc_close(large));
  helper_dismiss(&exporter);
}

VIEWS_TEST(orphaned_memory_of_a_killed_exporter_is_on_its_device) {
  helper exporter = board_with(export_from_last);
  char *memory;
  see("0,2");
  REQUIRE(device_of_import(&board->handles[0], &memory) == 1);
  REQUIRE(used_on(0) == 0 && used_on(1) == 8 * MIB);
  helper_kill(&exporter);
  await_used_on(1, page_bytes());
  REQUIRE(used_on(0) == 0 && peek(memory) == PATTERN);
  REQUIRE_OK(openreg_ipc_close(memory));
  REQUIRE(used_on(1) == 0);
}

VIEWS_TEST(memory_of_a_device_that_is_not_seen_is_refused) {
  helper exporter = board_with(export_from_last);
  see("1,0");
  expect_refusal(&board->handles[0], "it belongs to device 2 of the group, which "
                                     "OPENREG_VISIBLE_DEVICES hides from this process");
  int device = 77;
  REQUIRE(openreg_ipc_device(&board->handles[0], &device) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(device == 77);
  REQUIRE(used_on(0) == 0 && used_on(1) == 0);
  helper_dismiss(&exporter);
}

VIEWS_TEST(a_returned_handle_is_recognized) {
  void *address;
  openreg_ipc_handle handle;
  see("2");
  char *base = base_of(0);
  export_memory(base, PAGE, &handle);
  REQUIRE_OK(openreg_ipc_recall(&handle, &address));
  REQUIRE(address == base);
  int device = -1;
  REQUIRE_OK(openreg_ipc_device(&handle, &device));
  REQUIRE(device == 0);
  handle.bytes[20] ^= 1;
  REQUIRE(openreg_ipc_device(&handle, &device) == OPENREG_INVALID_ARGUMENT);
}

/* Memory files must have the same size in all processes, or they are rejected. This includes
 * devices that are so large that having more of them leaves fewer addresses for each. */
#ifdef __SANITIZE_THREAD__
#define LARGE "4G"
#else
#define LARGE "256G"
#endif

static void export_from_smallest(void) {
  see("1");
  char *base = base_of(0);
  poke(base + 5, 7);
  export_memory(base, PAGE, &board->handles[0]);
  report(0);
  await_cue();
}

static void import_from_smallest(void) {
  helper exporter = board_with(export_from_smallest);
  char *memory;
  REQUIRE(device_of_import(&board->handles[0], &memory) == 1);
  REQUIRE(peek(memory + 5) == 7);
  helper_dismiss(&exporter);
}

static void a_process_that_sees_only_the_smallest_device_can_export(void **state) {
  (void)state;
  child_expect_pass(import_from_smallest, THREE_DEVICES);
  child_expect_pass(import_from_smallest,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=3", "OPENREG_DEVICE_MEMORY=" LARGE ",2M,4M"));
}

/* ---- events ---------------------------------------------------------------------------------- */

enum { EVENT = 0, STREAM = 1 };

/* Helpers start with the environment that the test process has at that time, and use device 0. */
VIEWS_TEST(an_event_belongs_to_the_same_device_in_all_processes) {
  board_make();
  see("2,1,0");
  helper owner = remote_start();
  see("2");
  helper recorder = remote_start();
  see("0,1,2");
  openreg_event *event;
  REQUIRE_OK(remote_call(&owner, CREATE, EVENT, STREAM));
  REQUIRE_OK(remote_call(&recorder, IMPORT, EVENT, STREAM));
  REQUIRE_OK(openreg_event_import(&board->handles[EVENT], &event));
  int device = -1;
  REQUIRE_OK(openreg_ipc_device(&board->handles[EVENT], &device));
  REQUIRE(device == 2 && openreg_event_device(event) == 2);
  helper *const recorders[] = {&owner, &recorder};
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(remote_call(recorders[i], CLOSE_GATE, EVENT, STREAM));
    REQUIRE_OK(remote_call(recorders[i], RECORD, EVENT, STREAM));
    REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
    REQUIRE_OK(openreg_stream_wait_event(1, 3, event));
    REQUIRE(openreg_stream_query(1, 3) == OPENREG_NOT_READY);
    REQUIRE_OK(remote_call(recorders[i], OPEN_GATE, EVENT, STREAM));
    REQUIRE_OK(openreg_event_synchronize(event));
    REQUIRE_OK(openreg_stream_synchronize(1, 3));
  }
  gate gate = GATE_CLOSED;
  gate_close_stream(&gate, 2, 0);
  REQUIRE_OK(openreg_event_record(event, 0));
  REQUIRE(remote_call(&owner, QUERY, EVENT, STREAM) == OPENREG_NOT_READY);
  gate_open(&gate);
  REQUIRE_OK(remote_call(&recorder, SYNCHRONIZE, EVENT, STREAM));
  openreg_event_destroy(event);
  remote_dismiss(&recorder);
  remote_dismiss(&owner);
}

VIEWS_TEST(an_event_of_a_device_that_is_not_seen_is_refused) {
  board_make();
  see("2");
  helper owner = remote_start();
  see("0");
  openreg_event *event;
  REQUIRE_OK(remote_call(&owner, CREATE, EVENT, STREAM));
  REQUIRE(openreg_event_import(&board->handles[EVENT], &event) == OPENREG_INVALID_ARGUMENT);
  remote_dismiss(&owner);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_imported_on_its_own_device),
      cmocka_unit_test(orphaned_memory_of_a_killed_exporter_is_on_its_device),
      cmocka_unit_test(memory_of_a_device_that_is_not_seen_is_refused),
      cmocka_unit_test(a_returned_handle_is_recognized),
      cmocka_unit_test(a_process_that_sees_only_the_smallest_device_can_export),
      cmocka_unit_test(an_event_belongs_to_the_same_device_in_all_processes),
      cmocka_unit_test(an_event_of_a_device_that_is_not_seen_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
