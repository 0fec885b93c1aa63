/* capturing.h: what streams and events ask of captures (capture.c). */
#ifndef OPENREG_DEVICE_STREAMS_CAPTURING_H
#define OPENREG_DEVICE_STREAMS_CAPTURING_H

#include "device/streams/event.h"

#pragma GCC visibility push(hidden)

static inline bool openreg_stream_captures(const struct stream *stream) {
  return atomic_load_explicit(&stream->capture, memory_order_acquire) != NULL;
}

/* Until where the stream's timeline goes that is not held by a capture. */
uint64_t openreg_capture_end_of(struct stream *stream);

/* openreg_capture_refuse for the stream; for a device, if any of its streams captures. */
openreg_status openreg_stream_refuse_in_capture(struct stream *stream, const char *what);
openreg_status openreg_device_refuse_in_capture(int device, const char *what);

/* Records an event on a stream that captures: it stands for the nodes that the stream is behind.
 * Errors: OUT_OF_MEMORY. */
openreg_status openreg_capture_record(struct stream *stream, openreg_event *event);

/* Has a stream wait for an event of which one at least is of a capture. Errors: OUT_OF_MEMORY,
 * CAPTURE_... */
openreg_status openreg_capture_wait(struct stream *stream, const openreg_event *event);

/* Asking and waiting on the host for an event that was last recorded in a capture fail with
 * CAPTURED_EVENT, and invalidate the capture. */
openreg_status openreg_capture_refuse_event(const openreg_event *event);

void openreg_captured_point_free(struct captured_point *point);

#pragma GCC visibility pop
#endif
