/* Helpers that execute event operations. See remote_events.h. */
#include "remote_events.h"
#include "device/streams/stream.h"
#include "gate.h"

#include <sched.h>
#include <stdlib.h>

/* Where the operation is stored on the board. */
enum { OPERATION = 0, EVENT = 1, STREAM = 2 };

struct closed_gate {
  gate gate;
  bool was_opened;
  struct closed_gate *next; /* closed later */
};

static openreg_event *events[REMOTE_EVENTS];
static openreg_event *first_events[REMOTE_EVENTS]; /* of events that were imported again */
static struct closed_gate *gates[REMOTE_STREAMS];

static openreg_status close_gate(int stream) {
  struct closed_gate *closed = calloc(1, sizeof *closed), **link = &gates[stream];
  REQUIRE(closed != NULL);
  closed->gate = (gate)GATE_CLOSED;
  while (*link != NULL)
    link = &(*link)->next;
  *link = closed;
  return openreg_stream_launch(0, stream, gate_pass, &closed->gate);
}

static openreg_status open_gate(int stream) {
  struct closed_gate *closed = gates[stream];
  while (closed->was_opened)
    closed = closed->next;
  closed->was_opened = true;
  gate_open(&closed->gate);
  return OPENREG_OK;
}

static openreg_status create(int event) {
  REQUIRE_OK(openreg_event_create(0, false, &events[event]));
  return openreg_event_export(events[event], &board->handles[event]);
}

static openreg_status import_again(int event) {
  first_events[event] = events[event];
  return openreg_event_import(&board->handles[event], &events[event]);
}

static openreg_status destroy(int event) {
  openreg_event_destroy(events[event]);
  openreg_event_destroy(first_events[event]);
  events[event] = first_events[event] = NULL;
  return OPENREG_OK;
}

static openreg_status run_until_shut_down(void *unused) {
  (void)unused;
  while (!openreg_streams_are_shut_down())
    sched_yield();
  return OPENREG_OK;
}

static openreg_status shut_down(void) {
  openreg_streams_shut_down();
  return OPENREG_OK;
}

static openreg_status execute(enum remote_operation operation, int event, int stream) {
  switch (operation) {
  case CREATE:
    return create(event);
  case IMPORT:
    return openreg_event_import(&board->handles[event], &events[event]);
  case IMPORT_AGAIN:
    return import_again(event);
  case DESTROY:
    return destroy(event);
  case RECORD:
    return openreg_event_record(events[event], stream);
  case WAIT:
    return openreg_stream_wait_event(0, stream, events[event]);
  case QUERY:
    return openreg_event_query(events[event]);
  case SYNCHRONIZE:
    return openreg_event_synchronize(events[event]);
  case LOOK:
    return openreg_event_synchronize_for(events[event], 1000000);
  case CLOSE_GATE:
    return close_gate(stream);
  case OPEN_GATE:
    return open_gate(stream);
  case QUERY_STREAM:
    return openreg_stream_query(0, stream);
  case FINISH_STREAM:
    return openreg_stream_synchronize(0, stream);
  case OCCUPY:
    return openreg_stream_launch(0, stream, run_until_shut_down, NULL);
  case SHUT_DOWN:
    return shut_down();
  case LEAVE:
    break;
  }
  exit(0);
}

static void remote_main(void) {
  report(OPENREG_OK);
  for (;;) {
    await_cue();
    enum remote_operation operation = (enum remote_operation)board->numbers[OPERATION];
    int event = (int)board->numbers[EVENT], stream = (int)board->numbers[STREAM];
    report(OPENREG_OK); /* the board may be reused */
    report(execute(operation, event, stream));
  }
}

helper remote_start(void) {
  helper process = helper_start(remote_main);
  helper_receive(&process);
  return process;
}

void remote_begin_call(helper *process, enum remote_operation operation, int event, int stream) {
  board->numbers[OPERATION] = operation;
  board->numbers[EVENT] = (uint64_t)event;
  board->numbers[STREAM] = (uint64_t)stream;
  helper_step(process);
}

openreg_status remote_call(helper *process, enum remote_operation operation, int event,
                           int stream) {
  remote_begin_call(process, operation, event, stream);
  return (openreg_status)helper_receive(process);
}

void remote_dismiss(helper *process) {
  remote_begin_call(process, LEAVE, 0, 0);
  helper_finish(process);
}
