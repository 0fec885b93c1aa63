/* Events that several processes share and record. */
#include "device/ipc/exports.h"
#include "remote_events.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT = 0 };

/* ---- setup ----------------------------------------------------------------------------------- */

enum { OWNER, FIRST, SECOND, PROCESSES };

static helper processes[PROCESSES];

#define CALL(who, ...)         remote_call(&processes[who], __VA_ARGS__)
#define CALL_OK(who, ...)      REQUIRE_OK(CALL(who, __VA_ARGS__))
#define EXPECT(who, wait, ...) REQUIRE(CALL(who, __VA_ARGS__) == OPENREG_##wait)

/* One process creates an event, and `importers` others import it. */
static void share_event(int importers) {
  board_make();
  for (int i = 0; i <= importers; i++)
    processes[i] = remote_start();
  CALL_OK(OWNER, CREATE, EVENT, 0);
  for (int i = 1; i <= importers; i++)
    CALL_OK(i, IMPORT, EVENT, 0);
}

static void dismiss(int first, int end) {
  for (int i = first; i < end; i++)
    remote_dismiss(&processes[i]);
}

/* A recording that is not reached: on a stream of this process whose gate is closed. */
static void record_behind_gate(int who, int stream) {
  CALL_OK(who, CLOSE_GATE, EVENT, stream);
  CALL_OK(who, RECORD, EVENT, stream);
}

static void expect_not_ready(int who) {
  EXPECT(who, NOT_READY, QUERY, EVENT, 0);
  EXPECT(who, NOT_READY, LOOK, EVENT, 0);
}

static void expect_reached(int who) {
  CALL_OK(who, SYNCHRONIZE, EVENT, 0);
  CALL_OK(who, QUERY, EVENT, 0);
}

static void expect_failure(int who) {
  EXPECT(who, LAUNCH_FAILURE, QUERY, EVENT, 0);
  EXPECT(who, LAUNCH_FAILURE, SYNCHRONIZE, EVENT, 0);
}

/* ---- recording ------------------------------------------------------------------------------- */

static void wait_for_each_other(int recorder, int waiter) {
  record_behind_gate(recorder, 1);
  expect_not_ready(recorder);
  expect_not_ready(waiter);
  CALL_OK(waiter, WAIT, EVENT, 2);
  EXPECT(waiter, NOT_READY, QUERY_STREAM, EVENT, 2);
  CALL_OK(recorder, OPEN_GATE, EVENT, 1);
  CALL_OK(waiter, FINISH_STREAM, EVENT, 2);
  expect_reached(waiter);
  expect_reached(recorder);
}

CHILD_TEST(the_other_processes_wait_for_a_recording) {
  share_event(2);
  for (int recorder = OWNER; recorder < PROCESSES; recorder++)
    for (int waiter = OWNER; waiter < PROCESSES; waiter++)
      if (waiter != recorder)
        wait_for_each_other(recorder, waiter);
  dismiss(OWNER, PROCESSES);
}

CHILD_TEST(a_wait_that_sleeps_is_ended_by_an_importers_record) {
  share_event(1);
  record_behind_gate(FIRST, 1);
  remote_begin_call(&processes[OWNER], SYNCHRONIZE, EVENT, 0);
  CALL_OK(FIRST, OPEN_GATE, EVENT, 1);
  REQUIRE_OK((openreg_status)helper_receive(&processes[OWNER]));
  dismiss(OWNER, SECOND);
}

static void expect_latest_counts(int earlier, int later) {
  record_behind_gate(earlier, 1);
  record_behind_gate(later, 1);
  CALL_OK(earlier, OPEN_GATE, EVENT, 1);
  CALL_OK(earlier, FINISH_STREAM, EVENT, 1);
  for (int who = OWNER; who < PROCESSES; who++)
    expect_not_ready(who);
  CALL_OK(later, OPEN_GATE, EVENT, 1);
  for (int who = OWNER; who < PROCESSES; who++)
    expect_reached(who);
}

CHILD_TEST(only_the_latest_record_counts) {
  share_event(2);
  expect_latest_counts(OWNER, FIRST);
  expect_latest_counts(FIRST, OWNER);
  expect_latest_counts(FIRST, SECOND);
  dismiss(OWNER, PROCESSES);
}

CHILD_TEST(a_recording_on_an_idle_stream_replaces_pending_ones) {
  share_event(2);
  record_behind_gate(FIRST, 1);
  CALL_OK(SECOND, RECORD, EVENT, 2);
  for (int who = OWNER; who < PROCESSES; who++)
    expect_reached(who);
  dismiss(OWNER, PROCESSES);
}

