/* Events of several processes, which each of them records. */
#include "device/ipc/exports.h"
#include "puppet.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT = 0 };

/* ---- who is there ---------------------------------------------------------------------------- */

enum { OWNER, FIRST, SECOND, PUPPETS };

static actor puppets[PUPPETS];

#define TELL(who, ...)         tell(&puppets[who], __VA_ARGS__)
#define TELL_OK(who, ...)      REQUIRE_OK(TELL(who, __VA_ARGS__))
#define EXPECT(who, wait, ...) REQUIRE(TELL(who, __VA_ARGS__) == OPENREG_##wait)

/* One process creates an event, and `importers` others import it. */
static void share_event(int importers) {
  board_make();
  for (int i = 0; i <= importers; i++)
    puppets[i] = puppet_start();
  TELL_OK(OWNER, CREATE, EVENT, 0);
  for (int i = 1; i <= importers; i++)
    TELL_OK(i, IMPORT, EVENT, 0);
}

static void dismiss(int first, int end) {
  for (int i = first; i < end; i++)
    puppet_dismiss(&puppets[i]);
}

/* A record that is not done: of this process on a stream whose gate is closed. */
static void record_behind_gate(int who, int stream) {
  TELL_OK(who, CLOSE_GATE, EVENT, stream);
  TELL_OK(who, RECORD, EVENT, stream);
}

static void expect_not_ready(int who) {
  EXPECT(who, NOT_READY, QUERY, EVENT, 0);
  EXPECT(who, NOT_READY, LOOK, EVENT, 0);
}

static void expect_reached(int who) {
  TELL_OK(who, SYNCHRONIZE, EVENT, 0);
  TELL_OK(who, QUERY, EVENT, 0);
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
  TELL_OK(waiter, WAIT, EVENT, 2);
  EXPECT(waiter, NOT_READY, QUERY_STREAM, EVENT, 2);
  TELL_OK(recorder, OPEN_GATE, EVENT, 1);
  TELL_OK(waiter, FINISH_STREAM, EVENT, 2);
  expect_reached(waiter);
  expect_reached(recorder);
}

CHILD_TEST(whoever_records_is_waited_for_by_the_others) {
  share_event(2);
  for (int recorder = OWNER; recorder < PUPPETS; recorder++)
    for (int waiter = OWNER; waiter < PUPPETS; waiter++)
      if (waiter != recorder)
        wait_for_each_other(recorder, waiter);
  dismiss(OWNER, PUPPETS);
}

CHILD_TEST(a_wait_that_sleeps_is_ended_by_an_importers_record) {
  share_event(1);
  record_behind_gate(FIRST, 1);
  begin_to_tell(&puppets[OWNER], SYNCHRONIZE, EVENT, 0);
  TELL_OK(FIRST, OPEN_GATE, EVENT, 1);
  REQUIRE_OK((openreg_status)actor_hear(&puppets[OWNER]));
  dismiss(OWNER, SECOND);
}

static void expect_latest_counts(int earlier, int later) {
  record_behind_gate(earlier, 1);
  record_behind_gate(later, 1);
  TELL_OK(earlier, OPEN_GATE, EVENT, 1);
  TELL_OK(earlier, FINISH_STREAM, EVENT, 1);
  for (int who = OWNER; who < PUPPETS; who++)
    expect_not_ready(who);
  TELL_OK(later, OPEN_GATE, EVENT, 1);
  for (int who = OWNER; who < PUPPETS; who++)
    expect_reached(who);
}

CHILD_TEST(only_the_latest_record_counts) {
  share_event(2);
  expect_latest_counts(OWNER, FIRST);
  expect_latest_counts(FIRST, OWNER);
  expect_latest_counts(FIRST, SECOND);
  dismiss(OWNER, PUPPETS);
}

CHILD_TEST(a_record_on_an_idle_stream_makes_others_count_no_more) {
  share_event(2);
  record_behind_gate(FIRST, 1);
  TELL_OK(SECOND, RECORD, EVENT, 2);
  for (int who = OWNER; who < PUPPETS; who++)
    expect_reached(who);
  dismiss(OWNER, PUPPETS);
}

