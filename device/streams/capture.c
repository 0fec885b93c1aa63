/* capture.c: captures in progress: which streams take part, and the dependencies of their next
 * nodes.
 *
 * A capturing stream holds a sequence number of its timeline (timeline.h), as inline work does. So
 * it is not idle, and inline work cannot begin on it. Callers that would queue work check
 * openreg_stream_is_capturing and add a node instead. The sequence number is finished when the
 * capture ends. For each of its streams, a capture keeps the nodes that the next node depends on:
 *
 *     begin, on the origin        no nodes
 *     a node is added             only that node
 *     an event is recorded        copied to the event
 *     a stream waits for it       the union of the stream's and the event's nodes; a stream that
 *                                 did not capture joins the capture
 *     end                         the nodes of all streams must come before those of the origin
 *
 * One lock guards all captures. Neither running work nor calls on streams that do not capture take
 * it.
 */
#include "device/streams/capture_internal.h"
#include "device/streams/graph.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

struct member {
  struct stream *stream;
  uint64_t sequence;
  struct capture_dependencies dependencies;
  struct member *next;
};

struct capture {
  uint64_t number, mempool;
  openreg_capture_mode mode;
  pthread_t thread;
  bool is_invalid;
  openreg_graph *graph;
  struct member *members; /* the last one is the origin */
  struct capture *next;
};

struct captured_point {
  uint64_t capture;
  struct capture_dependencies dependencies;
};

static struct {
  pthread_mutex_t lock;
  struct capture *first;
  uint64_t latest;
} captures = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic int count; /* number of captures in progress */

static struct capture *capture_of(const struct stream *stream) {
  return atomic_load_explicit(&stream->capture, memory_order_acquire);
}

static struct member *member_of(const struct capture *capture, const struct stream *stream) {
  struct member *member = capture->members;
  while (member->stream != stream)
    member = member->next;
  return member;
}

static const struct member *origin_of(const struct capture *capture) {
  const struct member *member = capture->members;
  while (member->next != NULL)
    member = member->next;
  return member;
}

static openreg_status no_memory(void) {
  return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory to capture a stream");
}

/* Fails with the status's message and the reason. */
static openreg_status fail(openreg_status status, const char *what) {
  return openreg_fail(status, "%s: %s", openreg_status_message(status), what);
}

static openreg_status invalidate(struct capture *capture, openreg_status status, const char *what) {
  capture->is_invalid = true;
  return fail(status, what);
}

/* ---- joining and leaving --------------------------------------------------------------------- */

static bool join(struct capture *capture, struct stream *stream) {
  struct member *member = calloc(1, sizeof *member);
  if (member == NULL)
    return false;
  member->stream = stream;
  member->sequence = openreg_timeline_take_sequence(&stream->timeline);
  member->next = capture->members;
  capture->members = member;
  atomic_store_explicit(&stream->capture, capture, memory_order_release);
  return true;
}

/* First waits for work submitted before the capture: a sequence number must not finish before its
 * turn. */
static void leave(struct member *member) {
  struct stream *stream = member->stream;
  openreg_timeline_wait(&stream->timeline, member->sequence, OPENREG_NEVER);
  openreg_stream_begin_exclusive(stream);
  openreg_stream_end_exclusive(stream, member->sequence + 1);
  openreg_queue_wake(&stream->queue);
  openreg_capture_dependencies_free(&member->dependencies);
  free(member);
}

static void release_members(struct member *member) {
  while (member != NULL) {
    struct member *next = member->next;
    leave(member);
    member = next;
  }
}

/* ---- begin and end --------------------------------------------------------------------------- */

static openreg_status require_capturable(int device, int stream) {
  openreg_status status = openreg_require_context(device);
  if (status == OPENREG_OK)
    status = openreg_require_stream(stream);
  if (status == OPENREG_OK && stream == OPENREG_STREAM_DEFAULT)
    status = fail(OPENREG_CAPTURE_UNSUPPORTED, "the default stream cannot be captured");
  return status;
}

