/* event.h: what an event is, for the files that make events work.
 *
 * A recording is one word, stream and point, so that it can be asked and waited for while another
 * thread records again; whoever waits copies it and has no more to do with the event. That is all
 * there is to an event without timing.
 *
 * The time is stamped where the work is done. On an idle stream that is here and now; else a stamp
 * is put into the queue, and the event's point is the one behind it: an event that was reached has
 * its stamp. A stamp holds a reference, so that an event may be destroyed before it is reached.
 * Recordings are numbered, and an older one never replaces a younger, whichever is done first.
 *
 * An event may be shared with other processes, which record it too. Then recording it and asking
 * for it is another file's matter (ipc/event_exchange.c), which is reached through a table of
 * functions.
 */
#ifndef OPENREG_DEVICE_STREAMS_EVENT_H
#define OPENREG_DEVICE_STREAMS_EVENT_H

#include "device/streams/stream.h"

#include <pthread.h>
#include <stdatomic.h>

#pragma GCC visibility push(hidden)

/* A recording: (point + 1) * 2^STREAM_BITS + stream, or NEVER_RECORDED, or CAPTURED: in a graph. */
enum { OPENREG_NEVER_RECORDED = 0, OPENREG_CAPTURED = 1, OPENREG_EVENT_STREAM_BITS = 7 };

_Static_assert(OPENREG_STREAMS_PER_DEVICE <= 1 << OPENREG_EVENT_STREAM_BITS,
               "a stream's number fits");

/* What the functions of device.h do with an event that is shared; arguments were checked. */
struct openreg_event_sharing {
  openreg_status (*record)(openreg_event *event, int stream);
  openreg_status (*query)(const openreg_event *event);
  openreg_status (*synchronize)(const openreg_event *event, int64_t deadline_ns);
  openreg_status (*wait_on_stream)(int device, int stream, const openreg_event *event);
  void (*stamp)(openreg_event *event, uint64_t recording);
  void (*close)(openreg_event *event);
};

struct openreg_event {
  int device;
  bool timing;
  _Atomic uint64_t recorded;
  _Atomic(const struct openreg_event_sharing *) sharing; /* NULL: this process's alone */
  struct openreg_shared_event *shared;                   /* written before `sharing` */
  struct captured_point *captured; /* where CAPTURED stands for, or did (capture.c) */
  /* Of timing and shared events. The lock is held for a few instructions, never while waiting for
   * room in a queue, and guards what is below it. */
  pthread_mutex_t lock;
  int references;     /* the owner's and one for each stamp in a queue */
  uint64_t last;      /* how many times recording began */
  uint64_t recording; /* the number of the one in `recorded` */
  uint64_t stamped;   /* the number of the one at stamp_ns */
  int64_t stamp_ns;   /* CLOCK_MONOTONIC */
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

/* INVALID_ARGUMENT for NULL; BAD_FORK. */
openreg_status openreg_require_event(const openreg_event *event);

/* For a device that exists. Errors: OUT_OF_MEMORY. */
openreg_status openreg_event_make(int device, bool enable_timing, openreg_event **event);

void openreg_event_add_reference(openreg_event *event);
void openreg_event_drop_reference(openreg_event *event);

/* What synchronize and wait_event do with one recording of the event by this process. */
openreg_status openreg_recording_await(const openreg_event *event, uint64_t recorded,
                                       int64_t deadline_ns);
openreg_status openreg_recording_wait_on_stream(struct stream *waiting, const openreg_event *event,
                                                uint64_t recorded);

#pragma GCC visibility pop
#endif
