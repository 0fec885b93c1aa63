/* event.h: the structure of events.
 *
 * A recording is one word: stream and point. So it can be queried and waited for while another
 * thread records the event again; a waiter copies the word and no longer needs the event. An event
 * without timing consists only of this word.
 *
 * With timing, the timestamp is taken where the work completes. On an idle stream the recording
 * thread takes it. Otherwise a timestamp task is queued, and the event's point is the one behind
 * that task: an event that was reached has its timestamp. The task holds a reference, so an event
 * may be destroyed before it is reached. Recordings are numbered, and an older one never replaces a
 * newer one, whichever completes first.
 *
 * An event may be shared with other processes, which may record it too. ipc/event_exchange.c then
 * implements its operations, through a table of functions.
 */
#ifndef OPENREG_DEVICE_STREAMS_EVENT_H
#define OPENREG_DEVICE_STREAMS_EVENT_H

#include "device/streams/stream.h"

#include <pthread.h>
#include <stdatomic.h>

#pragma GCC visibility push(hidden)

/* A recording: (point + 1) * 2^STREAM_BITS + stream, NEVER_RECORDED, or CAPTURED (recorded in a
 * capture). */
enum { OPENREG_NEVER_RECORDED = 0, OPENREG_CAPTURED = 1, OPENREG_EVENT_STREAM_BITS = 8 };

_Static_assert(OPENREG_STREAMS_PER_DEVICE <= 1 << OPENREG_EVENT_STREAM_BITS,
               "a stream's number fits");

/* Implements the functions of device.h for shared events. Arguments were checked. */
struct openreg_event_sharing {
  openreg_status (*record)(openreg_event *event, int stream);
  openreg_status (*query)(const openreg_event *event);
  openreg_status (*synchronize)(const openreg_event *event, int64_t deadline_ns);
  openreg_status (*wait_on_stream)(int device, int stream, const openreg_event *event);
  void (*set_timestamp)(openreg_event *event, uint64_t recording);
  void (*close)(openreg_event *event);
};

struct openreg_event {
  int device;
  bool timing;
  _Atomic uint64_t recorded;
  _Atomic(const struct openreg_event_sharing *) sharing; /* NULL: not shared */
  struct openreg_shared_event *shared;                   /* written before `sharing` */
  struct captured_point *captured; /* of a CAPTURED recording, or of an earlier one (capture.c) */
  /* For timing and shared events. The lock guards the fields below it. It is held only for a few
   * instructions, never while waiting for space in a queue. */
  pthread_mutex_t lock;
  int references;       /* one for the owner and one for each queued timestamp task */
  uint64_t last;        /* number of the latest recording that began */
  uint64_t recording;   /* number of the recording in `recorded` */
  uint64_t timestamped; /* number of the recording that timestamp_ns belongs to */
  int64_t timestamp_ns; /* CLOCK_MONOTONIC */
};

static inline uint64_t openreg_recording(uint64_t point, int stream) {
  return (point + 1) << OPENREG_EVENT_STREAM_BITS | (uint64_t)stream;
}

static inline struct stream *openreg_recording_stream(const openreg_event *event,
                                                      uint64_t recorded) {
  return &openreg_streams[event->device][recorded & ((1 << OPENREG_EVENT_STREAM_BITS) - 1)];
}

static inline uint64_t openreg_recording_point(uint64_t recorded) {
  return (recorded >> OPENREG_EVENT_STREAM_BITS) - 1;
}

static inline uint64_t openreg_event_recorded(const openreg_event *event) {
  return atomic_load_explicit(&event->recorded, memory_order_acquire);
}

static inline bool openreg_recording_is_reached(const openreg_event *event, uint64_t recorded) {
  return recorded == OPENREG_NEVER_RECORDED ||
         openreg_timeline_reached(&openreg_recording_stream(event, recorded)->timeline,
                                  openreg_recording_point(recorded));
}

/* Checks that the event is not NULL and that the process is not a forked child. Errors:
 * INVALID_ARGUMENT, BAD_FORK. */
openreg_status openreg_require_event(const openreg_event *event);

/* Creates an event. The device must exist. Errors: OUT_OF_MEMORY. */
openreg_status openreg_event_make(int device, bool enable_timing, openreg_event **event);

void openreg_event_add_reference(openreg_event *event);
void openreg_event_drop_reference(openreg_event *event);

/* Implement synchronize and wait_event for one recording by this process. */
openreg_status openreg_recording_await(const openreg_event *event, uint64_t recorded,
                                       int64_t deadline_ns);
openreg_status openreg_recording_wait_on_stream(struct stream *waiting, const openreg_event *event,
                                                uint64_t recorded);

#pragma GCC visibility pop
#endif
