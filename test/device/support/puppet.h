/* puppet.h: actors (actor.h) that do one thing after another with events, as they are told.
 *
 * Events and streams have small numbers, which mean the same to all puppets: event i is the one of
 * the board's handle i. Streams are those of device 0.
 */
#ifndef OPENREG_TEST_PUPPET_H
#define OPENREG_TEST_PUPPET_H

#include "board.h"

enum { PUPPET_EVENTS = 8, PUPPET_STREAMS = 4 };

enum puppet_order {
  CREATE,        /* an event, and export it */
  IMPORT,        /* an event */
  IMPORT_AGAIN,  /* an event that it has, so that it has it twice, and uses the second */
  DESTROY,       /* an event */
  RECORD,        /* an event on a stream */
  WAIT,          /* on a stream for an event */
  QUERY,         /* an event */
  SYNCHRONIZE,   /* with an event */
  LOOK,          /* at an event, for a millisecond */
  CLOSE_GATE,    /* on a stream: what comes behind is not done */
  OPEN_GATE,     /* of a stream, the one that was closed first */
  QUERY_STREAM,  /* a stream */
  FINISH_STREAM, /* a stream */
  OCCUPY,        /* a stream, until streams are shut down */
  SHUT_DOWN,     /* streams */
  LEAVE,         /* by exit() */
};

/* Before the director initializes, and after board_make. */
actor puppet_start(void);

/* Gives an order and returns what became of it. */
openreg_status tell(actor *puppet, enum puppet_order order, int event, int stream);

/* Gives an order and goes on; the answer is to be heard by actor_hear. */
void begin_to_tell(actor *puppet, enum puppet_order order, int event, int stream);

/* Tells it to leave, and waits for its end. */
void puppet_dismiss(actor *puppet);

#endif
