/* Processes that record and wait for each other's events at random. First one step at a time,
 * compared with a model of all waits; then concurrently, with some of them killed.
 */
#define _GNU_SOURCE
#include "remote_events.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t seed;

static int below(int end) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return (int)(seed % (uint64_t)end);
}

/* ---- the model ------------------------------------------------------------------------------- */

enum { PROCESSES = 3, EVENTS = 2, STREAMS = 3, STEPS = 600, ROUNDS = 4, MOST_GATES = 3, NONE = -1 };

/* A piece of work in a stream, in order of submission. It is done when it and everything before it
 * is done. */
struct item {
  enum { GATE, WAIT_FOR, RECORDED } kind;
  bool open; /* of a gate */
  int record;
};

struct record {
  int process, event, stream, position; /* in the stream's items */
};

static struct {
  struct item items[PROCESSES][STREAMS][STEPS + 1];
  int submitted[PROCESSES][STREAMS], done[PROCESSES][STREAMS];
  struct record records[STEPS];
  int record_count;
  int latest[EVENTS];
} model;

static bool is_done(const struct record *record) {
  return model.done[record->process][record->stream] > record->position;
}

/* The recording process sees a recording as it is. Other processes see it as reached only when all
 * earlier recordings of that process are reached too. */
static bool is_reached(int record, int seen_by) {
  const struct record *asked = &model.records[record];
  if (asked->process == seen_by)
    return is_done(asked);
  for (int i = 0; i <= record; i++) {
    const struct record *other = &model.records[i];
    if (other->process == asked->process && other->event == asked->event && !is_done(other))
      return false;
  }
  return true;
}

static bool is_item_done(int process, const struct item *item) {
  switch (item->kind) {
  case GATE:
    return item->open;
  case WAIT_FOR:
    return is_reached(item->record, process);
  default:
    return true;
  }
}

static bool advance_one(void) {
  for (int process = 0; process < PROCESSES; process++)
    for (int stream = 0; stream < STREAMS; stream++) {
      int *done = &model.done[process][stream];
      if (*done < model.submitted[process][stream] &&
          is_item_done(process, &model.items[process][stream][*done])) {
        ++*done;
        return true;
      }
    }
  return false;
}

static void submit(int process, int stream, struct item item) {
  model.items[process][stream][model.submitted[process][stream]++] = item;
}

/* The gate of a stream that was closed first (NULL if all are open), and the number of closed
 * gates. */