static openreg_status begin_locked(struct stream *stream, openreg_capture_mode mode,
                                   uint64_t mempool) {
  if (capture_of(stream) != NULL)
    return invalidate(capture_of(stream), OPENREG_CAPTURE_UNSUPPORTED,
                      "the stream is already capturing");
  struct capture *capture = calloc(1, sizeof *capture);
  if (capture == NULL)
    return no_memory();
  capture->graph = openreg_graph_create();
  if (capture->graph == NULL || !join(capture, stream)) {
    openreg_graph_destroy(capture->graph);
    free(capture);
    return no_memory();
  }
  capture->number = ++captures.latest;
  capture->mempool = mempool;
  capture->mode = mode;
  capture->thread = pthread_self();
  capture->next = captures.first;
  captures.first = capture;
  atomic_fetch_add(&count, 1);
  return OPENREG_OK;
}

openreg_status openreg_capture_begin(int device, int stream, openreg_capture_mode mode,
                                     uint64_t mempool) {
  openreg_status status = require_capturable(device, stream);
  if (status != OPENREG_OK)
    return status;
  pthread_mutex_lock(&captures.lock);
  status = begin_locked(&openreg_streams[device][stream], mode, mempool);
  pthread_mutex_unlock(&captures.lock);
  return status;
}