CHILD_TEST(recording_again_does_not_change_what_waits) {
  share_event(2);
  record_behind_gate(FIRST, 1);
  TELL_OK(OWNER, WAIT, EVENT, 2);
  record_behind_gate(SECOND, 1);
  EXPECT(OWNER, NOT_READY, QUERY_STREAM, EVENT, 2);
  TELL_OK(FIRST, OPEN_GATE, EVENT, 1);
  TELL_OK(OWNER, FINISH_STREAM, EVENT, 2);
  expect_not_ready(OWNER);
  dismiss(OWNER, PUPPETS);
}

CHILD_TEST(an_event_that_was_imported_twice_is_one) {
  share_event(1);
  TELL_OK(FIRST, CLOSE_GATE, EVENT, 1);
  TELL_OK(FIRST, RECORD, EVENT, 1);
  TELL_OK(FIRST, IMPORT_AGAIN, EVENT, 0);
  expect_not_ready(FIRST);
  TELL_OK(FIRST, RECORD, EVENT, 2);
  TELL_OK(FIRST, QUERY, EVENT, 0);
  TELL_OK(FIRST, DESTROY, EVENT, 0);
  TELL_OK(FIRST, OPEN_GATE, EVENT, 1);
  expect_reached(OWNER);
  dismiss(OWNER, SECOND);
}

/* ---- letting go ------------------------------------------------------------------------------ */

CHILD_TEST(a_recorder_may_let_go_before_the_record_is_reached) {
  share_event(1);
  record_behind_gate(FIRST, 1);
  TELL_OK(FIRST, DESTROY, EVENT, 0);
  expect_not_ready(OWNER);
  TELL_OK(FIRST, IMPORT, EVENT, 0);
  expect_not_ready(FIRST);
  TELL_OK(FIRST, OPEN_GATE, EVENT, 1);
  expect_reached(FIRST);
  expect_reached(OWNER);
  dismiss(OWNER, SECOND);
}

/* As long as anybody waits, and with nobody having looked before the recorder is gone. */
CHILD_TEST(what_was_done_is_known_when_the_recorder_is_gone) {
  share_event(2);
  record_behind_gate(FIRST, 1);
  TELL_OK(FIRST, OPEN_GATE, EVENT, 1);
  TELL_OK(FIRST, FINISH_STREAM, EVENT, 1);
  puppet_dismiss(&puppets[FIRST]);
  expect_reached(OWNER);
  TELL_OK(SECOND, RECORD, EVENT, 1);
  actor_kill(&puppets[SECOND]);
  expect_reached(OWNER);
  puppet_dismiss(&puppets[OWNER]);
}

CHILD_TEST(importers_go_on_when_the_owner_has_let_go) {
  share_event(2);
  TELL_OK(OWNER, DESTROY, EVENT, 0);
  wait_for_each_other(FIRST, SECOND);
  wait_for_each_other(SECOND, FIRST);
  TELL_OK(OWNER, CREATE, EVENT + 1, 0); /* in another entry */
  TELL_OK(OWNER, CLOSE_GATE, EVENT + 1, 1);
  TELL_OK(OWNER, RECORD, EVENT + 1, 1);
  wait_for_each_other(FIRST, SECOND);
  puppet_dismiss(&puppets[FIRST]);
  puppet_dismiss(&puppets[SECOND]);
  actor_kill(&puppets[OWNER]);
}

CHILD_TEST(importers_go_on_when_the_owner_is_killed) {
  share_event(2);
  record_behind_gate(FIRST, 1);
  actor_kill(&puppets[OWNER]);
  expect_not_ready(SECOND);
  TELL_OK(FIRST, OPEN_GATE, EVENT, 1);
  expect_reached(SECOND);
  wait_for_each_other(FIRST, SECOND);
  wait_for_each_other(SECOND, FIRST);
  dismiss(FIRST, PUPPETS);
}

