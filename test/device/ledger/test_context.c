/* Contexts: the memory that each process uses on a device with OPENREG_GPU_OVERHEAD=1. */
#define _GNU_SOURCE
#include "board.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* 2 KiB for each of 4 x 1024 and 6 x 1024 threads: 8 and 12 MiB. */
enum { CONTEXT_0 = 8 * MIB, CONTEXT_1 = 12 * MIB };

#define WITH_CONTEXTS                                                                              \
  ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=64M",                               \
              "OPENREG_PROFILE=4x1024,6x1024", "OPENREG_GPU_OVERHEAD=1")

#define CONTEXT_TEST(name) CHILD_TEST_IN(name, WITH_CONTEXTS)

static openreg_ledger_snapshot *snapshots;

/* Memory that this process's group uses on a device, in a snapshot. Taking a snapshot creates no
 * context. */
static uint64_t used_on(int device) {
  int count;
  const char *problem;
  uint64_t used = 0;
  REQUIRE_OK(openreg_ledger_list(&snapshots, &count, &problem));
  for (int i = 0; i < count; i++)
    if (strcmp(snapshots[i].group, child_group()) == 0)
      used = snapshots[i].devices[device].used_bytes;
  openreg_ledger_free_snapshots(snapshots, count);
  return used;
}

/* ---- when contexts are created --------------------------------------------------------------- */

CHILD_TEST(without_the_variable_there_are_no_contexts) {
  REQUIRE_OK(openreg_device_create_context(0));
  REQUIRE(!openreg_is_initialized());
  REQUIRE(free_on(0) == 64 * MIB && free_on(1) == 64 * MIB);
  REQUIRE_OK(openreg_ledger_reserve(0, 64 * MIB));
}

CONTEXT_TEST(querying_properties_creates_no_context) {
  int stream, count;
  bool can_access;
  openreg_event *event;
  openreg_device_properties properties;
  REQUIRE_OK(openreg_initialize());
  REQUIRE_OK(openreg_device_count(&count));
  REQUIRE_OK(openreg_device_get_properties(0, &properties));
  REQUIRE_OK(openreg_device_set_current(1));
  REQUIRE_OK(openreg_device_can_access_peer(0, 1, &can_access));
  REQUIRE_OK(openreg_stream_current(0, &stream));
  REQUIRE_OK(openreg_event_create(0, true, &event));
  openreg_event_destroy(event);
  REQUIRE(used_on(0) == 0 && used_on(1) == 0);
  REQUIRE(properties.profile.context_bytes == CONTEXT_0);
}

CONTEXT_TEST(querying_free_memory_creates_the_context_once) {
  REQUIRE(free_on(1) == 64 * MIB - CONTEXT_1);
  REQUIRE(used_on(0) == 0 && used_on(1) == CONTEXT_1);
  REQUIRE(free_on(1) == 64 * MIB - CONTEXT_1);
  REQUIRE(free_on(0) == 64 * MIB - CONTEXT_0);
}

CONTEXT_TEST(reserving_memory_creates_the_context) {
  REQUIRE_OK(openreg_ledger_reserve(0, 10 * MIB));
  REQUIRE(used_on(0) == 10 * MIB + CONTEXT_0);
  openreg_ledger_release(0, 10 * MIB);
  REQUIRE(used_on(0) == CONTEXT_0);
}

CONTEXT_TEST(it_can_be_created_explicitly) {
  REQUIRE_OK(openreg_device_create_context(0));
  REQUIRE(used_on(0) == CONTEXT_0 && used_on(1) == 0);
  REQUIRE_OK(openreg_device_create_context(0));
  REQUIRE(used_on(0) == CONTEXT_0);
  REQUIRE(openreg_device_create_context(2) == OPENREG_INVALID_DEVICE);
}

static openreg_status do_nothing(void *data) {
  (void)data;
  return OPENREG_OK;
}

CONTEXT_TEST(submitting_work_creates_the_context) {
  int stream;
  REQUIRE_OK(openreg_stream_launch(1, OPENREG_STREAM_DEFAULT, do_nothing, NULL));
  REQUIRE(used_on(1) == CONTEXT_1 && used_on(0) == 0);
  REQUIRE_OK(openreg_stream_try_begin_current(0, &stream));
  openreg_stream_end_inline(0, stream);
  REQUIRE(used_on(0) == CONTEXT_0);
}

enum { THREADS = 8 };

static pthread_barrier_t together;

static void *ask_for_free_memory(void *unused) {
  pthread_barrier_wait(&together);
  REQUIRE(free_on(0) == 64 * MIB - CONTEXT_0);
  return unused;
}