static openreg_status require_endable(const struct capture *capture, const struct stream *stream) {
  if (capture == NULL || origin_of(capture)->stream != stream)
    return fail(OPENREG_CAPTURE_UNMATCHED, "no capture began on this stream");
  if (capture->mode != OPENREG_CAPTURE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
    return fail(OPENREG_CAPTURE_WRONG_THREAD,
                "another thread began the capture, and its mode is not relaxed");
  return OPENREG_OK;
}

static bool all_have_joined(const struct capture *capture) {
  const struct capture_dependencies *end = &origin_of(capture)->dependencies;
  for (const struct member *member = capture->members; member != NULL; member = member->next)
    if (!openreg_graph_comes_before(capture->graph, &member->dependencies, end))
      return false;
  return true;
}

/* Afterwards no other thread can find the capture. Its streams no longer capture, but are not idle
 * yet. */
static void unlink_locked(struct capture *capture) {
  struct capture **link = &captures.first;
  while (*link != capture)
    link = &(*link)->next;
  *link = capture->next;
  for (struct member *member = capture->members; member != NULL; member = member->next)
    atomic_store_explicit(&member->stream->capture, NULL, memory_order_release);
  atomic_fetch_sub(&count, 1);
}

openreg_status openreg_capture_end(int device, int number, openreg_graph **graph) {
  openreg_status status = openreg_require_device(device);
  if (status == OPENREG_OK)
    status = openreg_require_stream(number);
  if (status != OPENREG_OK)
    return status;
  const struct stream *stream = &openreg_streams[device][number];
  pthread_mutex_lock(&captures.lock);
  struct capture *capture = capture_of(stream);
  status = require_endable(capture, stream);
  if (status == OPENREG_OK)
    unlink_locked(capture);
  pthread_mutex_unlock(&captures.lock);
  if (status != OPENREG_OK)
    return status;
  if (capture->is_invalid)
    status = fail(OPENREG_CAPTURE_INVALIDATED, "the capture has ended without a graph");
  else if (!all_have_joined(capture))
    status = fail(
        OPENREG_CAPTURE_UNJOINED,
        "the stream on which the capture began must first wait for all other capturing streams");
  release_members(capture->members);
  if (status == OPENREG_OK)
    *graph = capture->graph;
  else
    openreg_graph_destroy(capture->graph);
  free(capture);
  return status;
}

/* ---- queries --------------------------------------------------------------------------------- */

bool openreg_captures_exist(void) {
  return atomic_load_explicit(&count, memory_order_relaxed) != 0;
}

bool openreg_stream_is_capturing(int device, int stream) {
  return openreg_stream_captures(&openreg_streams[device][stream]);
}

uint64_t openreg_stream_capture(int device, int stream, bool *is_valid) {
  pthread_mutex_lock(&captures.lock);
  const struct capture *capture = capture_of(&openreg_streams[device][stream]);
  uint64_t number = capture != NULL ? capture->number : 0;
  *is_valid = capture != NULL && !capture->is_invalid;
  pthread_mutex_unlock(&captures.lock);
  return number;
}

uint64_t openreg_stream_capture_mempool(int device, int stream) {
  if (!openreg_stream_is_capturing(device, stream))
    return 0;
  pthread_mutex_lock(&captures.lock);
  const struct capture *capture = capture_of(&openreg_streams[device][stream]);
  uint64_t mempool = capture != NULL ? capture->mempool : 0;
  pthread_mutex_unlock(&captures.lock);
  return mempool;
}

uint64_t openreg_capture_timeline_end(struct stream *stream) {
  pthread_mutex_lock(&captures.lock);
  const struct capture *capture = capture_of(stream);
  uint64_t end = capture != NULL ? member_of(capture, stream)->sequence
                                 : openreg_timeline_end(&stream->timeline);
  pthread_mutex_unlock(&captures.lock);
  return end;
}

/* ---- work ------------------------------------------------------------------------------------ */

openreg_status openreg_capture_add(int device, int stream, const openreg_graph_work *work) {
  struct stream *adding = &openreg_streams[device][stream];
  openreg_status status;
  pthread_mutex_lock(&captures.lock);
  struct capture *capture = capture_of(adding);
  if (capture == NULL) {
    status = fail(OPENREG_CAPTURE_UNMATCHED, "the stream's capture has already ended");
    if (work->destroy != NULL)
      work->destroy(work->data);
  } else {
    struct capture_dependencies *dependencies = &member_of(capture, adding)->dependencies;
    status = openreg_graph_add(capture->graph, adding, work, dependencies);
    if (status == OPENREG_OK &&
        !openreg_capture_dependencies_set(dependencies, (uint32_t)capture->graph->count - 1))
      status = no_memory();
    capture->is_invalid |= status != OPENREG_OK;
  }
  pthread_mutex_unlock(&captures.lock);
  return status;
}

openreg_status openreg_stream_refuse_in_capture(struct stream *stream, const char *what) {
  if (!openreg_stream_captures(stream))
    return OPENREG_OK;
  pthread_mutex_lock(&captures.lock);
  struct capture *capture = capture_of(stream);
  openreg_status status =
      capture != NULL ? invalidate(capture, OPENREG_CAPTURE_UNSUPPORTED, what) : OPENREG_OK;
  pthread_mutex_unlock(&captures.lock);
  return status;
}

openreg_status openreg_device_refuse_in_capture(int device, const char *what) {
  openreg_status status = OPENREG_OK;
  for (int i = 0; openreg_captures_exist() && i < OPENREG_STREAMS_PER_DEVICE; i++) {
    openreg_status refused = openreg_stream_refuse_in_capture(&openreg_streams[device][i], what);
    status = status == OPENREG_OK ? refused : status;
  }
  return status;
}

openreg_status openreg_capture_refuse(int device, int stream, const char *what) {
  return openreg_stream_refuse_in_capture(&openreg_streams[device][stream], what);
}

static _Thread_local openreg_capture_mode thread_mode = OPENREG_CAPTURE_GLOBAL;

openreg_capture_mode openreg_capture_exchange_mode(openreg_capture_mode mode) {
  openreg_capture_mode before = thread_mode;
  thread_mode = mode;
  return before;
}

static bool is_affected(const struct capture *capture) {
  if (thread_mode == OPENREG_CAPTURE_RELAXED || capture->mode == OPENREG_CAPTURE_RELAXED)
    return false;
  bool is_for_all =
      capture->mode == OPENREG_CAPTURE_GLOBAL && thread_mode == OPENREG_CAPTURE_GLOBAL;
  return is_for_all || pthread_equal(capture->thread, pthread_self());
}

openreg_status openreg_capture_refuse_unsafe(const char *what) {
  openreg_status status = OPENREG_OK;
  if (!openreg_captures_exist())
    return status;
  pthread_mutex_lock(&captures.lock);
  for (struct capture *capture = captures.first; capture != NULL; capture = capture->next)
    if (is_affected(capture))
      status = invalidate(capture, OPENREG_CAPTURE_UNSUPPORTED, what);
  pthread_mutex_unlock(&captures.lock);
  return status;
}

/* ---- events ---------------------------------------------------------------------------------- */

void openreg_captured_point_free(struct captured_point *point) {
  if (point == NULL)
    return;
  openreg_capture_dependencies_free(&point->dependencies);
  free(point);
}

static struct captured_point *point_of(const struct capture *capture, const struct stream *stream) {
  struct captured_point *point = calloc(1, sizeof *point);
  if (point == NULL)
    return NULL;
  point->capture = capture->number;
  if (openreg_capture_dependencies_add(&point->dependencies,
                                       &member_of(capture, stream)->dependencies))
    return point;
  free(point);
  return NULL;
}

openreg_status openreg_capture_record(struct stream *stream, openreg_event *event) {
  openreg_status status = OPENREG_OK;
  pthread_mutex_lock(&captures.lock);
  const struct capture *capture = capture_of(stream);
  struct captured_point *point = capture != NULL ? point_of(capture, stream) : NULL;
  if (point == NULL) {
    status = no_memory();
  } else {
    openreg_captured_point_free(event->captured);
    event->captured = point;
    atomic_store_explicit(&event->recorded, OPENREG_CAPTURED, memory_order_release);
  }
  pthread_mutex_unlock(&captures.lock);
  return status;
}

/* The capture in which the event was last recorded; NULL if it has ended. */
static struct capture *capture_of_event(const openreg_event *event) {
  struct capture *capture = captures.first;
  while (capture != NULL && capture->number != event->captured->capture)
    capture = capture->next;
  return capture;
}

static openreg_status wait_locked(struct stream *stream, const openreg_event *event) {
  uint64_t recorded = openreg_event_recorded(event);
  struct capture *own = capture_of(stream);
  if (recorded == OPENREG_NEVER_RECORDED)
    return OPENREG_OK;
  if (recorded != OPENREG_CAPTURED)
    return own == NULL ? OPENREG_OK
                       : invalidate(own, OPENREG_CAPTURE_ISOLATION,
                                    "the event was not recorded in this capture");
  struct capture *other = capture_of_event(event);
  if (other == NULL)
    return fail(OPENREG_CAPTURED_EVENT, "the capture in which it was recorded has ended");
  if (own != NULL && own != other) {
    other->is_invalid = true;
    return invalidate(own, OPENREG_CAPTURE_MERGE, "the event was recorded in another capture");
  }
  if (own == NULL && openreg_stream_number(stream) == OPENREG_STREAM_DEFAULT)
    return invalidate(other, OPENREG_CAPTURE_IMPLICIT,
                      "the default stream cannot wait for an event of a capturing stream");
  if (own == NULL && !join(other, stream))
    return no_memory();
  return openreg_capture_dependencies_add(&member_of(other, stream)->dependencies,
                                          &event->captured->dependencies)
             ? OPENREG_OK
             : no_memory();
}

openreg_status openreg_capture_wait(struct stream *stream, const openreg_event *event) {
  pthread_mutex_lock(&captures.lock);
  openreg_status status = wait_locked(stream, event);
  pthread_mutex_unlock(&captures.lock);
  return status;
}

openreg_status openreg_capture_refuse_event(const openreg_event *event) {
  if (openreg_event_recorded(event) != OPENREG_CAPTURED)
    return OPENREG_OK;
  pthread_mutex_lock(&captures.lock);
  struct capture *capture = capture_of_event(event);
  if (capture != NULL)
    capture->is_invalid = true;
  pthread_mutex_unlock(&captures.lock);
  return fail(OPENREG_CAPTURED_EVENT, "captured work runs only when the graph is replayed");
}
