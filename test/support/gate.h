/* gate.h: functions for streams that wait until the test opens a gate, so that work queued behind
 * them stays queued as long as the test needs.
 */
#ifndef OPENREG_TEST_GATE_H
#define OPENREG_TEST_GATE_H

#include "child.h"
#include "device/device.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct gate {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool reached, open;
} gate;

#define GATE_CLOSED                                                                                \
  { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER }

/* Function for openreg_stream_launch: waits at the gate until it is open. */
openreg_status gate_pass(void *gate);

/* Returns when a function waits at the gate. */
void gate_await(gate *gate);

void gate_open(gate *gate);

/* Launches gate_pass and waits until it is running. */
void gate_close_stream(gate *gate, int device, int stream);

/* Functions for openreg_stream_launch: add 1 to an _Atomic int, or fail. */
openreg_status count_up(void *counter);
openreg_status fail_with_message(void *message);

#endif