CONTEXT_TEST(concurrent_threads_share_one_context) {
  pthread_t threads[THREADS];
  pthread_barrier_init(&together, NULL, THREADS);
  for (int i = 0; i < THREADS; i++)
    REQUIRE(pthread_create(&threads[i], NULL, ask_for_free_memory, NULL) == 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  REQUIRE(used_on(0) == CONTEXT_0);
}

/* ---- size ------------------------------------------------------------------------------------ */

CONTEXT_TEST(a_context_reduces_the_available_memory) {
  REQUIRE(openreg_ledger_reserve(0, 64 * MIB - CONTEXT_0 + 1) == OPENREG_OUT_OF_MEMORY);
  REQUIRE(strcmp(openreg_last_error(), "openreg: device 0 is out of memory: 58720257 bytes were "
                                       "requested, but only 58720256 of 67108864 are free") == 0);
  REQUIRE_OK(openreg_ledger_reserve(0, 64 * MIB - CONTEXT_0));
  REQUIRE(free_on(0) == 0);
}

static void too_small_body(void) {
  uint64_t free_bytes, total_bytes;
  REQUIRE_OK(openreg_initialize());
  REQUIRE(openreg_ledger_query(0, &free_bytes, &total_bytes) == OPENREG_OUT_OF_MEMORY);
  REQUIRE(
      strcmp(openreg_last_error(),
             "openreg: device 0 is out of memory: with OPENREG_GPU_OVERHEAD=1 each process needs a "
             "context of 527 MiB on a device like NVIDIA H100 80GB HBM3, but only 512 of 512 MiB "
             "are free") == 0);
  REQUIRE(openreg_ledger_reserve(0, 0) == OPENREG_OUT_OF_MEMORY);
  REQUIRE(openreg_stream_launch(0, 0, do_nothing, NULL) == OPENREG_OUT_OF_MEMORY);
  REQUIRE_OK(openreg_ledger_query(1, &free_bytes, &total_bytes));
  REQUIRE(free_bytes == 497 * (uint64_t)MIB);
}

static void a_device_smaller_than_its_context_cannot_be_used(void **state) {
  (void)state;
  child_expect_pass(too_small_body,
                    ENVIRONMENT("OPENREG_DEVICE_MEMORY=512M,1G", "OPENREG_GPU_OVERHEAD=1"));
}

static void take_60(void) {
  REQUIRE(unsetenv("OPENREG_GPU_OVERHEAD") ==
          0); /* processes of a group may have different settings */
  REQUIRE_OK(openreg_ledger_reserve(1, 60 * MIB));
  report(0);
  await_cue();
}

CONTEXT_TEST(a_device_can_be_used_when_other_processes_release_its_memory) {
  helper other = helper_start(take_60);
  helper_receive(&other);
  REQUIRE(openreg_ledger_reserve(1, 0) == OPENREG_OUT_OF_MEMORY);
  REQUIRE(strstr(openreg_last_error(), "a context of 12 MiB on a device like"));
  REQUIRE(strstr(openreg_last_error(), "but only 4 of 64 MiB are free"));
  REQUIRE(used_on(1) == 60 * MIB);
  helper_kill(&other);
  REQUIRE(free_on(1) == 64 * MIB - CONTEXT_1);
}

/* ---- processes ------------------------------------------------------------------------------- */

static void take_10(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 10 * MIB));
  report(0);
  await_cue();
}

CONTEXT_TEST(each_process_has_its_context_until_it_ends) {
  helper first = helper_start(take_10), second = helper_start(take_10);
  helper_receive(&first);
  helper_receive(&second);
  REQUIRE(used_on(0) == 2 * (10 * MIB + CONTEXT_0));
  REQUIRE(free_on(0) == 64 * MIB - 2 * 10 * MIB - 3 * CONTEXT_0);
  helper_dismiss(&first);
  REQUIRE(free_on(0) == 64 * MIB - 10 * MIB - 2 * CONTEXT_0);
  helper_dismiss(&second);
  REQUIRE(free_on(0) == 64 * MIB - CONTEXT_0);
}

CONTEXT_TEST(a_killed_process_leaves_no_context) {
  helper first = helper_start(take_10), second = helper_start(take_10);
  helper_receive(&first);
  helper_receive(&second);
  helper_kill(&first);
  REQUIRE(used_on(0) == 10 * MIB + CONTEXT_0);
  REQUIRE(free_on(0) == 64 * MIB - 10 * MIB - 2 * CONTEXT_0);
  helper_kill(&second);
  REQUIRE(free_on(0) == 64 * MIB - CONTEXT_0);
}

static void export_2(void) {
  REQUIRE_OK(openreg_ledger_reserve(1, 2 * MIB));
  export_memory(base_of(1), 2 * MIB, &board->handles[0]);
  report(0);
  await_cue();
}

CONTEXT_TEST(an_importer_gets_a_context_on_the_memorys_device) {
  helper exporter = board_with(export_2);
  REQUIRE(used_on(1) == 2 * MIB + CONTEXT_1);
  open_memory(&board->handles[0]);
  REQUIRE(used_on(1) == 2 * MIB + 2 * CONTEXT_1 && used_on(0) == 0);
  helper_kill(&exporter);
  while (used_on(1) != 2 * MIB + CONTEXT_1) /* the import keeps the memory in use */
    sched_yield();
}

static void use_a_device(void) {
  uint64_t free_bytes, total_bytes;
  REQUIRE(openreg_ledger_query(0, &free_bytes, &total_bytes) == OPENREG_BAD_FORK);
  REQUIRE(openreg_device_create_context(0) == OPENREG_BAD_FORK);
}

CONTEXT_TEST(a_forked_child_has_no_context_and_leaves_its_parents) {
  REQUIRE(free_on(0) == 64 * MIB - CONTEXT_0);
  child_fork_and_require(use_a_device);
  REQUIRE(used_on(0) == CONTEXT_0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_the_variable_there_are_no_contexts),
      cmocka_unit_test(querying_properties_creates_no_context),
      cmocka_unit_test(querying_free_memory_creates_the_context_once),
      cmocka_unit_test(reserving_memory_creates_the_context),
      cmocka_unit_test(it_can_be_created_explicitly),
      cmocka_unit_test(submitting_work_creates_the_context),
      cmocka_unit_test(concurrent_threads_share_one_context),
      cmocka_unit_test(a_context_reduces_the_available_memory),
      cmocka_unit_test(a_device_smaller_than_its_context_cannot_be_used),
      cmocka_unit_test(a_device_can_be_used_when_other_processes_release_its_memory),
      cmocka_unit_test(each_process_has_its_context_until_it_ends),
      cmocka_unit_test(a_killed_process_leaves_no_context),
      cmocka_unit_test(an_importer_gets_a_context_on_the_memorys_device),
      cmocka_unit_test(a_forked_child_has_no_context_and_leaves_its_parents),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