static struct item *find_gate(int process, int stream, int *closed) {
  struct item *first = NULL;
  *closed = 0;
  for (int i = model.submitted[process][stream] - 1; i >= 0; i--) {
    struct item *item = &model.items[process][stream][i];
    if (item->kind != GATE || item->open)
      continue;
    first = item;
    ++*closed;
  }
  return first;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static helper processes[PROCESSES];

static void close_or_open_gate(int process, int stream) {
  int closed;
  struct item *first = find_gate(process, stream, &closed);
  if (closed == MOST_GATES || (closed > 0 && below(2) == 0)) {
    REQUIRE_OK(remote_call(&processes[process], OPEN_GATE, 0, stream));
    first->open = true;
  } else {
    REQUIRE_OK(remote_call(&processes[process], CLOSE_GATE, 0, stream));
    submit(process, stream, (struct item){.kind = GATE});
  }
}

static void record(int process, int stream, int event) {
  REQUIRE_OK(remote_call(&processes[process], RECORD, event, stream));
  int number = model.record_count++;
  model.records[number] = (struct record){.process = process,
                                          .event = event,
                                          .stream = stream,
                                          .position = model.submitted[process][stream]};
  model.latest[event] = number;
  submit(process, stream, (struct item){.kind = RECORDED});
}

static void wait_for(int process, int stream, int event) {
  REQUIRE_OK(remote_call(&processes[process], WAIT, event, stream));
  if (model.latest[event] != NONE)
    submit(process, stream, (struct item){.kind = WAIT_FOR, .record = model.latest[event]});
}

/* What is pending in the model must be pending. What is done in the model may take a moment. */
static void compare(int process, int stream, int event) {
  int latest = model.latest[event];
  if (latest == NONE || is_reached(latest, process))
    REQUIRE_OK(remote_call(&processes[process], SYNCHRONIZE, event, 0));
  else
    REQUIRE(remote_call(&processes[process], QUERY, event, 0) == OPENREG_NOT_READY);
  if (model.done[process][stream] == model.submitted[process][stream])
    REQUIRE_OK(remote_call(&processes[process], FINISH_STREAM, 0, stream));
  else
    REQUIRE(remote_call(&processes[process], QUERY_STREAM, 0, stream) == OPENREG_NOT_READY);
}

static void open_all(void) {
  for (int process = 0; process < PROCESSES; process++)
    for (int stream = 0; stream < STREAMS; stream++)
      for (int closed; find_gate(process, stream, &closed) != NULL;) {
        find_gate(process, stream, &closed)->open = true;
        REQUIRE_OK(remote_call(&processes[process], OPEN_GATE, 0, stream));
      }
  while (advance_one())
    ;
  for (int process = 0; process < PROCESSES; process++)
    for (int stream = 0; stream < STREAMS; stream++) {
      REQUIRE(model.done[process][stream] == model.submitted[process][stream]);
      REQUIRE_OK(remote_call(&processes[process], FINISH_STREAM, 0, stream));
    }
}

static void start_round(void) {
  memset(&model, 0, sizeof model);
  for (int event = 0; event < EVENTS; event++)
    model.latest[event] = NONE;
  for (int i = 0; i < PROCESSES; i++)
    processes[i] = remote_start();
  for (int event = 0; event < EVENTS; event++) {
    REQUIRE_OK(remote_call(&processes[event], CREATE, event, 0));
    for (int i = 0; i < PROCESSES; i++)
      if (i != event)
        REQUIRE_OK(remote_call(&processes[i], IMPORT, event, 0));
  }
}

static void play_round(void) {
  start_round();
  for (int step = 0; step < STEPS; step++) {
    int process = below(PROCESSES), stream = below(STREAMS), event = below(EVENTS);
    switch (below(4)) {
    case 0:
      close_or_open_gate(process, stream);
      break;
    case 1:
      wait_for(process, stream, event);
      break;
    default:
      record(process, stream, event);
    }
    while (advance_one())
      ;
    compare(below(PROCESSES), below(STREAMS), below(EVENTS));
  }
  open_all();
  for (int i = 0; i < PROCESSES; i++)
    remote_dismiss(&processes[i]);
}

CHILD_TEST(records_and_waits_of_processes_are_as_in_the_model) {
  board_make();
  for (int round = 0; round < ROUNDS; round++) {
    seed = 0x9e3779b97f4a7c15u * (uint64_t)(round + 1);
    play_round();
  }
}

/* ---- concurrently ---------------------------------------------------------------------------- */

enum { CROWD = 4, KILL_ROUNDS = 10, TURNS = 40 };
enum { ALL_LIVE, SOME_DIE, STOP }; /* board->flag */

static int my_place;
static openreg_event *shared;

static void require_answer(openreg_status status) {
  REQUIRE(status == OPENREG_OK || status == OPENREG_NOT_READY ||
          (status == OPENREG_LAUNCH_FAILURE && board->flag != ALL_LIVE));
}

static openreg_status yield(void *unused) {
  (void)unused;
  sched_yield();
  return OPENREG_OK;
}

static void try_lock_for_reclaiming(void) {
  int stream = below(STREAMS);
  switch (below(5)) {
  case 0:
    REQUIRE_OK(openreg_stream_launch(0, stream, yield, NULL));
    break;
  case 1:
    require_answer(openreg_stream_wait_event(0, stream, shared));
    break;
  case 2:
    require_answer(openreg_event_query(shared));
    break;
  case 3:
    require_answer(openreg_event_synchronize(shared));
    break;
  default:
    REQUIRE_OK(openreg_event_record(shared, stream));
  }
  __atomic_fetch_add(&board->numbers[my_place], 1, __ATOMIC_SEQ_CST);
}

static void be_of_the_crowd(void) {
  seed = (uint64_t)getpid() * 0x9e3779b97f4a7c15u;
  report(0);
  await_cue();
  if (my_place == 0) {
    REQUIRE_OK(openreg_event_create(0, false, &shared));
    REQUIRE_OK(openreg_event_export(shared, &board->handles[0]));
  } else {
    REQUIRE_OK(openreg_event_import(&board->handles[0], &shared));
  }
  report(0);
  await_cue();
  while (board->flag != STOP)
    try_lock_for_reclaiming();
  require_answer(openreg_device_synchronize(0));
  report(0);
  await_cue();
  openreg_event_destroy(shared);
}

static helper crowd[CROWD];
static bool is_dead[CROWD];

static uint64_t turns_of(int place) {
  return __atomic_load_n(&board->numbers[place], __ATOMIC_SEQ_CST);
}

/* All living processes make progress. If one hangs, this waits forever and the test times out. */
static void await_turns(void) {
  uint64_t from[CROWD];
  for (int i = 0; i < CROWD; i++)
    from[i] = turns_of(i);
  for (int i = 0; i < CROWD; i++)
    while (!is_dead[i] && turns_of(i) < from[i] + TURNS)
      sched_yield();
}

static void start_crowd(void) {
  board->flag = ALL_LIVE;
  memset(is_dead, 0, sizeof is_dead);
  for (my_place = 0; my_place < CROWD; my_place++)
    crowd[my_place] = helper_start(be_of_the_crowd);
  for (int i = 0; i < CROWD; i++)
    helper_receive(&crowd[i]);
  for (int i = 0; i < CROWD; i++)
    helper_step(&crowd[i]);
  for (int i = 0; i < CROWD; i++)
    helper_cue(&crowd[i]);
}

static void stop_crowd(void) {
  board->flag = STOP;
  for (int i = 0; i < CROWD; i++)
    if (!is_dead[i])
      helper_receive(&crowd[i]);
  for (int i = 0; i < CROWD; i++)
    if (!is_dead[i])
      helper_dismiss(&crowd[i]);
}

static void play_with_deaths(int deaths) {
  start_crowd();
  await_turns();
  for (int i = 0; i < deaths; i++) {
    int who = below(CROWD);
    board->flag = SOME_DIE;
    if (!is_dead[who])
      helper_kill(&crowd[who]);
    is_dead[who] = true;
    await_turns();
  }
  stop_crowd();
}

CHILD_TEST(concurrent_recordings_do_not_hang) {
  board_make();
  seed = 1;
  play_with_deaths(0);
}

CHILD_TEST(concurrent_recorders_survive_each_others_deaths) {
  board_make();
  seed = 2;
  for (int round = 0; round < KILL_ROUNDS; round++)
    play_with_deaths(CROWD - 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(records_and_waits_of_processes_are_as_in_the_model),
      cmocka_unit_test(concurrent_recordings_do_not_hang),
      cmocka_unit_test(concurrent_recorders_survive_each_others_deaths),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
