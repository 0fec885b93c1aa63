/* Gates for functions on streams. See gate.h. */
#include "gate.h"

openreg_status gate_pass(void *argument) {
  gate *gate = argument;
  pthread_mutex_lock(&gate->lock);
  gate->reached = true;
  pthread_cond_broadcast(&gate->changed);
  while (!gate->open)
    pthread_cond_wait(&gate->changed, &gate->lock);
  pthread_mutex_unlock(&gate->lock);
  return OPENREG_OK;
}

void gate_await(gate *gate) {
  pthread_mutex_lock(&gate->lock);
  while (!gate->reached)
    pthread_cond_wait(&gate->changed, &gate->lock);
  pthread_mutex_unlock(&gate->lock);
}

void gate_open(gate *gate) {
  pthread_mutex_lock(&gate->lock);
  gate->open = true;
  pthread_cond_broadcast(&gate->changed);
  pthread_mutex_unlock(&gate->lock);
}

void gate_close_stream(gate *gate, int device, int stream) {
  REQUIRE_OK(openreg_stream_launch(device, stream, gate_pass, gate));
  gate_await(gate);
}

openreg_status count_up(void *counter) {
  atomic_fetch_add((_Atomic int *)counter, 1);
  return OPENREG_OK;
}

openreg_status fail_with_message(void *message) {
  return openreg_fail(OPENREG_LAUNCH_FAILURE, "%s", (const char *)message);
}