CHILD_TEST(recording_again_does_not_change_what_waits) {
  share_event(2);
  record_behind_gate(FIRST, 1);
  CALL_OK(OWNER, WAIT, EVENT, 2);
  record_behind_gate(SECOND, 1);
  EXPECT(OWNER, NOT_READY, QUERY_STREAM, EVENT, 2);
  CALL_OK(FIRST, OPEN_GATE, EVENT, 1);
  CALL_OK(OWNER, FINISH_STREAM, EVENT, 2);
  expect_not_ready(OWNER);
  dismiss(OWNER, PROCESSES);
}

CHILD_TEST(importing_an_event_twice_gives_one_event) {
  share_event(1);
  CALL_OK(FIRST, CLOSE_GATE, EVENT, 1);
  CALL_OK(FIRST, RECORD, EVENT, 1);
  CALL_OK(FIRST, IMPORT_AGAIN, EVENT, 0);
  expect_not_ready(FIRST);
  CALL_OK(FIRST, RECORD, EVENT, 2);
  CALL_OK(FIRST, QUERY, EVENT, 0);
  CALL_OK(FIRST, DESTROY, EVENT, 0);
  CALL_OK(FIRST, OPEN_GATE, EVENT, 1);
  expect_reached(OWNER);
  dismiss(OWNER, SECOND);
}

/* ---- closing events -------------------------------------------------------------------------- */

CHILD_TEST(a_recorder_may_close_the_event_before_it_is_reached) {
  share_event(1);
  record_behind_gate(FIRST, 1);
  CALL_OK(FIRST, DESTROY, EVENT, 0);
  expect_not_ready(OWNER);
  CALL_OK(FIRST, IMPORT, EVENT, 0);
  expect_not_ready(FIRST);
  CALL_OK(FIRST, OPEN_GATE, EVENT, 1);
  expect_reached(FIRST);
  expect_reached(OWNER);
  dismiss(OWNER, SECOND);
}

/* As long as any process waits, and even if no process looked before the recorder was gone. */
CHILD_TEST(finished_recordings_are_known_after_the_recorder_is_gone) {
  share_event(2);
  record_behind_gate(FIRST, 1);
  CALL_OK(FIRST, OPEN_GATE, EVENT, 1);
  CALL_OK(FIRST, FINISH_STREAM, EVENT, 1);
  remote_dismiss(&processes[FIRST]);
  expect_reached(OWNER);
  CALL_OK(SECOND, RECORD, EVENT, 1);
  helper_kill(&processes[SECOND]);
  expect_reached(OWNER);
  remote_dismiss(&processes[OWNER]);
}

CHILD_TEST(importers_continue_when_the_owner_closes_the_event) {
  share_event(2);
  CALL_OK(OWNER, DESTROY, EVENT, 0);
  wait_for_each_other(FIRST, SECOND);
  wait_for_each_other(SECOND, FIRST);
  CALL_OK(OWNER, CREATE, EVENT + 1, 0); /* in another entry */
  CALL_OK(OWNER, CLOSE_GATE, EVENT + 1, 1);
  CALL_OK(OWNER, RECORD, EVENT + 1, 1);
  wait_for_each_other(FIRST, SECOND);
  remote_dismiss(&processes[FIRST]);
  remote_dismiss(&processes[SECOND]);
  helper_kill(&processes[OWNER]);
}

CHILD_TEST(importers_continue_when_the_owner_is_killed) {
  share_event(2);
  record_behind_gate(FIRST, 1);
  helper_kill(&processes[OWNER]);
  expect_not_ready(SECOND);
  CALL_OK(FIRST, OPEN_GATE, EVENT, 1);
  expect_reached(SECOND);
  wait_for_each_other(FIRST, SECOND);
  wait_for_each_other(SECOND, FIRST);
  dismiss(FIRST, PROCESSES);
}

