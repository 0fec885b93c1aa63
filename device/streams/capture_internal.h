/* capture_internal.h: what streams and events need from capture.c. */
#ifndef OPENREG_DEVICE_STREAMS_CAPTURE_INTERNAL_H
#define OPENREG_DEVICE_STREAMS_CAPTURE_INTERNAL_H

#include "device/streams/event.h"

#pragma GCC visibility push(hidden)

static inline bool openreg_stream_captures(const struct stream *stream) {
  return atomic_load_explicit(&stream->capture, memory_order_acquire) != NULL;
}

/* The end of the stream's timeline, not counting a sequence number that a capture holds. */
uint64_t openreg_capture_timeline_end(struct stream *stream);

/* Like openreg_capture_refuse, for a stream, or for all streams of a device. */
openreg_status openreg_stream_refuse_in_capture(struct stream *stream, const char *what);
openreg_status openreg_device_refuse_in_capture(int device, const char *what);

/* Records an event on a capturing stream. The event stands for the dependencies of the stream's
 * next node. Errors: OUT_OF_MEMORY. */
openreg_status openreg_capture_record(struct stream *stream, openreg_event *event);

/* Makes a stream wait for an event. The stream, the event or both take part in a capture. Errors:
 * OUT_OF_MEMORY, CAPTURE_... */
openreg_status openreg_capture_wait(struct stream *stream, const openreg_event *event);

/* Fails with CAPTURED_EVENT, and invalidates the capture, if the event was last recorded in a
 * capture. Called before the host queries an event or waits for it. */
openreg_status openreg_capture_refuse_event(const openreg_event *event);

void openreg_captured_point_free(struct captured_point *point);

#pragma GCC visibility pop
#endif