CHILD_TEST(dropped_work_of_an_importer_was_not_reached) {
  share_event(1);
  TELL_OK(FIRST, OCCUPY, EVENT, 1);
  TELL_OK(FIRST, RECORD, EVENT, 1);
  expect_not_ready(OWNER);
  TELL_OK(FIRST, DESTROY, EVENT, 0);
  TELL_OK(FIRST, SHUT_DOWN, EVENT, 0);
  expect_not_ready(OWNER);
  puppet_dismiss(&puppets[FIRST]);
  expect_failure(OWNER);
  puppet_dismiss(&puppets[OWNER]);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

CHILD_TEST(the_death_of_a_recorder_ends_waits_with_an_error) {
  share_event(2);
  record_behind_gate(FIRST, 1);
  TELL_OK(OWNER, WAIT, EVENT, 2);
  begin_to_tell(&puppets[SECOND], SYNCHRONIZE, EVENT, 0);
  actor_kill(&puppets[FIRST]);
  REQUIRE((openreg_status)actor_hear(&puppets[SECOND]) == OPENREG_LAUNCH_FAILURE);
  EXPECT(OWNER, LAUNCH_FAILURE, FINISH_STREAM, EVENT, 2);
  expect_failure(OWNER);
  expect_failure(SECOND);
  TELL_OK(SECOND, RECORD, EVENT, 1);
  expect_reached(OWNER);
  expect_reached(SECOND);
  puppet_dismiss(&puppets[OWNER]);
  puppet_dismiss(&puppets[SECOND]);
}

CHILD_TEST(the_death_of_a_recorder_that_nobody_met_is_an_error) {
  share_event(1);
  record_behind_gate(FIRST, 1);
  actor_kill(&puppets[FIRST]);
  expect_failure(OWNER);
  EXPECT(OWNER, LAUNCH_FAILURE, WAIT, EVENT, 2);
  record_behind_gate(OWNER, 1);
  expect_not_ready(OWNER);
  TELL_OK(OWNER, OPEN_GATE, EVENT, 1);
  expect_reached(OWNER);
  puppet_dismiss(&puppets[OWNER]);
}

CHILD_TEST(recorders_that_died_are_not_kept) {
  enum { DEATHS = 8 };
  board_make();
  actor recorders[DEATHS];
  for (int i = 0; i < DEATHS; i++)
    recorders[i] = puppet_start();
  openreg_event *event;
  REQUIRE_OK(openreg_event_create(0, false, &event));
  REQUIRE_OK(openreg_event_export(event, &board->handles[EVENT]));
  int descriptors = 0;
  for (int i = 0; i < DEATHS; i++) {
    REQUIRE_OK(tell(&recorders[i], IMPORT, EVENT, 0));
    REQUIRE_OK(tell(&recorders[i], CLOSE_GATE, EVENT, 1));
    REQUIRE_OK(tell(&recorders[i], RECORD, EVENT, 1));
    REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
    actor_kill(&recorders[i]);
    REQUIRE(openreg_event_synchronize(event) == OPENREG_LAUNCH_FAILURE);
    if (i == 0)
      descriptors = count_descriptors();
  }
  /* Each death closes two pipes of the actor's; files are let go of by a thread. */
  while (count_descriptors() > descriptors - 2 * (DEATHS - 1))
    sched_yield();
  openreg_event_destroy(event);
}

/* ---- words that others may have left --------------------------------------------------------- */

/* The owner is the test itself, which writes what no process would. */
static openreg_event *share_own_event(struct openreg_export **entry) {
  struct openreg_export *entries;
  openreg_event *event;
  REQUIRE_OK(openreg_event_create(0, false, &event));
  REQUIRE_OK(openreg_event_export(event, &board->handles[EVENT]));
  REQUIRE_OK(openreg_exports_map(openreg_arena_file(0), arena_bytes(), &entries));
  *entry = &entries[0];
  return event;
}

/* A process that has come to the place of a dead recorder, and has an entry for the same event
 * where that had its own, is not taken for it. */
CHILD_TEST(a_process_in_the_place_of_a_dead_recorder_is_another) {
  struct openreg_export *entry;
  board_make();
  actor dead = puppet_start(), living = puppet_start();
  openreg_event *event = share_own_event(&entry);
  REQUIRE_OK(tell(&dead, IMPORT, EVENT, 0));
  REQUIRE_OK(tell(&dead, CLOSE_GATE, EVENT, 1));
  REQUIRE_OK(tell(&dead, RECORD, EVENT, 1));
  uint64_t left = atomic_load(&entry->latest);
  actor_kill(&dead);
  REQUIRE_OK(tell(&living, IMPORT, EVENT, 0));
  REQUIRE_OK(tell(&living, CLOSE_GATE, EVENT, 1));
  REQUIRE_OK(tell(&living, RECORD, EVENT, 1));
  uint64_t now = atomic_load(&entry->latest);
  REQUIRE((uint32_t)(now >> 1 & 0x1ffffff) == (uint32_t)(left >> 1 & 0x1ffffff) && now != left);
  REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
  atomic_store(&entry->latest, left);
  REQUIRE(openreg_event_query(event) == OPENREG_LAUNCH_FAILURE);
  REQUIRE(strstr(openreg_last_error(), "has ended before the work on its device 0") != NULL);
  atomic_store(&entry->latest, now);
  REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
  REQUIRE_OK(tell(&living, OPEN_GATE, EVENT, 1));
  REQUIRE_OK(openreg_event_synchronize(event));
  puppet_dismiss(&living);
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

CHILD_TEST(words_that_name_nobody_are_answered_and_touch_nothing) {
  enum { WORDS = 20000 };
  struct openreg_export *entry;
  board_make();
  actor recorder = puppet_start();
  openreg_event *event = share_own_event(&entry);
  REQUIRE_OK(tell(&recorder, IMPORT, EVENT, 0));
  REQUIRE_OK(tell(&recorder, CLOSE_GATE, EVENT, 1));
  REQUIRE_OK(tell(&recorder, RECORD, EVENT, 1));
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
  REQUIRE_OK(tell(&recorder, OPEN_GATE, EVENT, 1));
  REQUIRE_OK(openreg_event_synchronize(event));
  puppet_dismiss(&recorder);
  openreg_event_destroy(event);
}

/* ---- entries --------------------------------------------------------------------------------- */

CHILD_TEST(records_leave_no_entries) {
  enum { MANY = (int)OPENREG_EXPORT_COUNT + 1 };
  board_make();
  actor owner = puppet_start();
  REQUIRE_OK(tell(&owner, CREATE, EVENT, 0));
  for (int i = 0; i < MANY; i++) {
    openreg_event *event;
    REQUIRE_OK(openreg_event_import(&board->handles[EVENT], &event));
    REQUIRE_OK(openreg_event_record(event, 0));
    openreg_event_destroy(event);
  }
  REQUIRE_OK(tell(&owner, QUERY, EVENT, 0));
  puppet_dismiss(&owner);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whoever_records_is_waited_for_by_the_others),
      cmocka_unit_test(a_wait_that_sleeps_is_ended_by_an_importers_record),
      cmocka_unit_test(only_the_latest_record_counts),
      cmocka_unit_test(a_record_on_an_idle_stream_makes_others_count_no_more),
      cmocka_unit_test(recording_again_does_not_change_what_waits),
      cmocka_unit_test(an_event_that_was_imported_twice_is_one),
      cmocka_unit_test(a_recorder_may_let_go_before_the_record_is_reached),
      cmocka_unit_test(what_was_done_is_known_when_the_recorder_is_gone),
      cmocka_unit_test(importers_go_on_when_the_owner_has_let_go),
      cmocka_unit_test(importers_go_on_when_the_owner_is_killed),
      cmocka_unit_test(dropped_work_of_an_importer_was_not_reached),
      cmocka_unit_test(the_death_of_a_recorder_ends_waits_with_an_error),
      cmocka_unit_test(the_death_of_a_recorder_that_nobody_met_is_an_error),
      cmocka_unit_test(recorders_that_died_are_not_kept),
      cmocka_unit_test(a_process_in_the_place_of_a_dead_recorder_is_another),
      cmocka_unit_test(words_that_name_nobody_are_answered_and_touch_nothing),
      cmocka_unit_test(records_leave_no_entries),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
