/* event.c: points in the work of a stream.
 *
 * Since a device finishes work at once, a recorded event has been reached: what is left of it is
 * the moment, on a clock that never goes back.
 */
#include "internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

struct openreg_event {
  int device;
  _Atomic int64_t reached_ns; /* CLOCK_MONOTONIC; 0: never recorded */
};

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static openreg_status require_event(const openreg_event *event) {
  if (event == NULL)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: the event is NULL");
  return openreg_require_no_bad_fork();
}

openreg_status openreg_event_create(int device, openreg_event **event) {
  openreg_status status = openreg_require_device(device);
  if (status != OPENREG_OK)
    return status;
  openreg_event *created = malloc(sizeof *created);
  if (created == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an event");
  created->device = device;
  atomic_init(&created->reached_ns, 0);
  *event = created;
  return OPENREG_OK;
}

void openreg_event_destroy(openreg_event *event) {
  free(event);
}

openreg_status openreg_event_record(openreg_event *event, int stream) {
  openreg_status status = require_event(event);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status == OPENREG_OK)
    atomic_store(&event->reached_ns, now_ns());
  return status;
}

openreg_status openreg_event_query(const openreg_event *event) {
  return require_event(event);
}

openreg_status openreg_event_synchronize(const openreg_event *event) {
  return require_event(event);
}

openreg_status openreg_stream_wait_event(int device, int stream, const openreg_event *event) {
  openreg_status status = openreg_require_device(device);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status == OPENREG_OK)
    status = require_event(event);
  return status;
}

openreg_status openreg_event_elapsed_ms(const openreg_event *start, const openreg_event *end,
                                        double *milliseconds) {
  openreg_status status = require_event(start);
  if (status == OPENREG_OK)
    status = require_event(end);
  if (status != OPENREG_OK)
    return status;
  if (start->device != end->device)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: the events belong to different devices, %d and %d", start->device,
                        end->device);
  int64_t start_ns = atomic_load(&start->reached_ns);
  int64_t end_ns = atomic_load(&end->reached_ns);
  if (start_ns == 0 || end_ns == 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: the %s event was never recorded",
                        start_ns == 0 ? "first" : "second");
  *milliseconds = (double)(end_ns - start_ns) / 1e6;
  return OPENREG_OK;
}