CHILD_TEST(dropped_work_of_an_importer_was_not_reached) {
  share_event(1);
  CALL_OK(FIRST, OCCUPY, EVENT, 1);
  CALL_OK(FIRST, RECORD, EVENT, 1);
  expect_not_ready(OWNER);
  CALL_OK(FIRST, DESTROY, EVENT, 0);
  CALL_OK(FIRST, SHUT_DOWN, EVENT, 0);
  expect_not_ready(OWNER);
  remote_dismiss(&processes[FIRST]);
  expect_failure(OWNER);
  remote_dismiss(&processes[OWNER]);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

CHILD_TEST(the_death_of_a_recorder_ends_waits_with_an_error) {
  share_event(2);
  record_behind_gate(FIRST, 1);
  CALL_OK(OWNER, WAIT, EVENT, 2);
  remote_begin_call(&processes[SECOND], SYNCHRONIZE, EVENT, 0);
  helper_kill(&processes[FIRST]);
  REQUIRE((openreg_status)helper_receive(&processes[SECOND]) == OPENREG_LAUNCH_FAILURE);
  EXPECT(OWNER, LAUNCH_FAILURE, FINISH_STREAM, EVENT, 2);
  expect_failure(OWNER);
  expect_failure(SECOND);
  CALL_OK(SECOND, RECORD, EVENT, 1);
  expect_reached(OWNER);
  expect_reached(SECOND);
  remote_dismiss(&processes[OWNER]);
  remote_dismiss(&processes[SECOND]);
}

CHILD_TEST(the_death_of_an_unknown_recorder_is_an_error) {
  share_event(1);
  record_behind_gate(FIRST, 1);
  helper_kill(&processes[FIRST]);
  expect_failure(OWNER);
  EXPECT(OWNER, LAUNCH_FAILURE, WAIT, EVENT, 2);
  record_behind_gate(OWNER, 1);
  expect_not_ready(OWNER);
  CALL_OK(OWNER, OPEN_GATE, EVENT, 1);
  expect_reached(OWNER);
  remote_dismiss(&processes[OWNER]);
}

CHILD_TEST(recorders_that_died_are_not_kept) {
  enum { DEATHS = 8 };
  board_make();
  helper recorders[DEATHS];
  for (int i = 0; i < DEATHS; i++)
    recorders[i] = remote_start();
  openreg_event *event;
  REQUIRE_OK(openreg_event_create(0, false, &event));
  REQUIRE_OK(openreg_event_export(event, &board->handles[EVENT]));
  int descriptors = 0;
  for (int i = 0; i < DEATHS; i++) {
    REQUIRE_OK(remote_call(&recorders[i], IMPORT, EVENT, 0));
    REQUIRE_OK(remote_call(&recorders[i], CLOSE_GATE, EVENT, 1));
    REQUIRE_OK(remote_call(&recorders[i], RECORD, EVENT, 1));
    REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
    helper_kill(&recorders[i]);
    REQUIRE(openreg_event_synchronize(event) == OPENREG_LAUNCH_FAILURE);
    if (i == 0)
      descriptors = count_descriptors();
  }
  /* Each death closes two pipes of the helper. A thread closes its files later. */
  while (count_descriptors() > descriptors - 2 * (DEATHS - 1))
    sched_yield();
  openreg_event_destroy(event);
}

/* ---- unexpected words ------------------------------------------------------------------------ */

/* The test itself is the owner, and writes words that no process would write. */
static openreg_event *share_own_event(struct openreg_export **entry) {
  struct openreg_export *entries;
  openreg_event *event;
  REQUIRE_OK(openreg_event_create(0, false, &event));
  REQUIRE_OK(openreg_event_export(event, &board->handles[EVENT]));
  REQUIRE_OK(openreg_exports_map(openreg_arena_file(0), arena_bytes(), &entries));
  *entry = &entries[0];
  return event;
}

/* A process that has the slot of a dead recorder, and an entry for the same event at the same
 * index, is not mistaken for the dead recorder. */
CHILD_TEST(a_process_in_the_slot_of_a_dead_recorder_is_not_mistaken_for_it) {
  struct openreg_export *entry;
  board_make();
  helper dead = remote_start(), living = remote_start();
  openreg_event *event = share_own_event(&entry);
  REQUIRE_OK(remote_call(&dead, IMPORT, EVENT, 0));
  REQUIRE_OK(remote_call(&dead, CLOSE_GATE, EVENT, 1));
  REQUIRE_OK(remote_call(&dead, RECORD, EVENT, 1));
  uint64_t left = atomic_load(&entry->latest);
  helper_kill(&dead);
  REQUIRE_OK(remote_call(&living, IMPORT, EVENT, 0));
  REQUIRE_OK(remote_call(&living, CLOSE_GATE, EVENT, 1));
  REQUIRE_OK(remote_call(&living, RECORD, EVENT, 1));
  uint64_t now = atomic_load(&entry->latest);
  REQUIRE((uint32_t)(now >> 1 & 0x1ffffff) == (uint32_t)(left >> 1 & 0x1ffffff) && now != left);
  REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
  atomic_store(&entry->latest, left);
  REQUIRE(openreg_event_query(event) == OPENREG_LAUNCH_FAILURE);
  REQUIRE(strstr(openreg_last_error(), "ended before it finished the work on its device 0") !=
          NULL);
  atomic_store(&entry->latest, now);
  REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
  REQUIRE_OK(remote_call(&living, OPEN_GATE, EVENT, 1));
  REQUIRE_OK(openreg_event_synchronize(event));
  remote_dismiss(&living);
  openreg_event_destroy(event);
}

static bool is_an_answer(openreg_status status) {
  return status == OPENREG_OK || status == OPENREG_NOT_READY || status == OPENREG_LAUNCH_FAILURE;
}

static uint64_t draw_word(uint64_t honest) {
  uint64_t noise = (uint64_t)rand() << 33 ^ (uint64_t)rand() << 13 ^ (uint64_t)rand();
  switch (rand() % 4) {
  case 0:
    return noise;
  case 1:
    return honest ^ (uint64_t)1 << rand() % 64;
  case 2:
    return (honest & ~(uint64_t)0xffff) | (noise & 0xfffe); /* other entries */
  default:
    return (honest & ~(uint64_t)0x3ff0000) | (noise & 0x3ff0000); /* other processes */
  }
}

CHILD_TEST(unknown_words_are_handled_and_change_nothing) {
  enum { WORDS = 20000 };
  struct openreg_export *entry;
  board_make();
  helper recorder = remote_start();
  openreg_event *event = share_own_event(&entry);
  REQUIRE_OK(remote_call(&recorder, IMPORT, EVENT, 0));
  REQUIRE_OK(remote_call(&recorder, CLOSE_GATE, EVENT, 1));
  REQUIRE_OK(remote_call(&recorder, RECORD, EVENT, 1));
  REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
  uint64_t honest = atomic_load(&entry->latest);
  int descriptors = count_descriptors();
  for (int i = 0; i < WORDS; i++) {
    atomic_store(&entry->latest, draw_word(honest));
    REQUIRE(is_an_answer(openreg_event_query(event)));
  }
  atomic_store(&entry->latest, honest);
  REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
  REQUIRE(count_descriptors() == descriptors);
  REQUIRE_OK(remote_call(&recorder, OPEN_GATE, EVENT, 1));
  REQUIRE_OK(openreg_event_synchronize(event));
  remote_dismiss(&recorder);
  openreg_event_destroy(event);
}

/* ---- entries --------------------------------------------------------------------------------- */

CHILD_TEST(recordings_leave_no_entries) {
  enum { MANY = (int)OPENREG_EXPORT_COUNT + 1 };
  board_make();
  helper owner = remote_start();
  REQUIRE_OK(remote_call(&owner, CREATE, EVENT, 0));
  for (int i = 0; i < MANY; i++) {
    openreg_event *event;
    REQUIRE_OK(openreg_event_import(&board->handles[EVENT], &event));
    REQUIRE_OK(openreg_event_record(event, 0));
    openreg_event_destroy(event);
  }
  REQUIRE_OK(remote_call(&owner, QUERY, EVENT, 0));
  remote_dismiss(&owner);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_other_processes_wait_for_a_recording),
      cmocka_unit_test(a_wait_that_sleeps_is_ended_by_an_importers_record),
      cmocka_unit_test(only_the_latest_record_counts),
      cmocka_unit_test(a_recording_on_an_idle_stream_replaces_pending_ones),
      cmocka_unit_test(recording_again_does_not_change_what_waits),
      cmocka_unit_test(importing_an_event_twice_gives_one_event),
      cmocka_unit_test(a_recorder_may_close_the_event_before_it_is_reached),
      cmocka_unit_test(finished_recordings_are_known_after_the_recorder_is_gone),
      cmocka_unit_test(importers_continue_when_the_owner_closes_the_event),
      cmocka_unit_test(importers_continue_when_the_owner_is_killed),
      cmocka_unit_test(dropped_work_of_an_importer_was_not_reached),
      cmocka_unit_test(the_death_of_a_recorder_ends_waits_with_an_error),
      cmocka_unit_test(the_death_of_an_unknown_recorder_is_an_error),
      cmocka_unit_test(recorders_that_died_are_not_kept),
      cmocka_unit_test(a_process_in_the_slot_of_a_dead_recorder_is_not_mistaken_for_it),
      cmocka_unit_test(unknown_words_are_handled_and_change_nothing),
      cmocka_unit_test(recordings_leave_no_entries),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
