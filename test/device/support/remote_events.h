/* remote_events.h: helpers (helper.h) that execute event operations on request.
 *
 * Events and streams have small numbers, which mean the same to all helpers: event i belongs to the
 * board's handle i. Streams are those of device 0.
 */
#ifndef OPENREG_TEST_REMOTE_EVENTS_H
#define OPENREG_TEST_REMOTE_EVENTS_H

#include "board.h"

enum { REMOTE_EVENTS = 8, REMOTE_STREAMS = 4 };

enum remote_operation {
  CREATE,        /* creates an event and exports it */
  IMPORT,        /* imports an event */
  IMPORT_AGAIN,  /* imports an event a second time, and uses the second import */
  DESTROY,       /* destroys an event */
  RECORD,        /* records an event on a stream */
  WAIT,          /* makes a stream wait for an event */
  QUERY,         /* queries an event */
  SYNCHRONIZE,   /* synchronizes with an event */
  LOOK,          /* waits for an event, for a millisecond */
  CLOSE_GATE,    /* closes a gate on a stream: work behind it is not done */
  OPEN_GATE,     /* opens the gate of a stream that was closed first */
  QUERY_STREAM,  /* queries a stream */
  FINISH_STREAM, /* synchronizes a stream */
  OCCUPY,        /* occupies a stream until streams are shut down */
  SHUT_DOWN,     /* shuts down streams */
  LEAVE,         /* calls exit() */
};

/* Call it after board_make and before this process initializes devices. */
helper remote_start(void);

/* Executes an operation in the helper and returns its status. */
openreg_status remote_call(helper *process, enum remote_operation operation, int event, int stream);

/* Starts an operation and returns. helper_receive gets its status. */
void remote_begin_call(helper *process, enum remote_operation operation, int event, int stream);

/* Ends the helper and waits for its end. */
void remote_dismiss(helper *process);

#endif
