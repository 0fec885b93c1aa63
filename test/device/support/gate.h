/* gate.h: functions for streams that wait until a test lets them go on, so that what is queued
 * behind them stays queued for as long as the test wants.
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

/* For openreg_stream_launch: stands before the gate until it is open. */
openreg_status gate_pass(void *gate);

/* Returns when somebody stands before the gate. */
void gate_await(gate *gate);

void gate_open(gate *gate);

/* Launches gate_pass and waits until it runs. */
void gate_close_stream(gate *gate, int device, int stream);

/* For openreg_stream_launch: adds 1 to an _Atomic int, or fails. */
openreg_status count_up(void *counter);
openreg_status fail_with_sentence(void *sentence);

#endif
